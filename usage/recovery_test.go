package usage_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// Failure 10: recovery stores the usage before it returns the lease, in one transaction.
func TestRecoveryStoresUsageFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead, other := w.node(), w.node()
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 90, w.ask(dead, call(k, 0, 90)).Got)
	w.flush(dead, noon, k.Key, 20) // 40 more are only in its journal
	n, err := usage.RecoverNode(t.Context(), w.db, dead, []usage.Recovered{{Key: k.Key, Upto: 60, Matches: fits}}, noon)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "recovered", w.state(dead))
	require.Equal(t, total{Used: 60, Free: 60}, w.total(k.Key))
	_, granted := w.quota(k.Key)
	require.EqualValues(t, 60, granted)
	require.Zero(t, w.overshoots())
	require.EqualValues(t, 40, w.ask(other, call(k, 0, 40)).Got, "what it held is there for others")
	require.EqualValues(t, 0, *w.ask(other, call(k, 1, 1)).Bound)
	n, err = usage.RecoverNode(t.Context(), w.db, dead, []usage.Recovered{{Key: k.Key, Upto: 60, Matches: fits}}, noon)
	require.NoError(t, err, "again")
	require.Zero(t, n)
	w.sound()
}

func TestAJournalAddsUpItsSlotsAndParksWhatIsForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.node()
	k, other := w.key("acme", "events", noon), w.key("other", "events", noon)
	entries := []usage.Recovered{
		{Key: k.Key, Upto: 10, Matches: fits},
		{Key: k.Key, Upto: 5, Matches: fits},
		{Key: k.Key, Upto: -1, Matches: fits},
		{Key: 987_654, Upto: 4, Matches: fits},
		{Key: other.Key, Upto: 3, Matches: func(account, feature string, starts time.Time) bool {
			require.Equal(t, "other events", account+" "+feature)
			require.True(t, starts.Equal(other.Starts))
			return false
		}},
	}
	for range 2 {
		_, err := usage.RecoverNode(t.Context(), w.db, dead, entries, noon)
		require.NoError(t, err)
		w.exec("UPDATE weir.nodes SET state = 'reaped' WHERE id = $1", dead) // as if broken off before the last step
	}
	require.Equal(t, total{Used: 15, Free: 15}, w.total(k.Key))
	require.Equal(t, total{}, w.total(other.Key))
	require.EqualValues(t, 3, w.number("SELECT count(*) FROM weir.inbox_parked"), "each once")
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.inbox_parked WHERE reason LIKE 'the journal''s key%'"))
	_, err := usage.RecoverNode(t.Context(), w.db, 4242, entries, noon)
	require.ErrorIs(t, err, usage.ErrNotFound)
	w.sound()
}

// A crash between the chunks of a recovery: what is left is taken up again and nothing counts twice.
func TestARecoveryThatWasBrokenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.node()
	keys := w.cheapKeys(2500)
	entries := make([]usage.Recovered, len(keys))
	for i, k := range keys {
		entries[i] = usage.Recovered{Key: k, Upto: 7, Matches: fits}
	}
	for i := 0; i < len(keys); i += 500 {
		calls := make([]usage.LeaseCall, 500)
		for j := range calls {
			calls[j] = usage.LeaseCall{Key: keys[i+j], Units: 9, Want: 9, Waiting: 9}
		}
		_, err := usage.Ask(t.Context(), w.db, dead, true, calls)
		require.NoError(t, err)
	}
	require.NoError(t, usage.Settle(t.Context(), w.db, dead, keys[:1000], pairsUpto(1000, 7), noon, "recovery"))
	require.EqualValues(t, 1000*7+1500*9, w.number("SELECT sum(granted) FROM weir.quotas"))
	w.sound()
	for range 2 {
		_, err := usage.RecoverNode(t.Context(), w.db, dead, entries, noon)
		require.NoError(t, err)
		require.EqualValues(t, 2500*7, w.number("SELECT sum(granted) FROM weir.quotas"))
		require.EqualValues(t, 2500*7, w.number("SELECT sum(used) FROM weir.totals"))
		w.sound()
	}
	require.Zero(t, w.overshoots())
}

// breaking fails at the n-th of the statements that pass it, before the database has heard of it or after.
type breaking struct {
	usage.DB
	left  int
	after bool
}

var errCutOff = errors.New("cut off")

func (b *breaking) breaks() bool { b.left--; return b.left < 0 }

func (b *breaking) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	broken := b.breaks()
	if broken && !b.after {
		return pgconn.CommandTag{}, errCutOff
	}
	tag, err := b.DB.Exec(ctx, sql, args...)
	if broken {
		err = errCutOff
	}
	return tag, err
}

func (b *breaking) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if b.breaks() {
		return nil, errCutOff
	}
	return b.DB.Query(ctx, sql, args...)
}

func (b *breaking) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	broken := b.breaks()
	if broken && !b.after {
		return cutRow{}
	}
	row := b.DB.QueryRow(ctx, sql, args...)
	if broken {
		return cutRow{row}
	}
	return row
}

type cutRow struct{ pgx.Row }

func (r cutRow) Scan(...any) error {
	if r.Row != nil {
		var none any
		_ = r.Row.Scan(&none) // carried out, the answer lost
	}
	return errCutOff
}

// A recovery that is cut off at each of its statements in turn, and begun anew with another one ahead of it: nothing is
// lost, nothing is counted twice, and no unit is granted again before its usage is stored.
func TestARecoveryThatIsCutOffAtEachStatement(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		w := newWorld(t)
		dead := w.node()
		keys := w.cheapKeys(1500)
		var entries []usage.Recovered
		var calls []usage.LeaseCall
		var told []int64
		for i, k := range keys {
			if i < 1100 { // it counted under the others without a lease, or not at all
				calls = append(calls, usage.LeaseCall{Key: k, Units: 9, Want: 9, Waiting: 9})
			}
			if i%3 == 0 {
				told = append(told, k, 4)
			}
			if i%5 != 0 {
				entries = append(entries, usage.Recovered{Key: k, Upto: 3, Matches: fits}, usage.Recovered{Key: k, Upto: 4, Matches: fits})
			}
		}
		_, err := usage.Ask(t.Context(), w.db, dead, true, calls)
		require.NoError(t, err)
		w.flush(dead, noon, told...)
		entries = append(entries, usage.Recovered{Key: 1 << 50, Upto: 4, Matches: fits})
		used := int64(0)
		for i := range keys {
			if i%5 != 0 {
				used += 7
			} else if i%3 == 0 {
				used += 4
			}
		}
		cuts := 0
		for ; ; cuts++ {
			_, err := usage.RecoverNode(t.Context(), &breaking{DB: w.db, left: cuts, after: after}, dead, entries, noon)
			if err == nil {
				break
			}
			require.ErrorIs(t, err, errCutOff)
			require.Less(t, cuts, 100)
			w.none("no unit is granted again before its usage is stored", `SELECT l.key, l.lim, d.used FROM weir.leases l
				LEFT JOIN weir.done d ON d.key = l.key AND d.node = l.node WHERE l.node = $1 AND l.lim < 7 AND l.key = ANY ($2)`, dead, journaled(entries))
			if cuts == 3 {
				w.fold()
			}
		}
		require.GreaterOrEqual(t, cuts, 7)
		require.Equal(t, "recovered", w.state(dead))
		require.Equal(t, used, w.number("SELECT sum(used)::bigint FROM weir.totals"))
		require.Equal(t, used, w.number("SELECT sum(granted)::bigint FROM weir.quotas"))
		require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.inbox_parked"))
		require.Positive(t, w.number("SELECT heartbeat FROM weir.nodes WHERE id = $1", dead), "workers see that it goes on")
		w.sound()
	}
}

// beside runs something before each statement that passes it.
type beside struct {
	usage.DB
	run func(sql string)
}

func (b *beside) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	b.run(sql)
	return b.DB.Exec(ctx, sql, args...)
}

func (b *beside) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	b.run(sql)
	return b.DB.QueryRow(ctx, sql, args...)
}

// A worker decides to reap at the moment at which a process begins to recover the node's journal, or comes back to a
// reaping of which it does not know that a recovery overtook it: it returns nothing that the journal accounts for.
func TestAReaperWhoseNumberIsOldLeavesARecoveryAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.node()
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 90, w.ask(dead, call(k, 0, 90)).Got)
	nodes, err := usage.Nodes(t.Context(), w.db)
	require.NoError(t, err)
	looks := 0
	db := &beside{DB: w.db, run: func(string) {
		if looks++; looks <= 2 {
			return // it reads the state, and moves it
		}
		ok, err := usage.Reap(t.Context(), w.db, dead, nodes[0].Heartbeat)
		require.NoError(t, err)
		require.False(t, ok)
	}}
	_, err = usage.RecoverNode(t.Context(), db, dead, []usage.Recovered{{Key: k.Key, Upto: 60, Matches: fits}}, noon)
	require.NoError(t, err)
	require.Greater(t, looks, 4)
	require.Equal(t, "recovered", w.state(dead))
	require.Zero(t, w.overshoots())
	w.sound()
}

// A journal comes back while its node is being reaped: what was not returned yet is not any more.
func TestARecoveryEndsAReapingThatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dead := w.node()
	keys := w.cheapKeys(900)
	var calls []usage.LeaseCall
	var entries []usage.Recovered
	for _, k := range keys {
		calls = append(calls, usage.LeaseCall{Key: k, Units: 9, Want: 9, Waiting: 9})
		entries = append(entries, usage.Recovered{Key: k, Upto: 7, Matches: fits})
	}
	_, err := usage.Ask(t.Context(), w.db, dead, true, calls)
	require.NoError(t, err)
	chunk := "SELECT coalesce(weir.settle_chunk($1, $2, 1000, 'reaped', 0), -1)"
	require.EqualValues(t, 1, w.number("SELECT weir.move_node($1, '{live}', 'reaping', 0)::integer", dead))
	last := w.number(chunk, dead, 0)
	require.Equal(t, keys[499], last)
	db := &beside{DB: w.db, run: func(sql string) {
		if strings.Contains(sql, "settle_node") {
			require.EqualValues(t, -1, w.number(chunk, dead, last), "the reaper's next part")
		}
	}}
	_, err = usage.RecoverNode(t.Context(), db, dead, entries, noon)
	require.NoError(t, err)
	require.Equal(t, "recovered", w.state(dead))
	require.EqualValues(t, 500*7, w.overshoots(), "of the first chunk")
	require.EqualValues(t, 900*7, w.number("SELECT sum(granted)::bigint FROM weir.quotas"))
	w.sound()
}

func journaled(entries []usage.Recovered) []int64 {
	var keys []int64
	for _, x := range entries {
		keys = append(keys, x.Key)
	}
	return keys
}

func pairsUpto(n int, upto int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = upto
	}
	return out
}
