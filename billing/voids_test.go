package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// voids makes n periods of a key's account that are found wrong, one after the other; the key's own is the true one.
func (w *world) voids(key int64, n int) {
	w.Helper()
	w.exec(`WITH made AS (
			INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, created_at)
			SELECT p.account_id, p.ends + g * interval '1 day', p.ends + (g + 1) * interval '1 day', p.ends + (g + 1) * interval '1 day', p.plan, p.catalog, 'subscription', $2
			FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id, generate_series(1000, 999 + $3::integer) g WHERE k.key = $1 RETURNING id)
		SELECT weir.copy_terms(array_agg(m.id), '{}', '{}', NULL) FROM made m`, key, w.sim.Now(), n)
	w.exec(`SELECT weir.void_period(p.id, k.period_id, $2) FROM weir.periods p JOIN weir.keys k ON k.key = $1 AND k.account_id = p.account_id
		WHERE p.starts > $2::timestamptz + interval '999 days'`, key, w.sim.Now())
	require.EqualValues(w, n, w.number("SELECT count(*) FROM weir.periods WHERE state = 'void'"))
	w.exec("ANALYZE")
}

// A close costs nothing for periods that were found wrong and are done with, and what is counted under one of them since
// is found without the others, whenever no period ends.
func TestAVoidPeriodCostsNothingUntilSomethingIsCountedInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.voids(key, 1000)
	w.exec("CREATE TABLE moment AS SELECT $1::timestamptz AS now", w.sim.Now())
	const pass = "SELECT weir.finish_these('{}', m.now) FROM moment m"
	require.Less(t, w.buffers(pass, 1), int64(100))
	late := w.number("SELECT max(k.key) FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id AND p.state = 'void'")
	w.node.used[late] = 7
	w.node.flush(late)
	w.fold()
	touched := w.buffers(pass, 1)
	t.Logf("%d pages touched", touched)
	require.Less(t, touched, int64(600))
	require.Equal(t, "1000 47", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
	require.Less(t, w.buffers(pass, 1), int64(100))
	// A worker is told of it by itself, and again for each batch.
	w.node.used[late] = 12
	w.node.flush(late)
	w.fold()
	due, err := w.b.Due(t.Context())
	require.NoError(t, err)
	require.True(t, due.Close)
	w.work()
	require.Equal(t, "1000 52", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
	due, err = w.b.Due(t.Context())
	require.NoError(t, err)
	require.False(t, due.Close)
}

// Where the true period turns out wrong too, what is counted under the first one goes to the true one of both.
func TestUnitsOfAVoidPeriodGoToTheTrueOneOfAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.voids(key, 2)
	w.exec(`UPDATE weir.periods p SET state = 'open', cut = NULL, replaced_by = NULL WHERE p.id = (SELECT min(x.id) FROM weir.periods x WHERE x.state = 'void')`)
	first := w.number("SELECT k.key FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id AND p.state = 'void'")
	w.exec(`WITH p AS (SELECT max(id) FILTER (WHERE state = 'void') AS first, max(id) FILTER (WHERE state = 'open' AND starts > $1::timestamptz + interval '999 days') AS second FROM weir.periods)
		SELECT weir.void_period(p.first, p.second, $1) FROM p`, w.sim.Now())
	w.exec(`SELECT weir.void_period(v.replaced_by, k.period_id, $2) FROM weir.keys k, weir.periods v WHERE k.key = $1 AND v.state = 'void'`, key, w.sim.Now())
	w.node.used[first] = 7
	w.node.flush(first)
	w.fold()
	w.exec("SELECT weir.finish_these('{}', $1)", w.sim.Now())
	require.Equal(t, "1000 47", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
}
