package main

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/otlptest"
	"github.com/weirhq/weir/internal/stripesim"
)

// A fold, the statements within it and a call to Stripe are spans. They name neither account nor customer nor key.
func TestJobsAndCallsToStripeAreSpans(t *testing.T) {
	t.Parallel()
	in := otlptest.New(t)
	p := newMigrated(t)
	p.stripe(stripesim.Config{Start: time.Now()})
	p.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = in.URL()
	customer, err := p.sim.API.Customers.New(&stripe.CustomerParams{Metadata: map[string]string{"account_id": "planted-account"}})
	require.NoError(t, err)
	s := p.serve()
	p.do("map", "--reason", "a test", "planted-account", customer.ID)
	db, err := pgx.Connect(t.Context(), p.env["DATABASE_URL"])
	require.NoError(t, err)
	defer db.Close(context.WithoutCancel(t.Context()))
	// What a busy machine is too late to take is dropped, as traces are: the work is done again until it was seen.
	for n := 0; ; n++ {
		a := spend(t, p.env["DATABASE_URL"], "planted-account", 7)
		require.True(t, a.Admitted())
		_, err = db.Exec(t.Context(), "UPDATE weir.customers SET wanted = wanted + 1")
		require.NoError(t, err)
		if sees(in, 20*time.Second, "weir.fold_chunk in river.work/flush", "stripe GET /v1/subscriptions in river.work/sync_subscription") {
			break
		}
		require.Less(t, n, 10, "%v: %s", within(in), s.log)
	}
	require.NoError(t, s.stop())
	for _, secret := range []string{"planted", customer.ID, p.env["STRIPE_API_KEY"]} {
		require.False(t, strings.Contains(in.Raw(), secret), secret)
	}
}

// sees waits for so long until all these spans were received.
func sees(in *otlptest.Receiver, wait time.Duration, want ...string) bool {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(wait); time.Now().Before(end); <-tick.C {
		got := within(in)
		if !slices.ContainsFunc(want, func(s string) bool { return !got[s] }) {
			return true
		}
	}
	return false
}

// within are the spans that were received, each as "name in parent's name".
func within(in *otlptest.Receiver) map[string]bool {
	parents, all := map[string]string{}, map[string]bool{}
	for _, span := range in.Spans() {
		parents[string(span.GetSpanId())] = span.GetName()
	}
	for _, span := range in.Spans() {
		all[span.GetName()+" in "+parents[string(span.GetParentSpanId())]] = true
	}
	return all
}

func TestAWrongVariableOfTracesEndsTheWorker(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["OTEL_TRACES_EXPORTER"] = "zipkin"
	_, err := p.fails(exitUsage, "serve", "--no-stripe", "--addr", "127.0.0.1:0")
	require.ErrorContains(t, err, "OTEL_TRACES_EXPORTER")
}
