package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
)

// A report that goes out while its window's summary is read is our own: nobody else's usage, and no reason to freeze.
func TestAReportBesideAComparisonIsNotForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	w.hour()
	w.advance(w.sim.Now().Add(25*time.Hour), time.Hour)
	w.node.use("acme", 5)
	slow := w.sim.Faults().Inject(stripesim.Match{Method: "GET", Path: "/v1/billing/meters/.*/event_summaries", Count: 1}, stripesim.StallBefore(30*time.Second))
	done := make(chan error, 1)
	go func() { done <- w.b.Reconcile(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, slow.Wait(ctx, 1))
	_, err := w.b.Settle(t.Context(), "acme")
	require.NoError(t, err)
	require.EqualValues(t, 45, w.reported(customer))
	slow.Release()
	require.NoError(t, <-done)
	require.NotContains(t, w.findings(), "foreign_usage")
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers WHERE frozen IS NOT NULL"))

	require.NoError(t, w.b.Reconcile(t.Context()))
	require.EqualValues(t, 45, w.number("SELECT expected FROM weir.summaries ORDER BY id DESC LIMIT 1"), "the next pass compares")
}
