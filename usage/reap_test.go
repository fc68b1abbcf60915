package usage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// Failure 18: a reaper goes by the number that it watched, not by a timestamp.
func TestReapGoesByTheWatchedHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 1))
	w.flush(n, noon, k.Key, 5)
	w.exec("UPDATE weir.nodes SET heartbeat_at = '2001-01-01'") // as after an outage
	ok, err := usage.Reap(t.Context(), w.db, n, 0)
	require.NoError(t, err)
	require.False(t, ok, "it has beaten since the reaper looked")
	require.Equal(t, "live", w.state(n))
	require.EqualValues(t, 50, w.lim(n, k.Key))
	list, err := usage.Nodes(t.Context(), w.db)
	require.NoError(t, err)
	require.Len(t, list, 1)
	ok, err = usage.Reap(t.Context(), w.db, n, list[0].Heartbeat)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "reaped", w.state(n))
	require.EqualValues(t, 5, w.lim(n, k.Key), "what it flushed is used, the rest is back")
	require.Equal(t, usage.LeaseRejoin, w.ask(n, call(k, 1, 1)).Status)
	w.sound()
}

func TestAReapingThatWasBrokenOffIsTakenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 1))
	w.exec("UPDATE weir.nodes SET state = 'reaping', heartbeat = 9 WHERE id = $1", n)
	ok, err := usage.Reap(t.Context(), w.db, n, 8)
	require.NoError(t, err)
	require.False(t, ok, "its number has moved: somebody recovers it")
	require.Positive(t, w.lim(n, k.Key))
	ok, err = usage.Reap(t.Context(), w.db, n, 9)
	require.NoError(t, err)
	require.True(t, ok)
	require.Zero(t, w.lim(n, k.Key))
}

// A reaped node wakes up: lim is what it has used, the difference is counted as overshoot, and it begins anew.
func TestAReapedNodeThatWakesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, other := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 80))
	w.flush(n, noon, k.Key, 30)
	_, err := usage.Reap(t.Context(), w.db, n, 1)
	require.NoError(t, err)
	require.EqualValues(t, 70, w.ask(other, call(k, 0, 70)).Got)
	w.flush(n, noon, k.Key, 55) // it had gone on within its old lease
	require.NoError(t, usage.Settle(t.Context(), w.db, n, []int64{k.Key}, []int64{62}, noon, "woke up"))
	ok, err := usage.MoveNode(t.Context(), w.db, n, "reaped", "live")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 62, w.lim(n, k.Key))
	require.EqualValues(t, 32, w.overshoots(), "used beyond what was left to it")
	ceiling, granted := w.quota(k.Key)
	require.Equal(t, []int64{100, 132}, []int64{ceiling, granted})
	r := w.ask(n, call(k, 1, 1))
	require.Equal(t, usage.LeaseAdopt, r.Status)
	require.EqualValues(t, 62, *r.Lim)
	r = w.ask(n, call(k, *r.Ver, 1))
	require.EqualValues(t, 0, *r.Bound, "no grants until granted is below the ceiling")
	ok, err = usage.Reap(t.Context(), w.db, n, 1)
	require.NoError(t, err)
	require.False(t, ok, "coming back was a heartbeat")
	w.sound()
}

// What a reaped node flushes late is folded, and its lease follows when it is settled again.
func TestRowsOfAReapedNodeAreFolded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 40))
	_, err := usage.Reap(t.Context(), w.db, n, 0)
	require.NoError(t, err)
	ok, err := usage.Reap(t.Context(), w.db, n, 0)
	require.NoError(t, err)
	require.False(t, ok, "nothing came of it since")
	for i, part := range [][]int64{{k.Key, 12}, {k.Key, 20}} {
		require.False(t, w.flush(n, noon, part...).Live)
		if i == 0 {
			w.fold() // before the reaper sees them, or with it
		}
		nodes, err := usage.Nodes(t.Context(), w.db)
		require.NoError(t, err)
		require.True(t, nodes[0].Late)
		ok, err = usage.Reap(t.Context(), w.db, n, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, part[1], w.total(k.Key).Used)
		require.Equal(t, part[1], w.lim(n, k.Key))
		require.Equal(t, part[1], w.overshoots())
		nodes, err = usage.Nodes(t.Context(), w.db)
		require.NoError(t, err)
		require.False(t, nodes[0].Late)
		require.Equal(t, "reaped", nodes[0].State)
	}
	require.EqualValues(t, 80, w.ask(w.node(), call(k, 0, 80)).Got)
	w.sound()
}

// A worker that dies between the steps of a reaping: whatever it had done, the next one finishes it.
func TestAReapingThatStopsAnywhereIsFinished(t *testing.T) {
	t.Parallel()
	for _, done := range []string{"moved", "returned", "late, moved", "late, returned"} {
		w := newWorld(t)
		n := w.node()
		k := w.key("acme", "events", noon)
		w.ask(n, call(k, 0, 40))
		used := int64(0)
		if strings.HasPrefix(done, "late") {
			_, err := usage.Reap(t.Context(), w.db, n, 0)
			require.NoError(t, err)
			used = 9
			w.flush(n, noon, k.Key, used)
		}
		require.EqualValues(t, 1, w.number("SELECT weir.move_node($1, ARRAY[$2], 'reaping', 0)::integer", n, map[bool]string{true: "live", false: "reaped"}[used == 0]), done)
		if strings.HasSuffix(done, "returned") {
			require.NoError(t, usage.ReturnLeases(t.Context(), w.db, n, "test"))
		}
		ok, err := usage.Reap(t.Context(), w.db, n, 0)
		require.NoError(t, err, done)
		require.True(t, ok, done)
		require.Equal(t, "reaped", w.state(n), done)
		require.Equal(t, used, w.lim(n, k.Key), done)
		_, granted := w.quota(k.Key)
		require.Equal(t, used, granted, done)
		w.sound()
	}
}
