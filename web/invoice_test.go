package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
)

// office is a world with Stripe's simulator and the worker's part of billing.
type office struct {
	*world
	sim  *stripesim.Server
	api  *client.API
	b    *billing.Biller
	hook http.Handler

	customer string
}

const hookSecret = "whsec_test"

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{world: newWorld(t)}
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.hook.ServeHTTP(w, r) }))
	t.Cleanup(hooks.Close)
	o.sim = stripesim.New(stripesim.Config{Start: noon, Webhooks: []stripesim.Webhook{{URL: hooks.URL, Secret: hookSecret}}})
	at, stop, err := o.sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport, Timeout: 20 * time.Second}
	o.api = client.New(o.sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(at), HTTPClient: hc, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	c, err := billing.NewClient(billing.ClientConfig{Key: o.sim.APIKey(), BaseURL: at, HTTPClient: hc, EventsPerSecond: 100_000, ReadsPerSecond: 100_000})
	require.NoError(t, err)
	o.b, err = billing.New(o.db, billing.Config{Stripe: c, Clock: o.sim, Logger: nilLogger(), WebhookSecrets: []string{hookSecret}})
	require.NoError(t, err)
	o.hook = o.b.Webhook()
	o.clock = nil // business time is the simulator's
	o.serve(func(c *web.Config) { c.Clock = o.sim })
	o.catalogue()
	return o
}

// catalogue makes what the plan file names at Stripe, and subscribes acme to it.
func (o *office) catalogue() {
	o.Helper()
	m, err := o.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("events"), EventName: stripe.String("weir_events_overage"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(o, err)
	product, err := o.api.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(o, err)
	base, err := o.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(product.ID), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(2_000), LookupKey: stripe.String("pro_monthly"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
	})
	require.NoError(o, err)
	metered, err := o.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(product.ID), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m.ID)},
	})
	require.NoError(o, err)
	params := &stripe.CustomerParams{}
	params.AddMetadata("account_id", "acme")
	customer, err := o.api.Customers.New(params)
	require.NoError(o, err)
	o.customer = customer.ID
	_, err = o.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(customer.ID), Items: []*stripe.SubscriptionItemsParams{
		{Price: stripe.String(base.ID)}, {Price: stripe.String(metered.ID)},
	}})
	require.NoError(o, err)
}

// count counts units now and moves the node's mark.
func (o *office) count(units int64) {
	o.Helper()
	now := o.sim.Now()
	keys, err := usage.Contact(o.Context(), o.db, usage.ContactRequest{Node: o.node, Account: "acme", At: now, Feature: "nothing"})
	require.NoError(o, err)
	latest, _, err := usage.Changes(o.Context(), o.db, 0)
	require.NoError(o, err)
	b := usage.Batch{Node: o.node, At: now, Sealed: now, Applied: latest}
	for _, k := range keys {
		if units > 0 && k.Feature == "events" && !now.Before(k.Starts) && now.Before(k.Ends) {
			o.used[k.Key] += units
			b.Keys, b.Upto = []int64{k.Key}, []int64{o.used[k.Key]}
		}
	}
	require.Equal(o, units > 0, len(b.Keys) > 0)
	_, err = usage.Flush(o.Context(), o.db, b)
	require.NoError(o, err)
}

// advance moves time, with the worker at work.
func (o *office) advance(to time.Time, step time.Duration) {
	o.Helper()
	for now := o.sim.Now(); now.Before(to); now = o.sim.Now() {
		next := now.Add(step)
		if next.After(to) {
			next = to
		}
		require.NoError(o, o.sim.Advance(o.Context(), next))
		o.count(0)
		o.fold()
		for range 3 {
			_, err := o.b.SyncDue(o.Context(), 100)
			require.NoError(o, err)
			_, err = o.b.Close(o.Context())
			require.NoError(o, err)
			require.NoError(o, o.b.Report(o.Context()))
			_, err = o.b.ReadDueInvoices(o.Context(), 100)
			require.NoError(o, err)
		}
	}
}

func TestThePagesNumbersAreTheLedgersAndTheInvoices(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.advance(noon.Add(2*time.Hour), time.Hour)
	o.count(3_210)
	o.advance(noon.Add(4*time.Hour), time.Hour)
	running := feature(t, o.numbers("acme"), 0)
	require.Equal(t, 3210., running["used"])
	require.Equal(t, 2210., running["overage_billable"])
	require.Equal(t, map[string]any{"amount": "0.88", "currency": "usd"}, running["overage_amount"])

	end := noon.AddDate(0, 1, 0)
	o.advance(end.Add(-time.Minute), 10*24*time.Hour)
	o.count(7)
	o.advance(end.Add(30*time.Minute), 10*time.Minute)
	page := o.page("acme")
	require.Contains(t, page, "Closed, invoice pending")
	require.Contains(t, page, "2,217 events pending ($0.89): on its way to your next invoice.")

	o.advance(end.Add(3*time.Hour), 10*time.Minute)
	v := o.numbers("acme")
	past := v["past"].([]any)[0].(map[string]any)
	require.Equal(t, 2217., past["overage"])
	book := past["book"].(map[string]any)
	require.Equal(t, map[string]any{"overage": 2217., "invoiced": 2217., "pending": 0., "late": 0., "forgiven": 0., "not_billable": 0., "final": true}, book)

	line := past["invoices"].([]any)[0].(map[string]any)
	simulated, amount, id := o.invoiced()
	require.EqualValues(t, 2217, simulated)
	require.Equal(t, float64(simulated), line["line_quantity"])
	require.Equal(t, past["overage_amount"], line["line_amount"], "rounded once, as the invoice does")
	require.Equal(t, fmt.Sprintf("%d.%02d", amount/100, amount%100), line["line_amount"].(map[string]any)["amount"])
	require.Equal(t, "https://invoice.stripe.com/i/"+id, line["url"])
	require.Contains(t, o.page("acme"), `href="https://invoice.stripe.com/i/`+id+`"`)

	var stored int64
	require.NoError(t, o.db.QueryRow(t.Context(), "SELECT sum(value) FROM weir.reports WHERE NOT replaced AND state <> 'rejected'").Scan(&stored))
	require.EqualValues(t, 2217, stored, "the ledger")
	_, err := json.Marshal(v)
	require.NoError(t, err)
}

// invoiced is what the simulator's finalized invoices bill by use.
func (o *office) invoiced() (units, amount int64, invoice string) {
	for _, inv := range o.sim.Invoices(o.customer) {
		for _, l := range inv.Lines {
			if inv.Status != "draft" && l.Meter != "" && l.Quantity > 0 {
				units, amount, invoice = units+l.Quantity, amount+l.Amount, inv.ID
			}
		}
	}
	return units, amount, invoice
}
