package usage_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// call is an ask of units with the usual wish for more.
func call(key usage.Key, ver, units int64) usage.LeaseCall {
	return usage.LeaseCall{Key: key.Key, Ver: ver, Units: units, Want: 1000, Waiting: units}
}

// strictWindow says whether a recall keeps nodes from speculating under a key.
func (w *world) strictWindow(key int64) bool {
	return w.number("SELECT count(*) FROM weir.quotas WHERE key = $1 AND strict_until > clock_timestamp()", key) == 1
}

func TestAGrantIsAtMostItsShareOfTheRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	got := w.ask(a, call(k, 0, 1))
	require.EqualValues(t, 100/(2*2), got.Got, "room over twice the live nodes")
	require.False(t, *got.Tight)
	got = w.ask(b, usage.LeaseCall{Key: k.Key, Units: 1, Want: 7, Waiting: 1})
	require.EqualValues(t, 7, got.Got, "no more than wanted")
	got = w.ask(b, call(k, 1, 60))
	require.EqualValues(t, 60, got.Got, "a call is granted whole while there is room")
	require.True(t, *got.Tight)
	ceiling, granted := w.quota(k.Key)
	require.Equal(t, []int64{100, 92}, []int64{ceiling, granted})
	w.sound()
}

func TestOnlyLiveNodesShare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, silent, ended := w.node(), w.node(), w.node()
	w.exec("UPDATE weir.nodes SET heartbeat_at = clock_timestamp() - interval '4 s' WHERE id = $1", silent)
	w.exec("UPDATE weir.nodes SET state = 'stopped' WHERE id = $1", ended)
	k, l := w.key("acme", "events", noon), w.key("other", "events", noon)
	require.EqualValues(t, 50, w.ask(a, call(k, 0, 1)).Got)
	unjudged, err := usage.Ask(t.Context(), w.db, a, false, []usage.LeaseCall{call(l, 0, 1)})
	require.NoError(t, err)
	require.EqualValues(t, 25, unjudged[0].Got, "who can't judge heartbeats counts every live node")
}

// Failures 4 and 7: one recall is not the end; a node that answers with nothing is tight, and then it is certain.
func TestRefusedOnlyWhenNobodyHoldsAnything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(b, usage.LeaseCall{Key: k.Key, Units: 1, Want: 1000, Waiting: 1}) // 25, loose
	require.EqualValues(t, 75, w.ask(a, call(k, 0, 75)).Got)
	for ver := int64(1); ver < 4; ver++ {
		r := w.ask(a, call(k, ver, 5))
		require.True(t, r.Others && !r.Silent && r.Bound == nil, "the other node still holds units")
	}
	w.give(b, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 24})
	require.EqualValues(t, 24, w.ask(a, call(k, 4, 24)).Got)
	r := w.ask(a, call(k, 5, 1))
	require.False(t, r.Others)
	require.EqualValues(t, 0, *r.Bound)
	require.NotNil(t, r.Used)
	w.sound()
}

func TestANodeWithNothingLeftAnswersARecall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(b, call(k, 0, 1)) // 25, loose, and all of it spent
	require.EqualValues(t, 75, w.ask(a, call(k, 0, 75)).Got)
	require.True(t, w.ask(a, call(k, 1, 1)).Others)
	w.give(b, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 0})
	require.False(t, w.ask(a, call(k, 2, 1)).Others)
}

// Failure 5: after a recall nobody speculates for longer than an asker waits, so a recalled unit does not bounce.
func TestNobodySpeculatesAfterARecall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(b, call(k, 0, 1))
	require.EqualValues(t, 70, w.ask(a, call(k, 0, 70)).Got)
	require.False(t, w.strictWindow(k.Key))
	before := w.number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
	require.True(t, w.ask(a, call(k, 1, 6)).Others)
	until := w.number("SELECT (extract(epoch FROM strict_until) * 1000)::bigint FROM weir.quotas WHERE key = $1", k.Key)
	require.Greater(t, until, before+250, "longer than the wait of 250 ms")
	w.exec("UPDATE weir.quotas SET strict_until = clock_timestamp() + interval '1 minute' WHERE key = $1", k.Key) // whatever this machine takes
	require.EqualValues(t, 0, w.ask(b, usage.LeaseCall{Key: k.Key, Ver: 1, Want: 1000}).Got, "no extension")
	r := w.ask(b, usage.LeaseCall{Key: k.Key, Ver: 2, Units: 1, Want: 1000, Waiting: 2})
	require.EqualValues(t, 2, r.Got, "only what callers wait for")
	w.sound()
}

// Failure 8: a request that nobody can fill takes no lease from anybody.
func TestAHopelessRequestRecallsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(b, call(k, 0, 1))
	r := w.ask(a, call(k, 0, 101))
	require.False(t, r.Others)
	require.EqualValues(t, 100, *r.Bound, "smaller requests may still pass")
	require.Zero(t, w.number("SELECT count(*) FROM weir.recalls"))
	require.False(t, w.strictWindow(k.Key))
}

// What a silent node holds is not waited for, and nobody else is called back in vain.
func TestASilentNodeIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b, silent := w.node(), w.node(), w.node()
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 16, w.ask(silent, call(k, 0, 1)).Got)
	require.EqualValues(t, 14, w.ask(b, call(k, 0, 1)).Got)
	w.exec("UPDATE weir.nodes SET heartbeat_at = clock_timestamp() - interval '4 s' WHERE id = $1", silent)
	r := w.ask(a, call(k, 0, 90))
	require.True(t, r.Others && r.Silent)
	require.Nil(t, r.Bound, "not certain")
	require.Zero(t, w.number("SELECT count(*) FROM weir.recalls"))
	r = w.ask(a, call(k, 1, 80))
	require.True(t, r.Others && !r.Silent, "the heard node's units would do")
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.recalls"))
	unjudged, err := usage.Ask(t.Context(), w.db, a, false, []usage.LeaseCall{call(k, 2, 90)})
	require.NoError(t, err)
	require.False(t, unjudged[0].Silent, "who can't judge heartbeats calls nobody silent")
}

func TestTheVersionResolvesALostAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	first := w.ask(n, call(k, 0, 10)) // committed, the answer is lost
	again := w.ask(n, call(k, 0, 10)) // sent again
	require.Equal(t, usage.LeaseAdopt, again.Status)
	require.Equal(t, []int64{1, *first.Lim}, []int64{*again.Ver, *again.Lim})
	require.Zero(t, again.Got)
	_, granted := w.quota(k.Key)
	require.Equal(t, *first.Lim, granted)
	w.give(n, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 40})
	require.Equal(t, usage.LeaseAdopt, w.give(n, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 40}).Status, "given once")
	w.sound()
}

func TestWhatCannotBeTrueOfALeaseIsNotApplied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 10))
	for _, c := range []usage.LeaseCall{
		{Key: k.Key, Ver: 1, Back: 101},
		{Key: k.Key, Ver: 1, Back: -1},
		{Key: k.Key, Ver: 1, Over: -5},
		{Key: k.Key, Ver: 1, Units: -3},
	} {
		require.Equal(t, usage.LeaseAdopt, w.ask(n, c).Status)
		require.Equal(t, usage.LeaseAdopt, w.give(n, c).Status)
	}
	require.EqualValues(t, 0, w.ask(n, usage.LeaseCall{Key: k.Key, Ver: 1, Want: -7}).Got)
	w.sound()
}

func TestUnitsBeyondTheLeaseTravelWithTheNextAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 100))
	r := w.ask(n, usage.LeaseCall{Key: k.Key, Ver: 1, Over: 30, Units: 1})
	require.False(t, r.Others)
	require.EqualValues(t, 130, *r.Lim)
	require.EqualValues(t, 0, *r.Bound, "never negative")
	w.sound()
}

func TestUnknownEndedAndRejoin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	require.Equal(t, usage.LeaseUnknown, w.ask(n, usage.LeaseCall{Key: 999_999, Units: 1}).Status)
	require.EqualValues(t, 50, w.ask(n, call(k, 0, 1)).Got)
	w.exec("UPDATE weir.quotas SET ended = true WHERE key = $1", k.Key)
	r := w.ask(n, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 10, Over: 3, Units: 1})
	require.Equal(t, usage.LeaseEnded, r.Status)
	require.EqualValues(t, 43, *r.Lim, "what was cut comes back, what was beyond is told")
	require.Equal(t, usage.LeaseOK, w.give(n, usage.LeaseCall{Key: k.Key, Ver: 2, Back: 40}).Status)
	w.exec("UPDATE weir.nodes SET state = 'reaping' WHERE id = $1", n)
	require.Equal(t, usage.LeaseRejoin, w.ask(n, call(k, 3, 1)).Status)
	require.Equal(t, usage.LeaseRejoin, w.give(n, call(k, 3, 1)).Status)
	require.Equal(t, usage.LeaseRejoin, w.ask(12345, call(k, 0, 1)).Status, "a node that nobody knows")
	w.sound()
}

// Failure 17: as one statement, an ask that waits for the lock reads the leases as they were before. Here a give is
// under way when the ask begins: the ask must see it, or its refusal is false.
func TestAnAskSeesWhatCommittedWhileItWaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(b, call(k, 0, 1))
	require.EqualValues(t, 75, w.ask(a, call(k, 0, 75)).Got)
	// b turns its tight lease loose by an extension, in a transaction that is held open.
	w.give(b, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 20})
	w.exec("UPDATE weir.quotas SET strict_until = '-infinity' WHERE key = $1", k.Key)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	ext, err := usage.Ask(t.Context(), tx, b, true, []usage.LeaseCall{{Key: k.Key, Ver: 2, Want: 5}})
	require.NoError(t, err)
	require.EqualValues(t, 5, ext[0].Got)
	answer := make(chan usage.LeaseAnswer, 1)
	go func() { answer <- w.ask(a, call(k, 1, 18)) }()
	w.waitsForLock("weir.lease")
	require.NoError(t, tx.Commit(t.Context()))
	r := <-answer
	require.True(t, r.Others, "15 are in the room and 5 are loose at b: not a certain refusal")
	w.sound()
}

// waitsForLock returns once a session of this database waits for a lock in a statement that contains what.
func (w *world) waitsForLock(what string) {
	w.Helper()
	require.Eventually(w, func() bool {
		return w.number(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
			AND position($1 in query) > 0 AND pid <> pg_backend_pid()`, what) > 0
	}, 20*time.Second, 2*time.Millisecond)
}

// A statement of a dead node that commits late: reaping waits for it, so its grant is returned and not lost.
func TestAGrantUnderWayIsNotLostToAReaper(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	r, err := usage.Ask(t.Context(), tx, n, true, []usage.LeaseCall{call(k, 0, 40)})
	require.NoError(t, err)
	require.EqualValues(t, 50, r[0].Got)
	reaped := make(chan bool, 1)
	go func() {
		ok, err := usage.Reap(t.Context(), w.db, n, 0)
		reaped <- ok && err == nil
	}()
	w.waitsForLock("weir.move_node")
	require.NoError(t, tx.Commit(t.Context()))
	require.True(t, <-reaped)
	_, granted := w.quota(k.Key)
	require.Zero(t, granted, "what the dead node was granted is there for others")
	w.sound()
}

// Keys in any order, two nodes, many rounds: quota rows are locked by key, so no deadlock.
func TestAsksOfManyKeysInOppositeOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.manyKeys(20)
	var wg sync.WaitGroup
	for i := range 4 {
		n := w.node()
		wg.Go(func() {
			vers := make(map[int64]int64)
			for range 50 {
				calls := make([]usage.LeaseCall, len(keys))
				for j, k := range keys {
					at := j
					if i%2 == 1 {
						at = len(keys) - 1 - j
					}
					calls[at] = usage.LeaseCall{Key: k, Ver: vers[k], Units: 1, Want: 3, Waiting: 1}
				}
				got, err := usage.Ask(context.Background(), w.db, n, true, calls)
				if !assertNoError(t, err) {
					return
				}
				for _, a := range got {
					vers[a.Key] = *a.Ver
				}
			}
		})
	}
	wg.Wait()
	w.sound()
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Errorf("unexpected: %v", err)
	}
	return err == nil
}

// The notices name their receivers: a recall the nodes with loose leases, a give the key.
func TestRecallsAndReturnsAreAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	k := w.key("acme", "events", noon)
	conn, err := pgx.ConnectConfig(t.Context(), w.db.Config().ConnConfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	_, err = conn.Exec(t.Context(), "LISTEN weir_recall; LISTEN weir_returned")
	require.NoError(t, err)
	w.ask(b, call(k, 0, 1))
	require.True(t, w.ask(a, call(k, 0, 90)).Others)
	n, err := conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, usage.ChannelRecall+" "+itoa(k.Key)+" "+itoa(b), n.Channel+" "+n.Payload)
	require.Equal(t, []int64{k.Key}, w.flush(b, noon).Recalled, "the heartbeat says it too")
	require.Empty(t, w.flush(a, noon).Recalled)
	w.give(b, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 25})
	n, err = conn.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, usage.ChannelReturned+" "+itoa(k.Key), n.Channel+" "+n.Payload)
	require.Empty(t, w.flush(b, noon).Recalled, "a tight lease is recalled no more")
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
