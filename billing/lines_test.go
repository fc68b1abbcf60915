package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
)

// A year's invoice has a line for each price that was in effect (flexible billing). Each goes to the stretches of its own
// price, period by period, whatever the other one bills of the same period.
func TestEachLineBillsItsOwnStretches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.prices["usage"] = w.metered(0.04, "year")
	customer, sub := w.subscribe("acme", "scale_yearly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	first := w.node.use("acme", 20_100)
	w.hour()
	old := w.price("usage")
	w.swapFor(sub, "other", w.metered(0.04, "year"))
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	require.Equal(t, first, w.node.use("acme", 30))
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 26*day)
	w.advance(end.Add(time.Hour), time.Hour)
	second := w.node.use("acme", 20_050)
	w.advance(start.AddDate(0, 2, 0).Add(-time.Hour), 26*day)
	w.advance(start.AddDate(0, 2, 0).Add(2*time.Hour), time.Hour)
	require.Equal(t, book{Overage: 130, Pending: 130}, w.book(first))
	require.Equal(t, book{Overage: 50, Pending: 50}, w.book(second))

	w.exec(`INSERT INTO weir.invoices (invoice, customer, livemode, subscription, status, billing_reason, currency, created, read, seen_at)
		VALUES ('in_year', $1, false, $2, 'paid', 'subscription_cycle', 'usd', $3, 1, $3)`, customer, sub.ID, w.sim.Now())
	w.exec(`INSERT INTO weir.invoice_lines (line, invoice, subscription, price, meter, quantity, amount, starts, ends)
		SELECT x.line, 'in_year', $1, x.price, $2, x.quantity, 1, $3::timestamptz, $3::timestamptz + interval '1 year'
		FROM (VALUES ('il_a', $4, 100), ('il_b', $5, 80)) x(line, price, quantity)`, sub.ID, event, start, old, w.price("other"))
	for range 2 { // read again, it bills the same
		require.Equal(t, "{}", w.text("SELECT weir.settle_invoice('in_year', $1)::text", w.sim.Now()))
		require.Equal(t, "il_a 100, il_b 30, il_b 50", w.text("SELECT string_agg(line || ' ' || units, ', ' ORDER BY line, key) FROM weir.invoiced"))
		require.Equal(t, book{Overage: 130, Invoiced: 130}, w.book(first))
		require.Equal(t, book{Overage: 50, Invoiced: 50}, w.book(second))
	}
}

// A line gives nothing to a period whose report was refused: Stripe never had those units.
func TestALineBillsNothingOfWhatWasRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.prices["usage"] = w.metered(0.04, "year")
	customer, _ := w.subscribe("acme", "scale_yearly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.sim.Faults().Inject(post(stripesim.Refuse("The value is odd.", ""), 1))
	first := w.node.use("acme", 20_100)
	w.hour()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 26*day)
	w.advance(end.Add(time.Hour), time.Hour)
	second := w.node.use("acme", 20_050)
	w.advance(start.AddDate(0, 2, 0).Add(-time.Hour), 26*day)
	w.advance(start.AddDate(0, 2, 0).Add(2*time.Hour), time.Hour)
	require.EqualValues(t, 50, w.reported(customer))
	w.advance(start.AddDate(1, 0, 0).Add(-time.Hour), 26*day)
	w.advance(start.AddDate(1, 0, 0).Add(5*time.Hour), time.Hour)
	require.EqualValues(t, 50, w.billed(customer))
	require.Equal(t, book{Overage: 100, Late: 100}, w.book(first))
	require.Equal(t, book{Overage: 50, Invoiced: 50}, w.book(second))
}
