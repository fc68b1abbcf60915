package usage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// Failure 16: two folds at once counted too much. Here many run against many senders.
func TestFoldsAtOnceCountOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.manyKeys(30)
	var senders, folders sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for range 4 {
		folders.Go(func() {
			for ctx.Err() == nil {
				_, err := usage.Fold(context.Background(), w.db, 100)
				if !assertNoError(t, err) {
					return
				}
			}
		})
	}
	for range 4 {
		n := w.node()
		senders.Go(func() {
			for r := range int64(25) {
				_, err := usage.Flush(context.Background(), w.db, usage.Batch{Node: n, Keys: keys, Upto: slices.Repeat([]int64{r + 1}, len(keys)), At: noon, Sealed: noon})
				assertNoError(t, err)
			}
		})
	}
	senders.Wait()
	stop()
	folders.Wait()
	w.fold()
	for _, k := range keys {
		require.EqualValues(t, 100, w.total(k).Used)
	}
	w.sound()
}

// A batch that commits while a fold runs is not lost between the fold's reading and its deleting.
func TestABatchThatCommitsDuringAFoldIsFoldedByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.flush(n, noon, k.Key, 5)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	took, err := usage.Fold(t.Context(), tx, 100)
	require.NoError(t, err)
	require.EqualValues(t, 1, took)
	w.flush(n, noon, k.Key, 8)
	second := make(chan int64, 1)
	go func() {
		took, err := usage.Fold(context.Background(), w.db, 100)
		assertNoError(t, err)
		second <- took
	}()
	w.waitsForLock("weir.fold_chunk")
	require.NoError(t, tx.Commit(t.Context()))
	require.EqualValues(t, 1, <-second)
	require.Equal(t, total{Used: 8, Free: 8}, w.total(k.Key))
	pending, err := usage.Pending(t.Context(), w.db)
	require.NoError(t, err)
	require.False(t, pending)
}

// Failure 11, case 24: repeated, reordered and late batches change nothing.
func TestRepeatedAndReorderedBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.manyKeys(5)
	nodes := []int64{w.node(), w.node(), w.node()}
	r := rand.New(rand.NewPCG(1, 2))
	type batch struct {
		node int64
		upto int64
	}
	var all []batch
	for _, n := range nodes {
		for u := range int64(20) {
			for range 1 + r.IntN(3) {
				all = append(all, batch{n, u + 1})
			}
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, b := range all {
		w.flush(b.node, noon, pairs(keys, b.upto)...)
		if i%7 == 0 {
			_, err := usage.Fold(t.Context(), w.db, 1+r.IntN(20))
			require.NoError(t, err)
		}
	}
	w.fold()
	for _, k := range keys {
		require.Equal(t, total{Used: 60, Free: 60}, w.total(k))
	}
	w.sound()
}

func TestOneBadRowIsParkedAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	good, other, retired := w.node(), w.node(), w.node()
	keys := w.manyKeys(3)
	w.exec("UPDATE weir.nodes SET state = 'retired' WHERE id = $1", retired)
	w.flush(good, noon, keys[0], 10, 987_654, 1, keys[1], -4, keys[1], 7)
	w.flush(retired, noon, keys[0], 3)
	w.flush(77, noon, keys[0], 3)
	w.flush(good, noon, keys[2], usage.Boundless) // the sum of two such overflows
	w.flush(other, noon, keys[2], usage.Boundless)
	w.flush(other, noon, keys[0], 5)
	took, err := usage.Fold(t.Context(), w.db, 5000)
	require.NoError(t, err)
	require.EqualValues(t, 9, took)
	require.Equal(t, total{Used: 15, Free: 15}, w.total(keys[0]))
	require.Equal(t, total{Used: 7, Free: 7}, w.total(keys[1]))
	require.EqualValues(t, int64(usage.Boundless), w.total(keys[2]).Used)
	var reasons []string
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT array_agg(reason ORDER BY reason) FROM weir.inbox_parked").Scan(&reasons))
	require.Equal(t, []string{"bigint out of range", "node is retired", "units out of range", "unknown key", "unknown node"}, reasons)
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.inbox_parked WHERE node = $1 AND key = $2 AND upto = 3", retired, keys[0]), "with all it said")
	w.sound()
}

func TestUnitsAreSplitForwardInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	ends := noon.AddDate(0, 1, 0)
	for account, more := range map[string]func(*usage.PlanState){
		"billable":  func(*usage.PlanState) {},
		"awaiting":  func(s *usage.PlanState) { s.Billable, s.Awaiting = nil, []string{"events"} },
		"no market": func(s *usage.PlanState) { s.Billable = nil },
	} {
		w.subscribe(account, "pro", noon, ends, noon, more)
		k := w.key(account, "events", noon)
		w.flush(a, noon, k.Key, 700)
		w.flush(b, noon, k.Key, 200)
		w.fold()
		require.Equal(t, total{Used: 900, Free: 900}, w.total(k.Key))
		w.flush(b, noon, k.Key, 450)
		w.flush(a, noon, k.Key, 750)
		w.fold()
		want := total{Used: 1200, Free: 1000, Overage: 200}
		switch account {
		case "awaiting":
			want.NotBillable, want.Awaiting = 200, 200
		case "no market":
			want.NotBillable = 200
		}
		require.Equal(t, want, w.total(k.Key), account)
		require.EqualValues(t, 200, w.number("SELECT sum(overage) FROM weir.history WHERE key = $1", k.Key))
	}
	// The awaited confirmation comes: what was counted becomes billable; what was not billable stays so.
	w.subscribe("awaiting", "pro", noon, ends, noon)
	require.Equal(t, total{Used: 1200, Free: 1000, Overage: 200}, w.total(w.key("awaiting", "events", noon).Key))
	w.subscribe("no market", "pro", noon, ends, noon)
	require.EqualValues(t, 200, w.total(w.key("no market", "events", noon).Key).NotBillable)
	w.sound()
}

// The batch's own time decides the day, whenever and in whatever order it is folded.
func TestHistoryGoesByTheBatchsDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	midnight := time.Date(2026, 3, 11, 0, 0, 0, 0, time.UTC)
	w.flush(n, midnight, k.Key, 100)
	w.flush(n, midnight.Add(-time.Microsecond), k.Key, 60)
	w.flush(n, midnight.Add(-12*time.Hour), k.Key, 20)
	w.fold()
	rows, err := w.db.Query(t.Context(), "SELECT day::text, used FROM weir.history WHERE key = $1 ORDER BY day", k.Key)
	require.NoError(t, err)
	var got []string
	for rows.Next() {
		var day string
		var used int64
		require.NoError(t, rows.Scan(&day, &used))
		got = append(got, fmt.Sprint(day, " ", used))
	}
	require.NoError(t, rows.Err())
	require.Equal(t, []string{"2026-03-10 60", "2026-03-11 40"}, got)
	w.sound()
}

// Failure 12: the total is read from totals and inbox in one statement, so no fold falls between them.
func TestNoFoldFallsBetweenTotalsAndInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	sender, reader := w.node(), w.node()
	k := w.key("acme", "events", noon)
	w.subscribe("other", "open", noon, noon.AddDate(0, 1, 0), noon)
	ctx, stop := context.WithCancel(t.Context())
	var folders sync.WaitGroup
	folders.Go(func() {
		for ctx.Err() == nil {
			_, err := usage.Fold(context.Background(), w.db, 3)
			assertNoError(t, err)
		}
	})
	for i := range int64(300) {
		w.flush(sender, noon, k.Key, i+1)
		b, err := usage.Flush(t.Context(), w.db, usage.Batch{Node: reader, At: noon, Sealed: noon, Watch: []int64{k.Key}})
		require.NoError(t, err)
		require.Equal(t, i+1, b.Figures[0].Others)
		totals, err := usage.Totals(t.Context(), w.db, "acme", time.Time{})
		require.NoError(t, err)
		require.Equal(t, i+1, totals[0].Used)
		keys, err := usage.Load(t.Context(), w.db, reader, []int64{k.AccountID}, noon)
		require.NoError(t, err)
		require.Equal(t, i+1, keys[0].Others)
	}
	stop()
	folders.Wait()
}

// Case 26: 12,000 keys in one batch, more than one statement takes.
func TestABatchOfTwelveThousandKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	keys := w.cheapKeys(12_000)
	a := w.flush(n, noon, pairs(keys, 3)...)
	require.Len(t, a.Figures, 12_000)
	require.EqualValues(t, 1, a.Heartbeat, "one heartbeat")
	w.fold()
	require.EqualValues(t, 36_000, w.number("SELECT sum(used) FROM weir.totals"))
	a = w.flush(n, noon)
	require.EqualValues(t, 2, a.Heartbeat)
	w.sound()
}

// cheapKeys makes keys of accounts without going through a contact for each.
func (w *world) cheapKeys(n int) []int64 {
	w.Helper()
	k := w.key("model", "events", noon)
	w.exec("INSERT INTO weir.accounts (account, created_at) SELECT 'cheap ' || i, $2 FROM generate_series(1, $1::bigint) i", n-1, noon)
	w.exec(`INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, created_at)
		SELECT a.id, p.starts, p.ends, p.planned, p.plan, p.catalog, p.source, p.created_at FROM weir.accounts a, weir.periods p
		WHERE p.id = $1 AND a.account LIKE 'cheap %'`, k.PeriodID)
	w.exec(`INSERT INTO weir.keys (account_id, period_id, feature_id, included, maximum, highest_maximum, on_exceeded, when_not_billable, when_away, enforce, on_upgrade, early_end, late)
		SELECT p.account_id, p.id, m.feature_id, m.included, m.maximum, m.highest_maximum, m.on_exceeded, m.when_not_billable, m.when_away, m.enforce, m.on_upgrade, m.early_end, m.late
		FROM weir.periods p, weir.keys m WHERE m.key = $1 AND p.starts = $2 AND NOT EXISTS (SELECT FROM weir.keys x WHERE x.period_id = p.id)`, k.Key, k.Starts)
	w.exec("INSERT INTO weir.totals (key) SELECT k.key FROM weir.keys k ON CONFLICT DO NOTHING")
	w.exec("INSERT INTO weir.quotas (key, ceiling) SELECT k.key, 100 FROM weir.keys k ON CONFLICT DO NOTHING")
	return numbers(w, w.db, `SELECT k.key FROM weir.keys k JOIN weir.accounts a ON a.id = k.account_id JOIN weir.periods p ON p.id = k.period_id
		WHERE p.starts = $1 AND (a.account LIKE 'cheap %' OR a.account = 'model') ORDER BY 1`, k.Starts)
}

// A node that is frozen inside its transaction holds up no other node and no fold.
func TestANodeFrozenInItsFlushBlocksNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	frozen, other := w.node(), w.node()
	keys := w.manyKeys(4)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = usage.Flush(t.Context(), tx, usage.Batch{Node: frozen, Keys: keys, Upto: []int64{9, 9, 9, 9}, At: noon, Sealed: noon, Held: keys})
	require.NoError(t, err)

	for i := range int64(20) {
		w.flush(other, noon, pairs(keys, i+1)...)
		w.ask(other, usage.LeaseCall{Key: keys[0], Ver: i, Units: 1, Want: 1, Waiting: 1})
		w.fold()
	}
	require.EqualValues(t, 20, w.total(keys[0]).Used)
	require.NoError(t, tx.Commit(t.Context()), "it wakes up")
	w.fold()
	require.EqualValues(t, 29, w.total(keys[0]).Used)
}

// Case 26: the same keys in opposite order, 1,000 flushes, folds beside them: no deadlock, equal totals.
func TestFlushesInOppositeOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.manyKeys(40)
	back := slices.Clone(keys)
	slices.Reverse(back)
	ctx, stop := context.WithCancel(t.Context())
	var folders, senders sync.WaitGroup
	folders.Go(func() {
		for ctx.Err() == nil {
			_, err := usage.Fold(context.Background(), w.db, 500)
			assertNoError(t, err)
		}
	})
	for i := range 4 {
		n := w.node()
		order := keys
		if i%2 == 1 {
			order = back
		}
		senders.Go(func() {
			for r := range int64(250) {
				_, err := usage.Flush(context.Background(), w.db, usage.Batch{Node: n, Keys: order, Upto: slices.Repeat([]int64{r + 1}, len(keys)), At: noon, Sealed: noon})
				if !assertNoError(t, err) {
					return
				}
			}
		})
	}
	senders.Wait()
	stop()
	folders.Wait()
	w.fold()
	for _, k := range keys {
		require.EqualValues(t, 1000, w.total(k).Used)
	}
	w.sound()
}

// A chunk that takes fewer rows than it may has taken all that was committed when it began, wherever it started.
func TestChunksGoRound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	keys := w.manyKeys(10)
	w.flush(n, noon, pairs(keys, 1)...)
	took := func(most int) int64 {
		got, err := usage.Fold(t.Context(), w.db, most)
		require.NoError(t, err)
		return got
	}
	require.EqualValues(t, 7, took(7))
	w.flush(n, noon, pairs(keys[:2], 2)...)
	require.EqualValues(t, 5, took(7), "three left, and two before them")
	require.EqualValues(t, 0, took(7))
	require.EqualValues(t, 12, w.number("SELECT sum(used) FROM weir.totals"))
	require.EqualValues(t, 12, w.number("SELECT folded FROM weir.fold"))
	w.sound()
}

// A database that lost commits shows an older heartbeat, or no node at all.
func TestAFailoverShowsInTheHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	for i := range int64(3) {
		require.Equal(t, i+1, w.flush(n, noon).Heartbeat)
	}
	w.exec("UPDATE weir.nodes SET heartbeat = 1 WHERE id = $1", n)
	require.EqualValues(t, 2, w.flush(n, noon).Heartbeat)
	w.exec("DELETE FROM weir.nodes WHERE id = $1", n)
	a := w.flush(n, noon)
	require.False(t, a.Live)
	require.Empty(t, a.State)
	require.Zero(t, a.Heartbeat)
}

// A tidied inbox takes as many rows again without growing.
func TestATidiedInboxDoesNotGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := w.cheapKeys(2000)
	n := w.node()
	var sizes []int64
	for round := range int64(3) {
		for part := range int64(4) {
			w.flush(n, noon, pairs(keys, 4*round+part+1)...)
		}
		sizes = append(sizes, w.number("SELECT pg_relation_size('weir.inbox')"))
		w.fold()
		require.NoError(t, usage.TidyInbox(t.Context(), w.db))
	}
	require.Positive(t, sizes[0])
	require.Equal(t, []int64{sizes[0], sizes[0], sizes[0]}, sizes)
}

// Who tidies waits for nobody: four jobs that waited behind a long index build would be all that fold.
func TestTidyingWaitsForNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.key("acme", "events", noon)
	w.flush(w.node(), noon, k.Key, 5)
	for _, mode := range []string{"SHARE UPDATE EXCLUSIVE", "SHARE"} { // as a vacuum or an analyze holds it, and an index build
		tx, err := w.session().Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), "LOCK TABLE weir.inbox IN "+mode+" MODE")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		require.NoError(t, usage.TidyInbox(ctx, w.db), mode)
		cancel()
		require.NoError(t, tx.Rollback(t.Context()))
	}
	w.fold()
	require.EqualValues(t, 5, w.total(k.Key).Used)
}

// A role without the right to it leaves the inbox to autovacuum.
func TestARoleWithoutTheRightLeavesTheInboxToAutovacuum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.session()
	role := fmt.Sprintf("weir_tidy_%d", w.number("SELECT oid::bigint FROM pg_database WHERE datname = current_database()"))
	for _, sql := range []string{"CREATE ROLE " + role, "GRANT USAGE ON SCHEMA weir TO " + role, "SET ROLE " + role} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.NoError(t, usage.TidyInbox(t.Context(), conn))
	for _, sql := range []string{"RESET ROLE", "DROP OWNED BY " + role, "DROP ROLE " + role} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}
