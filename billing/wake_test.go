package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What makes books again is what moved since they were made: a look costs nothing for the closed periods of others, and
// a worker is told at once.
func TestBooksAreMadeAgainForWhatMovedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.toEnd()
	w.finish()
	w.exec(`WITH made AS (
			INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, state, closed_at, created_at)
			SELECT p.account_id, p.starts - g * interval '1 day', p.starts - (g - 1) * interval '1 day', p.ends, p.plan, p.catalog, 'subscription', 'closed', p.closed_at, $2
			FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id, generate_series(1, 3000) g WHERE k.key = $1 RETURNING id)
		SELECT weir.copy_terms(array_agg(m.id), '{}', (SELECT array_agg(f.id) FROM weir.features f), NULL) FROM made m`, key, w.sim.Now())
	w.exec("SELECT weir.book(ARRAY(SELECT k.key FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE p.state = 'closed'), $1)", w.sim.Now())
	require.Greater(t, w.number("SELECT count(*) FROM weir.books"), int64(3000))
	w.exec("ANALYZE")
	require.Less(t, w.buffers("SELECT key FROM weir.moved ORDER BY key LIMIT 1000", 0), int64(10))
	require.Less(t, w.buffers("SELECT period_id FROM weir.closing_due('"+w.sim.Now().Format(time.RFC3339)+"')", 0), int64(100))
	due, err := w.b.Due(t.Context())
	require.NoError(t, err)
	require.False(t, due.Report)
	slow := w.newNode()
	slow.used[key] = 7
	slow.flush(key)
	w.fold()
	due, err = w.b.Due(t.Context())
	require.NoError(t, err)
	require.True(t, due.Report, "the hour is not waited for")
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.moved"))
	require.NoError(t, w.b.Report(t.Context()))
	require.Equal(t, book{Overage: 47, Invoiced: 40, Late: 7}, w.book(key))
	due, err = w.b.Due(t.Context())
	require.NoError(t, err)
	require.False(t, due.Report)
}

// A period that waits for a node is reported 45 minutes after its end by a worker that does what is due and no more,
// whenever the last hourly pass was.
func TestAPeriodThatWaitsIsDueBeforeItsDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	w.newNode() // and it never seals
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Second), 30*time.Minute)
	require.EqualValues(t, 40, w.reported(customer))
	w.exec("UPDATE weir.billing SET planned_at = $1", w.sim.Now())
	w.node.used[key] += 5
	w.node.flush(key)
	w.fold()
	report := func(after time.Duration) bool {
		require.NoError(t, w.sim.Advance(t.Context(), end.Add(after)))
		_, err := w.b.Close(t.Context())
		require.NoError(t, err)
		due, err := w.b.Due(t.Context())
		require.NoError(t, err)
		if due.Report {
			require.NoError(t, w.b.Report(t.Context()))
		}
		return due.Report
	}
	report(time.Minute)
	require.False(t, report(44*time.Minute))
	require.True(t, report(46*time.Minute))
	require.EqualValues(t, 45, w.reported(customer))
}

// A close that finds invoices final, in their order, and a pass that plans the same keys, in theirs, do not wait for each
// other.
func TestACloseTakesChainsInTheOrderOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for _, account := range []string{"a", "b", "c", "d", "e", "f"} {
		w.over(account, 40)
	}
	w.toEnd()
	w.advance(start.AddDate(0, 1, 0).Add(4*time.Hour), 20*time.Minute)
	var low, high int64 // the higher key's invoice comes first
	require.NoError(t, w.db.QueryRow(t.Context(), `WITH x AS (SELECT s.key, i.invoice FROM weir.segments s JOIN weir.books b ON b.key = s.key AND b.final JOIN weir.invoices i ON b.final_by = 'invoice ' || i.invoice)
		SELECT l.key, h.key FROM x l JOIN x h ON h.key > l.key AND h.invoice < l.invoice ORDER BY 1, 2 LIMIT 1`).Scan(&low, &high))
	w.exec("UPDATE weir.books SET final = false WHERE key IN ($1, $2)", low, high)
	w.exec("UPDATE weir.periods p SET state = 'closing' FROM weir.keys k WHERE k.period_id = p.id AND k.key IN ($1, $2)", low, high)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	const lock = "SELECT FROM weir.chains WHERE key = $1 FOR UPDATE"
	_, err = tx.Exec(t.Context(), lock, low)
	require.NoError(t, err)
	closed := make(chan error, 1)
	go func() {
		_, err := w.db.Exec(t.Context(), "SELECT weir.finish_these(ARRAY(SELECT k.period_id FROM weir.keys k WHERE k.key IN ($1, $2)), $3)", low, high, w.sim.Now())
		closed <- err
	}()
	require.Eventually(t, func() bool {
		return w.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}, 20*time.Second, 5*time.Millisecond)
	_, err = tx.Exec(t.Context(), lock, high)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-closed)
}
