package jobs_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const paidFile = `
currency: usd
default_plan: free
features: {events: {meter: weir_events_overage}}
plans:
  free: {quota: {events: 100}, on_exceeded: block}
  pro:
    prices: [pro_monthly]
    quota: {events: {included: 1_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}}
    on_exceeded: bill_overage
`

// From a webhook to a finalized invoice with nothing but a worker running.
func TestWorkerBillsAnAccount(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	const secret = "whsec_test"
	var handler http.Handler
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	t.Cleanup(hook.Close)
	sim := stripesim.New(stripesim.Config{Webhooks: []stripesim.Webhook{{URL: hook.URL, Secret: secret}}})
	url, stop, err := sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	stripeClient, err := billing.NewClient(billing.ClientConfig{Key: sim.APIKey(), BaseURL: url, EventsPerSecond: 1000, ReadsPerSecond: 1000})
	require.NoError(t, err)
	enqueuer, err := jobs.NewEnqueuer(db)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	b, err := billing.New(db, billing.Config{Stripe: stripeClient, Clock: sim, Logger: log, Enqueue: enqueuer.Enqueue, WebhookSecrets: []string{secret}})
	require.NoError(t, err)
	handler = b.Webhook()
	w, err := jobs.New(jobs.Config{DB: db, Biller: b, Clock: sim, Logger: log})
	require.NoError(t, err)
	start(t, w)
	c, err := plans.Parse([]byte(paidFile))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), db, c, "test", sim.Now())
	require.NoError(t, err)

	subscribe(t, client.New(sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{URL: stripe.String(url)})))
	begin := sim.Now()
	require.NoError(t, sim.Advance(t.Context(), begin.Add(time.Minute)))
	eventually(t, "the plan is synced", func() bool {
		var plan string
		return db.QueryRow(t.Context(), "SELECT plan FROM weir.accounts WHERE account = 'acme'").Scan(&plan) == nil && plan == "pro"
	})
	n, err := usage.Register(t.Context(), db, "node", "test", sim.Now())
	require.NoError(t, err)
	keys, err := usage.Contact(t.Context(), db, usage.ContactRequest{Node: n.ID, Account: "acme", At: sim.Now(), Feature: "nothing"})
	require.NoError(t, err)
	end := begin.AddDate(0, 1, 0)
	require.NoError(t, sim.Advance(t.Context(), end.Add(-time.Hour)))
	batch := usage.Batch{Node: n.ID, Keys: []int64{keys[0].Key}, Upto: []int64{1_234}, At: sim.Now(), Sealed: sim.Now(), Applied: 1 << 40}
	_, err = usage.Flush(t.Context(), db, batch)
	require.NoError(t, err)
	require.NoError(t, sim.Advance(t.Context(), end.Add(10*time.Minute)))
	batch.At, batch.Sealed = sim.Now(), sim.Now()
	_, err = usage.Flush(t.Context(), db, batch)
	require.NoError(t, err)
	eventually(t, "the final report is sent", func() bool {
		events := sim.MeterEvents()
		return len(events) == 1 && events[0].Value == 234
	})
	require.NoError(t, sim.Advance(t.Context(), end.Add(2*time.Hour)))
	eventually(t, "the invoice is read", func() bool {
		var invoiced int64
		return db.QueryRow(t.Context(), "SELECT invoiced FROM weir.books WHERE key = $1", keys[0].Key).Scan(&invoiced) == nil && invoiced == 234
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 50*time.Millisecond, what)
}

// subscribe puts a new customer of account acme on pro.
func subscribe(t *testing.T, api *client.API) {
	t.Helper()
	m, err := api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("events"), EventName: stripe.String("weir_events_overage"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(t, err)
	p, err := api.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(t, err)
	month := stripe.String("month")
	base, err := api.Prices.New(&stripe.PriceParams{
		Product: &p.ID, Currency: stripe.String("usd"), UnitAmount: stripe.Int64(2000), LookupKey: stripe.String("pro_monthly"), Recurring: &stripe.PriceRecurringParams{Interval: month},
	})
	require.NoError(t, err)
	metered, err := api.Prices.New(&stripe.PriceParams{
		Product: &p.ID, Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04),
		Recurring: &stripe.PriceRecurringParams{Interval: month, UsageType: stripe.String("metered"), Meter: &m.ID},
	})
	require.NoError(t, err)
	cp := &stripe.CustomerParams{}
	cp.AddMetadata("account_id", "acme")
	customer, err := api.Customers.New(cp)
	require.NoError(t, err)
	_, err = api.Subscriptions.New(&stripe.SubscriptionParams{Customer: &customer.ID, Items: []*stripe.SubscriptionItemsParams{{Price: &base.ID}, {Price: &metered.ID}}})
	require.NoError(t, err)
}
