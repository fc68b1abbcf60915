package web_test

import (
	"fmt"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/books"
)

func listen(t *testing.T, s *http.Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // ends with Close
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

// fill makes accounts of three periods each, with their days, as the functions of the schema would.
func (w *world) fill(accounts int) {
	w.Helper()
	tx, err := w.db.Begin(w.Context())
	require.NoError(w, err)
	defer func() { _ = tx.Rollback(w.Context()) }()
	for _, sql := range []string{
		"SET LOCAL session_replication_role = replica", // no look at each foreign key
		fmt.Sprintf("INSERT INTO weir.accounts (account, created_at) SELECT 'account ' || i, '2026-01-01Z' FROM generate_series(1, %d) i", accounts),
		`INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, state, created_at)
			SELECT a.id, m, m + interval '1 month', m + interval '1 month', 'free', 1, 'calendar', CASE WHEN m < '2026-03-01Z' THEN 'closed' ELSE 'open' END, m
			FROM weir.accounts a, unnest(ARRAY['2026-01-01 00:00Z', '2026-02-01 00:00Z', '2026-03-01 00:00Z']::timestamptz[]) m`,
		`INSERT INTO weir.keys (account_id, period_id, feature_id, included, maximum, highest_maximum, on_exceeded, when_not_billable, when_away, enforce, on_upgrade, early_end, late)
			SELECT p.account_id, p.id, 1, 100, 0, 0, 'block', 'by_cause', 'unavailable', 'leases', 'keep', 'carry', 'hold' FROM weir.periods p`,
		"INSERT INTO weir.totals (key, used, free) SELECT k.key, 50, 50 FROM weir.keys k",
		"INSERT INTO weir.quotas (key, ceiling) SELECT k.key, 100 FROM weir.keys k",
		"INSERT INTO weir.books (key, overage, invoiced, pending, late, forgiven, not_billable, overshoot, final, booked_at) SELECT k.key, 0, 0, 0, 0, 0, 0, 0, true, '2026-03-01Z' FROM weir.keys k WHERE k.period_id % 3 <> 0",
		"INSERT INTO weir.history (key, day, used) SELECT k.key, p.starts::date + d, 5 FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id, generate_series(0, 2) d",
	} {
		_, err := tx.Exec(w.Context(), sql)
		require.NoError(w, err, sql)
	}
	require.NoError(w, tx.Commit(w.Context()))
	_, err = w.db.Exec(w.Context(), "ANALYZE")
	require.NoError(w, err)
}

var scanOf = regexp.MustCompile(`Seq Scan on ([a-z_.]+)`)

// 100,000 accounts, 300,000 keys, 900,000 days: a page reads its own rows and no others.
func TestAPageOfAHundredThousandAccounts(t *testing.T) {
	if testing.Short() {
		t.Log("with few accounts, for -short")
	}
	w := newWorld(t)
	accounts := 100_000
	if testing.Short() {
		accounts = 2_000
	}
	w.fill(accounts)
	best := time.Hour
	for i := range 20 {
		path := "/usage/" + w.token(fmt.Sprintf("account %d", accounts-i*97))
		began := time.Now()
		a := w.get(path)
		took := time.Since(began)
		require.Equal(t, http.StatusOK, a.status)
		require.Contains(t, a.body, "<strong>50</strong>")
		best = min(best, took)
	}
	t.Logf("the page of one of %d accounts: %s", accounts, best)
	require.Less(t, best, 100*time.Millisecond)

	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	queries := books.StatementQueries()
	_, err = tx.Exec(t.Context(), queries[0])
	require.NoError(t, err)
	args := [][]any{{"account 77", noon, books.StatementPeriods}, {"account 77", noon}, {[]int64{1, 2, 3}}, {[]int64{1, 2, 3}}}
	for i, sql := range queries[1:] {
		rows, err := tx.Query(t.Context(), "EXPLAIN "+sql, args[i]...)
		require.NoError(t, err)
		for rows.Next() {
			var line string
			require.NoError(t, rows.Scan(&line))
			if m := scanOf.FindStringSubmatch(line); m != nil {
				require.Fail(t, "a whole table is read", "%s\n%s", line, sql)
			}
		}
		require.NoError(t, rows.Err())
	}
}
