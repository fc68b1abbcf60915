package billing_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// Many accounts with overage whose periods end at one instant, Stripe's own limits in force, webhooks on: every final
// report is accepted in time, and none waits for a GET. WEIR_BOUNDARY=100000 is the long form.
func TestCase41fManyAccountsAtOneBoundary(t *testing.T) {
	t.Parallel()
	accounts := 2_000
	if s := os.Getenv("WEIR_BOUNDARY"); s != "" {
		n, err := strconv.Atoi(s)
		require.NoError(t, err)
		accounts = n
	}
	var limited atomic.Bool
	var calls atomic.Int64
	epoch := time.Now()
	w := newWorld(t, setup{noHooks: true, sim: stripesim.Config{
		Limits: stripesim.RateLimits{Account: 100, Endpoint: 25, MeterEvents: 1000, OnePerCustomerAndMeter: true, Now: func() time.Time {
			if limited.Load() {
				return time.Now().Add(time.Duration(accounts) * 24 * time.Hour)
			}
			return epoch.Add(time.Duration(calls.Add(1)) * time.Minute) // setting up is not limited
		}},
		HistorySize: 20 * accounts, ManualDelivery: true,
	}})
	keys, end := w.crowdEnds(accounts)
	w.sim.AddWebhook(stripesim.Webhook{URL: w.hookAt, Secret: secret})
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(2*time.Minute)))
	w.node.flush()

	limited.Store(true)
	r := newRush(w, accounts)
	w.serveSlowly(r.biller(), 200)
	r.run()
	r.tell()
	require.Less(t, r.took(), 180*time.Second, "first to last event accepted")
	require.Zero(t, w.number("SELECT count(*) FROM weir.reports WHERE state <> 'delivered'"))
	w.reportedOnce()
	var want, got int64
	for i := range keys {
		want += int64(1 + i%50)
	}
	for _, e := range w.sim.MeterEvents() {
		got += e.Value
	}
	require.Equal(t, want, got)
	confirmed := w.number("SELECT count(*) FROM weir.periods WHERE confirmed AND starts = $1", end)
	require.Less(t, confirmed, int64(accounts), "%d confirmed: no report waits for a GET: at 20 a second they are far from done", confirmed)
	r.bounded()
}

// crowdEnds makes a crowd that has run over, account i by 1 + i mod 50 units, and lets all but a second of its period pass.
func (w *world) crowdEnds(n int) (keys []int64, end time.Time) {
	w.Helper()
	keys, end = w.crowd(n), start.AddDate(0, 1, 0)
	require.NoError(w, w.sim.Advance(w.Context(), end.Add(-time.Second)))
	b := usage.Batch{Node: w.node.id, At: w.sim.Now(), Sealed: w.sim.Now()}
	for i, k := range keys {
		b.Keys, b.Upto = append(b.Keys, k), append(b.Upto, int64(1_001+i%50))
	}
	_, err := usage.Flush(w.Context(), w.db, b)
	require.NoError(w, err)
	for some := range slices.Chunk(keys, 10_000) { // periods that follow are predicted, as nodes would have them
		w.exec("SELECT weir.ensure_period(k.account_id, $2) FROM weir.keys k WHERE k.key = ANY ($1)", some, end)
	}
	return keys, end
}

// crowd makes accounts on pro whose periods begin at one instant: at Stripe by its API, here as plan sync would leave
// them, but as sets.
func (w *world) crowd(n int) []int64 {
	w.Helper()
	w.subscribe("one", "pro_monthly", "usage")
	require.NoError(w, w.b.Sweep(w.Context())) // prices and meters
	w.work()
	names, customers, subs, items := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 32)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			names[i] = fmt.Sprintf("crowd-%d", i)
			c, sub := w.subscribe(names[i], "pro_monthly", "usage")
			customers[i], subs[i], items[i] = c, sub.ID, sub.Items.Data[1].ID
		})
	}
	wg.Wait()
	end := start.AddDate(0, 1, 0)
	w.exec("INSERT INTO weir.accounts (account, plan, anchor, created_at) SELECT a, 'pro', $2, $2 FROM unnest($1::text[]) a", names, start)
	w.exec(`INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, confirmed, created_at)
		SELECT a.id, $2, $3, $3, 'pro', 1, 'subscription', true, $2 FROM weir.accounts a WHERE a.account = ANY ($1)`, names, start, end)
	w.exec("SELECT weir.copy_terms(p.id, ARRAY[(SELECT id FROM weir.features WHERE name = 'events')], '{}') FROM weir.periods p JOIN weir.accounts a ON a.id = p.account_id WHERE a.account = ANY ($1)", names)
	w.exec("INSERT INTO weir.customers (customer, livemode, account_id, wanted, synced, seen_at) SELECT t.c, false, a.id, 1, 1, $3 FROM unnest($1::text[], $2::text[]) t(n, c) JOIN weir.accounts a ON a.account = t.n ON CONFLICT (customer) DO UPDATE SET account_id = excluded.account_id, synced = weir.customers.wanted",
		names, customers, start)
	w.exec(`INSERT INTO weir.segments (key, customer, subscription, item, price, currency, unit_amount, meter, window_start, window_end, starts, opened_at)
		SELECT k.key, t.c, t.s, t.i, $5, 'usd', 0.04, $6, $7, $8, $7, $7 FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) t(n, c, s, i)
		JOIN weir.accounts a ON a.account = t.n JOIN weir.keys k ON k.account_id = a.id`, names, customers, subs, items, w.price("usage"), event, start, end)
	w.exec("ANALYZE")
	rows, err := w.db.Query(w.Context(), "SELECT key FROM weir.segments WHERE customer = ANY ($1) ORDER BY key", customers)
	require.NoError(w, err)
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	require.NoError(w, err)
	require.Len(w, keys, n)
	return keys
}
