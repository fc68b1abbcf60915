package jobs_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/jobs"
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
	hook := billingtest.Endpoint(t)
	sim := billingtest.Serve(t, stripesim.Config{Webhooks: []stripesim.Webhook{{URL: hook.URL, Secret: secret}}})
	enqueuer, err := jobs.NewEnqueuer(db)
	require.NoError(t, err)
	log := slog.New(slog.DiscardHandler)
	b, err := billing.New(db, billing.Config{Stripe: sim.Client(), Clock: sim, Logger: log, Enqueue: enqueuer.Enqueue, WebhookSecrets: []string{secret}})
	require.NoError(t, err)
	hook.Serve(b.Webhook())
	w, err := jobs.New(jobs.Config{DB: db, Biller: b, Clock: sim, Logger: log})
	require.NoError(t, err)
	start(t, w)
	usagetest.Publish(t, db, paidFile, sim.Now())

	product := sim.Product()
	sim.Subscribe(sim.Customer("acme"), sim.Licensed(product, "pro_monthly", 2_000, "month"), sim.Metered(product, sim.Meter("weir_events_overage"), 0.04, "month"))
	begin := sim.Now()
	require.NoError(t, sim.Advance(t.Context(), begin.Add(time.Minute)))
	eventually(t, "the plan is synced", func() bool {
		var plan string
		return db.QueryRow(t.Context(), "SELECT plan FROM weir.accounts WHERE account = 'acme'").Scan(&plan) == nil && plan == "pro"
	})
	n := usagetest.Register(t, db, "node", sim.Now())
	key := n.Key("acme", "events", sim.Now())
	n.Count(key, 1_234)
	end := begin.AddDate(0, 1, 0)
	require.NoError(t, sim.Advance(t.Context(), end.Add(-time.Hour)))
	n.Flush(sim.Now(), key)
	require.NoError(t, sim.Advance(t.Context(), end.Add(10*time.Minute)))
	n.Flush(sim.Now(), key)
	eventually(t, "the final report is sent", func() bool {
		events := sim.MeterEvents()
		return len(events) == 1 && events[0].Value == 234
	})
	require.NoError(t, sim.Advance(t.Context(), end.Add(2*time.Hour)))
	eventually(t, "the invoice is read", func() bool {
		var invoiced int64
		return db.QueryRow(t.Context(), "SELECT invoiced FROM weir.books WHERE key = $1", key).Scan(&invoiced) == nil && invoiced == 234
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 50*time.Millisecond, what)
}
