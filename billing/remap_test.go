package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// Between a remap and the read of the new customer, which may take as long as Stripe is away, units are counted that
// are the new customer's. The old one, who may be somebody else's by then, is not billed for them.
func TestWhatIsCountedAfterARemapIsNotTheOldCustomers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.hour()
	other, _ := w.subscribe("", "pro_monthly", "usage")
	require.NoError(t, w.b.Link(t.Context(), "acme", other, "tester"))
	away := w.sim.Faults().Inject(stripesim.Match{Method: "GET", Path: "/v1/subscriptions", Count: 0}, stripesim.Unavailable(503))
	w.node.use("acme", 7)
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(2*time.Hour)))
	w.fold()
	require.NoError(t, w.b.Report(t.Context()))
	require.EqualValues(t, 40, w.reported(customer))

	away.Remove()
	w.exec("UPDATE weir.customers SET claimed_until = '-infinity'")
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.EqualValues(t, 40, w.reported(customer))
	// The new customer's window began later than the units' period: a person decides, nothing is lost from sight.
	w.advance(start.AddDate(0, 1, 0).Add(3*time.Hour), 5*24*time.Hour)
	require.EqualValues(t, 40, w.reported(customer))
	require.EqualValues(t, 40, w.billed(customer))
	b := w.book(key)
	require.EqualValues(t, 47, b.Overage)
	require.EqualValues(t, 7, b.Pending+b.Late)
}

// A period whose overage went to two yearly subscriptions is pending until the last of their windows ends: its invoice
// may bill more of it. What the first can't bill any more is found at once, not a year later.
func TestWhatAnEndedYearDidNotBillIsFoundBeforeTheOtherEnds(t *testing.T) {
	t.Parallel()
	for name, dropped := range map[string]bool{"billed": false, "dropped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			w.prices["usage_yearly"] = w.metered(0.04, "year")
			first, sub := w.subscribe("acme", "scale_yearly", "usage_yearly")
			second, _ := w.subscribe("", "scale_yearly", "usage_yearly") // at the same instant: the period goes on
			w.soon()
			w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
			key := w.node.use("acme", 20_100)
			w.hour()
			require.NoError(t, w.b.Link(t.Context(), "acme", second, "tester"))
			w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
			require.Equal(t, key, w.node.use("acme", 30))
			w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
			_, err := w.api.Subscriptions.Cancel(sub.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(!dropped)})
			require.NoError(t, err)
			w.soon()
			w.advance(start.AddDate(0, 1, 0).Add(-time.Hour), 26*day)
			w.advance(start.AddDate(0, 1, 0).Add(3*time.Hour), time.Hour)
			require.NoError(t, w.b.Sweep(t.Context()))
			w.work()
			b := w.book(key)
			require.EqualValues(t, 130, b.Pending+b.Invoiced)
			if dropped {
				require.Contains(t, w.findings()["late_to_come"], "100 units that were reported for "+first)
				require.Contains(t, w.findings()["late_to_come"], "2027-01-10")
			} else {
				require.EqualValues(t, 100, w.billed(first))
				require.NotContains(t, w.findings(), "late_to_come")
			}
			w.advance(start.AddDate(1, 0, 0).Add(-time.Hour), 26*day)
			w.advance(start.AddDate(1, 0, 0).Add(5*time.Hour), time.Hour)
			require.EqualValues(t, 30, w.billed(second))
			require.NotContains(t, w.findings(), "late_to_come")
			if dropped {
				require.Equal(t, book{Overage: 130, Invoiced: 30, Late: 100}, w.book(key))
			} else {
				require.Equal(t, book{Overage: 130, Invoiced: 130}, w.book(key))
			}
		})
	}
}
