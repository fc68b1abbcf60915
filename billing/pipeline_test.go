package billing_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
)

// gate lets the first call wait until open says so; it counts the calls.
type gate struct {
	http.RoundTripper
	first sync.Once
	open  func(*http.Request)
	calls atomic.Int64
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == eventsPath {
		g.first.Do(func() { g.open(r) })
		g.calls.Add(1)
	}
	return g.RoundTripper.RoundTrip(r)
}

// While the outcomes of one set wait for a lock, the next set is claimed and sent: every call of it has its attempt
// stored before it begins, and none is made twice.
func TestSendingGoesOnWhileOutcomesAreStored(t *testing.T) {
	t.Parallel()
	const accounts = 60 // two claims of at most two seconds' calls
	w := newWorld(t, setup{})
	_, end := w.crowdEnds(accounts)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(2*time.Minute)))
	w.node.flush()
	w.fold()
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	g := &gate{RoundTripper: transport, open: func(*http.Request) {
		_, err := tx.Exec(context.WithoutCancel(t.Context()), "SELECT FROM weir.reports WHERE state = 'unknown' FOR UPDATE")
		if err != nil {
			t.Errorf("lock the claimed links: %v", err)
		}
	}}
	c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: g}, EventsPerSecond: 20, ReadsPerSecond: 1000})
	require.NoError(t, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	closed, err := b.Close(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, accounts+1, closed, "the crowd, and the one before it")

	done := make(chan error, 1)
	go func() { done <- b.Report(t.Context()) }()
	require.Eventually(t, func() bool { return g.calls.Load() == accounts }, time.Minute, 10*time.Millisecond, "calls while no outcome can be stored")
	require.EqualValues(t, accounts, w.number("SELECT count(*) FROM weir.report_attempts WHERE outcome IS NULL"), "attempts stored before their calls")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-done)
	require.EqualValues(t, accounts, w.number("SELECT count(*) FROM weir.reports WHERE state = 'delivered'"))
	require.EqualValues(t, accounts, g.calls.Load())
	w.reportedOnce()
}
