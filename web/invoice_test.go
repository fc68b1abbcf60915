package web_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
)

// office is a world with Stripe's simulator and the worker's part of billing.
type office struct {
	*world
	sim *billingtest.Stripe
	b   *billing.Biller

	customer string
}

const hookSecret = "whsec_test"

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{world: newWorld(t)}
	hook := billingtest.Endpoint(t)
	o.sim = billingtest.Serve(t, stripesim.Config{Start: noon, Webhooks: []stripesim.Webhook{{URL: hook.URL, Secret: hookSecret}}})
	var err error
	o.b, err = billing.New(o.db, billing.Config{Stripe: o.sim.Client(), Clock: o.sim, Logger: nilLogger(), WebhookSecrets: []string{hookSecret}})
	require.NoError(t, err)
	hook.Serve(o.b.Webhook())
	o.clock = nil // business time is the simulator's
	o.serve(func(c *web.Config) { c.Clock = o.sim })
	o.catalogue()
	return o
}

// catalogue makes what the plan file names at Stripe, and subscribes acme to it.
func (o *office) catalogue() {
	o.Helper()
	product := o.sim.Product()
	base := o.sim.Licensed(product, "pro_monthly", 2_000, "month")
	o.customer = o.sim.Customer("acme")
	o.sim.Subscribe(o.customer, base, o.sim.Metered(product, o.sim.Meter("weir_events_overage"), 0.04, "month"))
}

// count counts units now and moves the node's mark.
func (o *office) count(units int64) {
	o.Helper()
	o.node.Use("acme", "events", units, o.sim.Now())
}

// advance moves time, with the worker at work.
func (o *office) advance(to time.Time, step time.Duration) {
	o.Helper()
	o.sim.InSteps(to, step, func() {
		o.node.Flush(o.sim.Now())
		billingtest.Work(o, o.db, o.b)
	})
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

// What was billed too much, and what nobody pays, is said beside the invoice's own line; the amount is what is due.
func TestACreditAndWhatIsForgivenAreSaid(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.advance(noon.Add(2*time.Hour), time.Hour)
	o.count(3_210)
	end := noon.AddDate(0, 1, 0)
	o.advance(end.Add(3*time.Hour), 5*24*time.Hour)
	o.advance(end.Add(5*time.Hour), 10*time.Minute)
	require.Contains(t, o.page("acme"), "2,210 events, $0.88")

	by := usage.By{Actor: "tester", Way: usage.WayCLI, Reason: "an outage"}
	for _, units := range []int64{-1_000, 500} {
		_, err := o.b.Do(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", At: end.Add(-time.Minute), Units: units}, by)
		require.NoError(t, err)
		require.NoError(t, o.b.Late(t.Context()))
	}
	held, err := o.b.LateList(t.Context())
	require.NoError(t, err)
	require.Len(t, held, 1)
	_, err = o.b.Do(t.Context(), &billing.ReleaseLate{ID: held[0].ID, Policy: "forgive"}, by)
	require.NoError(t, err)
	page := o.page("acme")
	require.Contains(t, page, `<td data-is="Overage">1,710</td>`)
	require.Contains(t, page, `<td data-is="Amount">$0.48</td>`, "1,210 at 0.04 cents")
	require.Contains(t, page, "2,210 events, $0.88, less 1,000 events by credit note")
	require.Contains(t, page, "500 events forgiven ($0.20): you pay nothing for them.")
	past := o.numbers("acme")["past"].([]any)[0].(map[string]any)
	require.Equal(t, map[string]any{"amount": "0.48", "currency": "usd"}, past["overage_amount"])
	require.Equal(t, 1_000., past["invoices"].([]any)[0].(map[string]any)["credited_units"])
}

func TestAPeriodOnNoInvoiceIsNotCalledInvoiced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	o.sim.DeclinePayments(o.customer, true)
	o.advance(noon.Add(2*time.Hour), time.Hour)
	o.count(3_210)
	end := noon.AddDate(0, 1, 0)
	o.advance(end.Add(3*time.Hour), 5*24*time.Hour)
	o.advance(end.Add(5*time.Hour), 10*time.Minute)
	_, _, id := o.invoiced()
	_, err := o.sim.API.Invoices.VoidInvoice(id, nil)
	require.NoError(t, err)
	o.advance(end.Add(6*time.Hour), 10*time.Minute)
	page := o.page("acme")
	require.Contains(t, page, "Closed, on no invoice")
	require.Contains(t, page, "2,210 events late ($0.88): counted, and not on the invoice of this period.")
}
