package usage_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

func (w *world) lim(node, key int64) int64 {
	w.Helper()
	return w.number("SELECT coalesce((SELECT lim FROM weir.leases WHERE node = $1 AND key = $2), 0)", node, key)
}

func (w *world) state(node int64) string {
	w.Helper()
	s, err := usage.NodeState(w.Context(), w.db, node)
	require.NoError(w, err)
	return s
}

func (w *world) overshoots() int64 {
	w.Helper()
	return w.number("SELECT coalesce(sum(units), 0)::bigint FROM weir.overshoots")
}

func fits(string, string, time.Time) bool { return true }

func TestRetireMovesWhatANodeUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.key("acme", "events", noon)
	for i := range int64(3) {
		n := w.node()
		require.EqualValues(t, 10, w.ask(n, usage.LeaseCall{Key: k.Key, Units: 10, Want: 10, Waiting: 10}).Got)
		w.flush(n, noon, k.Key, 10)
		ok, err := usage.Retire(t.Context(), w.db, n)
		require.NoError(t, err)
		require.True(t, ok, "nothing to do for a live node")
		require.Equal(t, "live", w.state(n))
		require.NoError(t, usage.Settle(t.Context(), w.db, n, []int64{k.Key}, []int64{10}, noon, "stop"))
		_, err = usage.MoveNode(t.Context(), w.db, n, "live", "stopped")
		require.NoError(t, err)
		ok, err = usage.Retire(t.Context(), w.db, n)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "retired", w.state(n))
		require.Equal(t, (i+1)*10, w.lim(-1, k.Key))
		require.Equal(t, (i+1)*10, w.number("SELECT used FROM weir.done WHERE node = -1 AND key = $1", k.Key))
		require.Zero(t, w.number("SELECT count(*) FROM weir.leases WHERE node = $1", n))
		_, granted := w.quota(k.Key)
		require.Equal(t, (i+1)*10, granted)
		w.sound()
	}
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.leases"), "the rows of dead nodes do not add up")
}

func TestRetireWaitsForTheFold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.flush(n, noon, k.Key, 10)
	_, err := usage.MoveNode(t.Context(), w.db, n, "live", "stopped")
	require.NoError(t, err)
	ok, err := usage.Retire(t.Context(), w.db, n)
	require.NoError(t, err)
	require.False(t, ok)
	w.fold()
	ok, err = usage.Retire(t.Context(), w.db, n)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 10, w.total(k.Key).Used)
	w.sound()
}

// A batch of a node that commits while, or after, the node is retired is a repetition: it is parked, never counted.
func TestARepeatedBatchOfARetiredNodeCountsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	keys := w.cheapKeys(1500)
	w.flush(n, noon, pairs(keys, 4)...)
	w.fold()
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "INSERT INTO weir.inbox (node, key, upto, at) SELECT $1, unnest($2::bigint[]), 4, $3", n, keys, noon)
	require.NoError(t, err)
	_, err = usage.MoveNode(t.Context(), w.db, n, "live", "stopped")
	require.NoError(t, err)
	require.EqualValues(t, "more", text(w, "SELECT weir.retire_chunk($1, 1000)", n), "broken off after a chunk")
	require.Equal(t, "retiring", w.state(n))
	require.NoError(t, tx.Commit(t.Context()))
	w.fold()
	ok, err := usage.Retire(t.Context(), w.db, n)
	require.NoError(t, err)
	require.True(t, ok)
	w.flush(n, noon, pairs(keys[:2], 4)...)
	w.fold()
	require.EqualValues(t, 6000, w.number("SELECT sum(used) FROM weir.totals"))
	require.EqualValues(t, 1502, w.number("SELECT count(*) FROM weir.inbox_parked"))
	w.sound()
}

func text(w *world, sql string, args ...any) string {
	w.Helper()
	var s string
	require.NoError(w, w.db.QueryRow(w.Context(), sql, args...).Scan(&s))
	return s
}

func TestGiveUpFoldsWhatWasSentAndParksTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 40))
	ok, err := usage.GiveUp(t.Context(), w.db, n)
	require.NoError(t, err)
	require.False(t, ok, "only a reaped node")
	_, err = usage.Reap(t.Context(), w.db, n, 0)
	require.NoError(t, err)
	w.flush(n, noon, k.Key, 9)
	ok, err = usage.GiveUp(t.Context(), w.db, n)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 9, w.total(k.Key).Used)
	w.flush(n, noon, k.Key, 11)
	w.fold()
	for range 2 {
		_, err = usage.RecoverNode(t.Context(), w.db, n, []usage.Recovered{{Key: k.Key, Upto: 12, Matches: fits}}, noon)
		require.NoError(t, err)
	}
	require.EqualValues(t, 9, w.total(k.Key).Used)
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.inbox_parked"))
	ok, err = usage.Retire(t.Context(), w.db, n)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "given_up", w.state(n))
	require.EqualValues(t, 9, w.lim(-1, k.Key))
	w.sound()
}

// A clean stop and a settle at any moment may be repeated.
func TestSettleIsIdempotent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 1))
	for range 3 {
		require.NoError(t, usage.Settle(t.Context(), w.db, n, []int64{k.Key, 987_654}, []int64{20, 5}, noon, "stop"))
		require.NoError(t, usage.ReturnLeases(t.Context(), w.db, n, "stop"))
		require.EqualValues(t, 20, w.lim(n, k.Key))
		require.EqualValues(t, 20, w.total(k.Key).Used)
		w.sound()
	}
	require.NoError(t, usage.Settle(t.Context(), w.db, n, []int64{k.Key}, []int64{15}, noon, "late"))
	require.EqualValues(t, 20, w.lim(n, k.Key), "lim is the most that was ever told")
	require.EqualValues(t, 3, w.number("SELECT count(*) FROM weir.inbox_parked WHERE reason = 'unknown key'"), "nothing is dropped")
}

// A node that hangs in its transaction cannot be moved, and the reaper is not held up by it.
func TestANodeThatHangsInItsFlushCannotBeMoved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = usage.Flush(t.Context(), tx, usage.Batch{Node: n, At: noon, Sealed: noon})
	require.NoError(t, err)
	_, err = usage.Reap(t.Context(), w.db, n, 0)
	require.ErrorContains(t, err, "lock timeout")
}
