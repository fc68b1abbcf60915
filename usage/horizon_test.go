package usage_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// load is usage that goes on: rounds of batches under the same keys, each folded before the next.
type load struct {
	*world
	nodes, keys []int64
	upto        int64
	every       time.Duration // a round begins each so often at the soonest
}

// round sends a batch of every node and folds it all.
func (l *load) round() {
	l.Helper()
	l.upto++
	for _, n := range l.nodes {
		l.flush(n, noon, pairs(l.keys, l.upto)...)
	}
	l.fold()
}

// rounds runs some and returns the rows per second, pauses apart, and the share of rounds that were over in time.
func (l *load) rounds(n int) (perSecond, inTime float64) {
	l.Helper()
	var busy time.Duration
	for range n {
		began := time.Now()
		l.round()
		took := time.Since(began)
		busy += took
		if took <= l.every {
			inTime++
		}
		if rest := l.every - took; rest > 0 {
			select {
			case <-time.After(rest): // the pace is what is asked for
			case <-l.Context().Done():
			}
		}
	}
	return float64(n*len(l.nodes)*len(l.keys)) / busy.Seconds(), inTime / float64(n)
}

// size is how much the tables of the fold take after a vacuum, indexes included.
func (l *load) size() (tables, inbox int64) {
	l.Helper()
	for _, t := range []string{"inbox", "done", "totals", "history"} {
		l.exec("VACUUM weir." + t)
	}
	const of = "pg_total_relation_size('weir.done') + pg_total_relation_size('weir.totals') + pg_total_relation_size('weir.history')"
	return l.number("SELECT " + of), l.number("SELECT pg_total_relation_size('weir.inbox')")
}

// A transaction that somebody forgot keeps every version of every row. The fold goes on; what it leaves behind is bounded
// by what was folded meanwhile, and used again once the transaction is over. WEIR_CHAOS=1 is the long form: 10,000 rows a
// second for two minutes.
func TestATransactionLeftOpenDoesNotStopTheFold(t *testing.T) {
	t.Parallel()
	l := &load{world: newWorld(t)}
	rounds, nodes, accounts := 8, 4, 250
	if os.Getenv("WEIR_CHAOS") != "" {
		rounds, nodes, accounts, l.every = 120, 4, 2500, time.Second
	}
	l.keys = l.cheapKeys(accounts)
	for range nodes {
		l.nodes = append(l.nodes, l.node())
	}
	before, keptBefore := l.rounds(max(rounds/4, 4))
	small, _ := l.size()

	tx, err := l.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	var seen int64
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT sum(used) FROM weir.totals").Scan(&seen))
	held, keptHeld := l.rounds(rounds)
	large, inbox := l.size()
	var again int64
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT sum(used) FROM weir.totals").Scan(&again))
	require.Equal(t, seen, again, "the transaction reads what it read")
	folded := int64(rounds * len(l.nodes) * len(l.keys))
	require.LessOrEqual(t, large-small, 300*folded, "versions of the rows that were folded, and no more")
	require.LessOrEqual(t, inbox, 300*folded)
	require.NoError(t, tx.Commit(t.Context()))

	after, keptAfter := l.rounds(4)
	_, inbox = l.size()
	require.LessOrEqual(t, inbox, int64(1<<20), "the inbox is empty, and gave its pages back")
	plateau, _ := l.size()
	l.rounds(max(rounds/4, 4))
	end, _ := l.size()
	require.LessOrEqual(t, end, plateau+plateau/10, "what was left behind is used again")
	l.sound()
	require.Equal(t, l.upto*int64(len(l.nodes)*len(l.keys)), l.number("SELECT sum(used) FROM weir.totals"))
	t.Logf("rows/s: %.0f before, %.0f while a transaction was open, %.0f after; rounds in time: %.0f, %.0f, %.0f %%", before, held, after, 100*keptBefore, 100*keptHeld, 100*keptAfter)
	t.Logf("done, totals and history: %d kB before, %d kB with it (%d bytes for each row folded), %d kB after", small>>10, large>>10, (large-small)/folded, end>>10)
}
