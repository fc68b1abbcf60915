package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One account from its subscription to its invoice's line.
func TestOverageReachesTheInvoice(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.subscribe("acme", "pro_monthly", "usage")
	w.advance(w.sim.Now().Add(time.Minute), time.Minute)
	require.Equal(t, "pro", w.text("SELECT plan FROM weir.accounts WHERE account = 'acme'"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.segments"))

	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	key := w.node.use("acme", 1_400)
	w.advance(w.sim.Now().Add(time.Hour), time.Hour)
	require.EqualValues(t, 400, w.reported(customer), "hourly")
	w.advance(w.sim.Now().Add(3*time.Hour), time.Hour)
	w.node.use("acme", 100)
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.EqualValues(t, 500, w.reported(customer))

	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Minute), 8*24*time.Hour)
	w.node.use("acme", 7)
	w.advance(end.Add(2*time.Hour), 10*time.Minute)
	require.EqualValues(t, 507, w.reported(customer))
	require.EqualValues(t, 507, w.billed(customer))
	require.Equal(t, book{Overage: 507, Invoiced: 507}, w.book(key))
	require.Equal(t, "invoiced", w.text("SELECT state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", key))
	require.Empty(t, w.findings())
}
