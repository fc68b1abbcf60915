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

	w.invoice("in_year", "subscription_cycle", customer, sub.ID)
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

// invoice plants a paid invoice as it was read, without lines.
func (w *world) invoice(id, reason, customer, sub string) {
	w.Helper()
	w.exec(`INSERT INTO weir.invoices (invoice, customer, livemode, subscription, status, billing_reason, currency, created, read, seen_at)
		VALUES ($1, $2, false, $3, 'paid', $4, 'usd', $5, 1, $5)`, id, customer, sub, reason, w.sim.Now())
}

// line plants a line of it on the meter.
func (w *world) line(invoice, sub, item, price string, quantity int64, from, to time.Time) {
	w.Helper()
	w.exec(`INSERT INTO weir.invoice_lines (line, invoice, subscription, item, price, meter, quantity, amount, starts, ends)
		VALUES ('il_' || $1, $1, $2, $3, $4, $5, $6, 1, $7, $8)`, invoice, sub, item, price, event, quantity, from, to)
}

// A line goes to its window's periods oldest first, each up to what was reported of it; the last one has the rest.
func TestALineGoesToTheOldestPeriodFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quantity int64
		want     string // by period
	}{"less than one period": {70, "70"}, "less than all": {120, "100, 20"}, "more than all": {200, "100, 50, 50"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			w.prices["usage"] = w.metered(0.04, "year")
			customer, sub := w.subscribe("acme", "scale_yearly", "usage")
			w.soon()
			w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
			first := w.node.use("acme", 20_100)
			end := start.AddDate(0, 1, 0)
			w.advance(end.Add(-time.Hour), 26*day)
			w.advance(end.Add(time.Hour), time.Hour)
			require.NotEqual(t, first, w.node.use("acme", 20_050))
			w.advance(end.AddDate(0, 1, 0).Add(-time.Hour), 26*day)
			w.advance(end.AddDate(0, 1, 0).Add(2*time.Hour), time.Hour)
			w.invoice("in_year", "subscription_cycle", customer, sub.ID)
			w.line("in_year", sub.ID, "si", w.price("usage"), c.quantity, start, start.AddDate(1, 0, 0))
			require.Equal(t, "{}", w.text("SELECT weir.settle_invoice('in_year', $1)::text", w.sim.Now()))
			require.Equal(t, c.want, w.text("SELECT string_agg(i.units::text, ', ' ORDER BY i.key) FROM weir.invoiced i"))
			require.EqualValues(t, min(c.quantity, 100), w.book(first).Invoiced)
		})
	}
}

// An invoice of the subscription that is not of its cycle, and has no line on the meter, makes no window final.
func TestAnInvoiceOfSomethingElseMakesNothingFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(10*time.Minute), 65*time.Minute)
	sub := w.text("SELECT subscription FROM weir.segments WHERE key = $1", key)
	w.invoice("in_manual", "manual", customer, sub)
	require.Equal(t, "{}", w.text("SELECT weir.settle_invoice('in_manual', $1)::text", w.sim.Now()))
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	w.finish()
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}
