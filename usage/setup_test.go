package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const planFile = `
currency: usd
default_plan: free
features:
  events: {meter: weir_events_overage}
  tokens: {}
plans:
  free:
    quota: {events: 100}
    on_exceeded: block
  pro:
    prices: [pro_monthly]
    quota:
      events: {included: 1_000, overage: {price: "0.40", per: 1000, max: 5_000}}
      tokens: {included: 500, on_exceeded: block}
    on_exceeded: bill_overage
  big:
    prices: [big_monthly]
    quota:
      events: {included: 10_000, overage: {price: "0.40", per: 1000, max: 5_000}}
    on_exceeded: bill_overage
  open:
    prices: [open_monthly]
    quota: {events: unlimited}
  careful:
    prices: [careful_monthly]
    quota: {events: {included: 100, enforce: strict}}
    on_exceeded: block
`

// noon is a business time away from any boundary.
var noon = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// world is a database with a published catalog and what a test does to it.
type world struct {
	testing.TB
	db      *pgxpool.Pool
	catalog *plans.Catalog
}

func newWorld(t testing.TB) *world {
	t.Helper()
	return worldOn(t, schematest.Pool(t))
}

func worldOn(t testing.TB, db *pgxpool.Pool) *world {
	t.Helper()
	w := &world{TB: t, db: db}
	w.publish(planFile, noon.AddDate(-1, 0, 0))
	return w
}

func (w *world) publish(file string, now time.Time) (number int64, changed bool) {
	w.Helper()
	c, err := plans.Parse([]byte(file))
	require.NoError(w, err)
	number, changed, err = usage.Publish(w.Context(), w.db, c, "test", now)
	require.NoError(w, err)
	w.catalog = c
	return number, changed
}

// node registers a live node.
func (w *world) node() int64 {
	w.Helper()
	n, err := usage.Register(w.Context(), w.db, w.Name(), "test", noon)
	require.NoError(w, err)
	return n.ID
}

// contact loads an account for a node, and asks for nothing.
func (w *world) contact(node int64, account string, at time.Time) []usage.Key {
	w.Helper()
	keys, err := usage.Contact(w.Context(), w.db, usage.ContactRequest{Node: node, Account: account, At: at, Feature: "nothing"})
	require.NoError(w, err)
	return keys
}

// key is the key of a feature in the period that holds an instant.
func (w *world) key(account, feature string, at time.Time) usage.Key {
	w.Helper()
	for _, k := range w.contact(-5, account, at) {
		if k.Feature == feature && !at.Before(k.Starts) && at.Before(k.Ends) {
			return k
		}
	}
	require.FailNow(w, "no key", "account %s, feature %s, at %s", account, feature, at)
	return usage.Key{}
}

// subscribe puts an account on a plan whose period of a month holds an instant.
func (w *world) subscribe(account, plan string, starts, ends, now time.Time, more ...func(*usage.PlanState)) int64 {
	w.Helper()
	id, err := usage.FindAccount(w.Context(), w.db, account, true, now)
	require.NoError(w, err)
	s := usage.PlanState{Plan: plan, Quantity: 1, Anchor: starts, Months: 1, Starts: starts, Ends: ends, Billable: []string{"events"}}
	for _, m := range more {
		m(&s)
	}
	_, err = usage.ApplyPlan(w.Context(), w.db, id, s, now)
	require.NoError(w, err)
	return id
}

func (w *world) unsubscribe(account int64, now time.Time) {
	w.Helper()
	_, err := usage.ApplyPlan(w.Context(), w.db, account, usage.PlanState{}, now)
	require.NoError(w, err)
}

// flush sends a batch of cumulative amounts, key by key.
func (w *world) flush(node int64, at time.Time, keyUpto ...int64) usage.BatchAnswer {
	w.Helper()
	b := usage.Batch{Node: node, At: at, Sealed: at}
	for i := 0; i < len(keyUpto); i += 2 {
		b.Keys, b.Upto = append(b.Keys, keyUpto[i]), append(b.Upto, keyUpto[i+1])
	}
	a, err := usage.Flush(w.Context(), w.db, b)
	require.NoError(w, err)
	return a
}

// fold folds until nothing is left.
func (w *world) fold() {
	w.Helper()
	for {
		n, err := usage.Fold(w.Context(), w.db, 5000)
		require.NoError(w, err)
		if n == 0 {
			return
		}
	}
}

func (w *world) ask(node int64, c usage.LeaseCall) usage.LeaseAnswer {
	w.Helper()
	a, err := usage.Ask(w.Context(), w.db, node, true, []usage.LeaseCall{c})
	require.NoError(w, err)
	require.Len(w, a, 1)
	return a[0]
}

func (w *world) give(node int64, c usage.LeaseCall) usage.LeaseAnswer {
	w.Helper()
	a, err := usage.Give(w.Context(), w.db, node, []usage.LeaseCall{c})
	require.NoError(w, err)
	require.Len(w, a, 1)
	return a[0]
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// number reads one integer.
func (w *world) number(sql string, args ...any) int64 {
	w.Helper()
	var n int64
	require.NoError(w, w.db.QueryRow(w.Context(), sql, args...).Scan(&n))
	return n
}

// total reads what is stored under a key.
type total struct {
	Used, Free, Overage, NotBillable, Awaiting, Adjusted, Carried int64
}

func (w *world) total(key int64) total {
	w.Helper()
	rows, err := w.db.Query(w.Context(), "SELECT used, free, overage, not_billable, awaiting, adjusted, carried FROM weir.totals WHERE key = $1", key)
	require.NoError(w, err)
	t, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[total])
	require.NoError(w, err)
	return t
}

func (w *world) quota(key int64) (ceiling, granted int64) {
	w.Helper()
	require.NoError(w, w.db.QueryRow(w.Context(), "SELECT ceiling, granted FROM weir.quotas WHERE key = $1", key).Scan(&ceiling, &granted))
	return ceiling, granted
}

// sound checks what must hold in the whole database at any moment.
func (w *world) sound() {
	w.Helper()
	w.none("granted is the sum of the leases", `SELECT q.key, q.granted, coalesce(sum(l.lim), 0) FROM weir.quotas q
		LEFT JOIN weir.leases l ON l.key = q.key GROUP BY q.key HAVING q.granted <> coalesce(sum(l.lim), 0)`)
	w.none("no lease is negative", "SELECT key, node, lim FROM weir.leases WHERE lim < 0")
	w.none("used is the sum of done", `SELECT t.key, t.used, coalesce(sum(d.used), 0) FROM weir.totals t
		LEFT JOIN weir.done d ON d.key = t.key GROUP BY t.key HAVING t.used <> coalesce(sum(d.used), 0)`)
	w.none("free and overage are what was counted", `SELECT key, used, free, overage, adjusted, carried FROM weir.totals
		WHERE free + overage <> used + adjusted + carried`)
	w.none("history sums up to used", `SELECT t.key, t.used, coalesce(sum(h.used), 0) FROM weir.totals t
		LEFT JOIN weir.history h ON h.key = t.key GROUP BY t.key HAVING t.used <> coalesce(sum(h.used), 0)`)
	w.none("periods that admit do not overlap", `SELECT a.id, b.id FROM weir.periods a JOIN weir.periods b ON b.account_id = a.account_id AND b.id > a.id
		WHERE a.state <> 'void' AND b.state <> 'void' AND a.cut IS NULL AND b.cut IS NULL AND a.starts < b.ends AND b.starts < a.ends`)
}

// none fails when a query finds rows.
func (w *world) none(what, sql string, args ...any) {
	w.Helper()
	rows, err := w.db.Query(w.Context(), sql, args...)
	require.NoError(w, err)
	var found []string
	for rows.Next() {
		v, err := rows.Values()
		require.NoError(w, err)
		found = append(found, fmt.Sprint(v...))
	}
	require.NoError(w, rows.Err())
	require.Empty(w, found, what)
}
