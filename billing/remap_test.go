package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
