package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// scaleOps is what programs ask of the database, about one account, or a few keys of one node.
func scaleOps(w *world, round int) map[string]string {
	k := w.key("one", "events", noon)
	n := w.node()
	stopped := w.node()
	w.ask(n, call(k, 0, 1))
	w.ask(stopped, call(k, 0, 1))
	w.flush(stopped, noon, k.Key, 1)
	w.fold()
	w.exec("UPDATE weir.nodes SET state = 'stopped' WHERE id = $1", stopped)
	keys := numbers(w, w.db, "SELECT key FROM weir.keys ORDER BY key LIMIT 10")
	list := fmt.Sprint("'{", commas(keys), "}'::bigint[]")
	at := "'2026-03-10 12:00+00'::timestamptz"
	f := func(s string, args ...any) string { return fmt.Sprintf(s, args...) }
	return map[string]string{
		"contact, new":   f("SELECT * FROM weir.contact(%d, true, %s, '{new %d}', '{events}', '{1}', '{10}', '{1}')", n, at, round),
		"contact, known": f("SELECT * FROM weir.contact(%d, true, %s, '{one}', '{events}', '{1}', '{10}', '{1}')", n, at),
		"load":           f("SELECT * FROM weir.load(%d, '{%d}', %s)", n, k.AccountID, at),
		"ask":            f("SELECT * FROM weir.lease(%d, true, false, '{%d}', '{1}', '{0}', '{0}', '{1}', '{10}', '{1}')", n, k.Key),
		"ask, refused":   f("SELECT * FROM weir.lease(%d, true, false, '{%d}', '{2}', '{0}', '{0}', '{90}', '{10}', '{1}')", n, k.Key),
		"flush":          f("SELECT * FROM weir.flush(%d, %s, %s, %s, true, %s, 0, '{}', '{}')", n, list, list, at, at),
		"strict":         f("SELECT * FROM weir.consume_strict('one', 'events', 1, 'round %d', true, %s)", round, at),
		"settle":         f("SELECT weir.settle_node(%d, %s, %s, %s, 'x')", n, list, list, at),
		"return leases":  f("SELECT weir.settle_chunk(%d, 0, 10, 'x')", n),
		"retire":         f("SELECT weir.retire_chunk(%d, 10)", stopped),
		"override":       f("SELECT weir.apply_terms(%d, NULL, %s)", k.AccountID, at),
		"adjust":         f("SELECT weir.adjust(%d, 3, 'r', 'a', %s)", k.Key, at),
		"plan change": f("SELECT weir.apply_plan(%d, 'pro', 1, %s, 1, %s, %s + interval '1 month', NULL, NULL, NULL, '{1}', '{}', %s)",
			k.AccountID, at, at, at, at),
		"plan ends": f("SELECT weir.apply_plan(%d, NULL, 1, NULL, 1, NULL, NULL, NULL, NULL, NULL, '{}', '{}', %s + interval '1 hour')", k.AccountID, at),
		"fold":      "SELECT weir.fold_chunk(10)",
		"prune":     f("SELECT weir.prune(%s, 10)", at),
	}
}

// endedPeriods gives accounts a period of an hour that is over, the n-th of that day, with its keys, and returns the
// periods.
func (w *world) endedPeriods(accounts string, n int, state string) []int64 {
	w.Helper()
	var ids []int64
	require.NoError(w, w.db.QueryRow(w.Context(), `WITH made AS (
		INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, state, created_at)
		SELECT a.id, x.at, x.at + interval '1 hour', x.at + interval '1 hour', 'pro', 1, 'calendar', $3, x.at
		FROM weir.accounts a, (SELECT timestamptz '2026-01-01 00:00+00' + make_interval(hours => $2::integer) AS at) x
		WHERE a.account LIKE $1 RETURNING id) SELECT array_agg(m.id) FROM made m`, accounts, n, state).Scan(&ids))
	w.exec("SELECT weir.copy_terms($1::bigint[], '{}', '{}', array_fill(NULL::bigint, ARRAY[cardinality($1::bigint[])]))", ids)
	return ids
}

func commas(n []int64) string {
	s := ""
	for i, x := range n {
		if i > 0 {
			s += ","
		}
		s += itoa(x)
	}
	return s
}

// blocks is how many pages a statement touches, with all that its functions do.
func blocks(w *world, conn *pgx.Conn, sql string) int64 {
	w.Helper()
	var out []byte
	require.NoError(w, conn.QueryRow(w.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql).Scan(&out), sql)
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	require.NoError(w, json.Unmarshal(out, &plans))
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// crowd makes many accounts with two periods each, three nodes that hold leases of all of them, usage that is folded,
// and 30,000 rows that are not.
func (w *world) crowd(accounts int) {
	w.Helper()
	keys := w.cheapKeys(accounts)
	for range 3 {
		n := w.node()
		w.exec("INSERT INTO weir.leases (key, node, ver, lim) SELECT unnest($1::bigint[]), $2, 1, 10", keys, n)
		w.exec("INSERT INTO weir.done (key, node, used) SELECT unnest($1::bigint[]), $2, 2", keys, n)
		w.exec("INSERT INTO weir.inbox (key, node, upto, at) SELECT unnest($1::bigint[]), $2, 4, $3", keys, n, noon)
	}
	w.exec("UPDATE weir.quotas q SET granted = 30 FROM unnest($1::bigint[]) k WHERE q.key = k", keys)
	w.exec("UPDATE weir.totals t SET used = 6, free = 6 FROM unnest($1::bigint[]) k WHERE t.key = k", keys)
	w.exec("INSERT INTO weir.history (key, day, used) SELECT unnest($1::bigint[]), '2026-03-10', 6", keys)
	w.exec(`INSERT INTO weir.consumed_once (account_id, idem, key, feature_id, units, answer, at)
		SELECT a.id, 'k', 1, 1, 1, '{}', $1 FROM weir.accounts a`, noon)
	w.exec("INSERT INTO weir.inbox_parked (node, key, upto, at, reason) SELECT 1, i, 1, $1, 'r' FROM generate_series(1, 10000) i", noon)
	w.exec("INSERT INTO weir.change_log (number, account_id) SELECT -i, 1 FROM generate_series(1, 10000) i")
}

// Failure 13: plans that were cached on empty tables must not scan them later. What a call costs does not grow with the
// number of accounts, neither for a session that is older than the data nor for a new one.
func TestCostDoesNotGrowWithTheTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.session()
	small := make(map[string]int64)
	for round := range 7 { // the first six make the plan cache decide
		ops := scaleOps(w, round)
		for _, name := range slices.Sorted(maps.Keys(ops)) {
			if got := blocks(w, old, ops[name]); round > 0 {
				small[name] = max(small[name], got)
			}
		}
	}
	w.crowd(10_000)
	for i, conn := range []*pgx.Conn{old, w.session(), w.analyzed()} {
		for _, sql := range scaleOps(w, 100+i) { // the session reads the system's catalogs
			blocks(w, conn, sql)
		}
		ops := scaleOps(w, 200+i)
		for _, name := range slices.Sorted(maps.Keys(ops)) {
			sql := ops[name]
			got := blocks(w, conn, sql)
			t.Logf("%-15s session %d: %5d pages, %5d with few accounts", name, i, got, small[name])
			require.LessOrEqual(t, got, 3*small[name]+300, "%s in session %d: %d pages with few accounts", name, i, small[name])
		}
	}
}

// What closing a period costs grows neither with the periods that are closed already, nor with the inbox.
func TestClosingDoesNotGrowWithWhatIsClosed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	finish := func(conn *pgx.Conn, accounts string, n int) int64 {
		ids := w.endedPeriods(accounts, n, "closing")
		all := blocks(w, conn, fmt.Sprintf("SELECT weir.finish_these('{%s}', '2026-03-10 12:00+00')", commas(ids)))
		require.Len(t, ids, int(w.number("SELECT count(*) FROM weir.periods p WHERE p.id = ANY ($1) AND p.state = 'closed'", ids)))
		return all / int64(len(ids))
	}
	w.key("one", "events", noon)
	old := w.session()
	for n := range 7 {
		finish(old, "one", n)
	}
	w.crowd(10_000)
	closed := w.endedPeriods("cheap %", 1000, "closing")
	w.exec("ANALYZE")
	w.exec("UPDATE weir.periods SET state = 'closed' WHERE id = ANY ($1)", closed)
	for n, conn := range []*pgx.Conn{old, w.session()} { // the statistics know of none that is closed
		got := finish(conn, "cheap 10%", n)
		t.Logf("session %d: %d pages a period", n, got)
		require.Less(t, got, int64(250))
	}
	require.EqualValues(t, 30_000, w.number("SELECT count(*) FROM weir.inbox"))
}

// What returning a node's leases costs grows with the node's rows alone, and by as much for each: whatever it has
// returned already, used without a lease or still holds.
func TestReturningLeasesLooksAtEachRowOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.session()
	chunk := func(node, after int64) string { // the answer stays in the session
		return fmt.Sprintf("SELECT set_config('weir.last', coalesce(weir.settle_chunk(%d, %d, 100, 'x')::text, ''), false)", node, after)
	}
	for range 7 {
		blocks(w, conn, chunk(1, 0))
	}
	w.crowd(4_000)
	const rows = 4000
	for name, made := range map[string]struct{ lease, tight, done string }{
		"all are to return":            {"true", "false", "true"},
		"the last one is to return":    {"true", "x.i < 4000", "true"},
		"every other one has no lease": {"x.i % 2 = 0", "true", "true"},
		"used and leased by halves":    {"x.i > 1500", "false", "x.i < 2500"},
	} {
		n := w.node()
		w.exec(`INSERT INTO weir.leases (key, node, ver, lim, tight) SELECT x.key, $1, 1, CASE WHEN `+made.tight+` THEN 2 ELSE 9 END, `+made.tight+`
			FROM (SELECT q.key, row_number() OVER (ORDER BY q.key) AS i FROM weir.quotas q WHERE q.granted >= 30) x WHERE `+made.lease, n)
		w.exec(`INSERT INTO weir.done (key, node, used) SELECT x.key, $1, 2
			FROM (SELECT q.key, row_number() OVER (ORDER BY q.key) AS i FROM weir.quotas q WHERE q.granted >= 30) x WHERE `+made.done, n)
		w.exec("UPDATE weir.quotas q SET granted = q.granted + l.lim FROM weir.leases l WHERE l.key = q.key AND l.node = $1", n)
		all, worst, calls := int64(0), int64(0), 0
		for last := "0"; last != ""; calls++ {
			require.Less(t, calls, 200, name)
			after, err := strconv.ParseInt(last, 10, 64)
			require.NoError(t, err)
			got := blocks(w, conn, chunk(n, after))
			all, worst = all+got, max(worst, got)
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting('weir.last')").Scan(&last))
		}
		t.Logf("%s: %d pages a row, %d in one of %d calls", name, all/rows, worst, calls)
		require.Less(t, all/rows, int64(70), name)
		require.Less(t, worst, int64(20_000), name)
		w.none(name, `SELECT l.key, l.lim, l.tight, d.used FROM weir.leases l LEFT JOIN weir.done d ON d.key = l.key AND d.node = l.node
			WHERE l.node = $1 AND (NOT l.tight OR l.lim <> coalesce(d.used, 0))`, n)
		w.none(name, "SELECT d.key FROM weir.done d WHERE d.node = $1 AND (SELECT l.key FROM weir.leases l WHERE l.key = d.key AND l.node = d.node) IS NULL", n)
	}
}

// A session whose plans were made while the tables were empty, and that nothing made look again since: each row of a
// large batch costs it a handful of pages.
func TestPlansOfEmptyTablesServeLargeBatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.session()
	f := fmt.Sprintf
	const at = "'2026-03-10 12:00+00'::timestamptz"
	flush := func(node int64, keys []int64, upto int) string {
		list := f("'{%s}'::bigint[]", commas(keys))
		return f("SELECT * FROM weir.flush(%d, %s, array_fill(%d::bigint, ARRAY[%d]), %s, true, %s, 0, '{}', '{}')", node, list, upto, len(keys), at, at)
	}
	contact := func(node int64, prefix string, accounts int) string {
		return f(`SELECT * FROM weir.contact(%d, true, %s, (SELECT array_agg('%s ' || i) FROM generate_series(1, %[4]d) i), array_fill('events'::text, ARRAY[%[4]d]),
			array_fill(1::bigint, ARRAY[%[4]d]), array_fill(10::bigint, ARRAY[%[4]d]), array_fill(1::bigint, ARRAY[%[4]d]))`, node, at, prefix, accounts)
	}
	const fold = "SELECT weir.fold_chunk(5000)"
	nodes := []int64{w.node(), w.node(), w.node(), w.node()}
	w.exec("SELECT weir.fold_chunk(1)")
	first := w.key("one", "events", noon)
	for round := range 7 {
		blocks(w, conn, contact(nodes[0], f("early %d", round), 1))
		blocks(w, conn, flush(nodes[0], []int64{first.Key}, round+1))
		blocks(w, conn, fold)
	}
	const accounts = 1000
	took := map[string]int64{"contact": blocks(w, conn, contact(nodes[0], "late", accounts)) / accounts}
	keys := numbers(w, w.db, `SELECT k.key FROM weir.keys k JOIN weir.accounts a ON a.id = k.account_id JOIN weir.periods p ON p.id = k.period_id
		WHERE a.account LIKE 'late %' AND p.starts <= $1 AND $1 < p.ends ORDER BY 1`, noon)
	require.Len(t, keys, accounts)
	for round := range 3 {
		for _, n := range nodes {
			took["flush"] = max(took["flush"], blocks(w, conn, flush(n, keys, 10*(round+1)))/accounts)
		}
		took["fold"] = max(took["fold"], blocks(w, conn, fold)/int64(accounts*len(nodes)))
	}
	t.Logf("pages a row: %v", took)
	require.LessOrEqual(t, took["contact"], int64(600))
	require.LessOrEqual(t, took["flush"], int64(24))
	require.LessOrEqual(t, took["fold"], int64(40))
	w.sound()
}

func (w *world) session() *pgx.Conn {
	w.Helper()
	conn, err := pgx.ConnectConfig(w.Context(), w.db.Config().ConnConfig)
	require.NoError(w, err)
	w.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (w *world) analyzed() *pgx.Conn {
	w.exec("ANALYZE")
	return w.session()
}

// The pages' own queries, on the same crowd.
func TestReadsDoNotScan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.crowd(10_000)
	w.exec("ANALYZE")
	conn := w.session()
	totals, err := usage.Totals(t.Context(), conn, "cheap 77", noon.AddDate(0, -3, 0))
	require.NoError(t, err)
	require.Len(t, totals, 1)
	require.EqualValues(t, 12, totals[0].Used, "6 folded, 2 more of each node in the inbox")
	got := blocks(w, conn, `SELECT k.key, weir.stored(k.key) FROM weir.accounts a JOIN weir.periods p ON p.account_id = a.id
		JOIN weir.keys k ON k.period_id = p.id WHERE a.account = 'cheap 77'`)
	require.Less(t, got, int64(300))
}
