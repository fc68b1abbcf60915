package main

import (
	"strings"
	"testing"
	"time"

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
	customer, err := p.api.Customers.New(&stripe.CustomerParams{Metadata: map[string]string{"account_id": "planted-account"}})
	require.NoError(t, err)
	s := p.serve()
	p.do("map", "--reason", "a test", "planted-account", customer.ID)
	a := spend(t, p.env["DATABASE_URL"], "planted-account", 7)
	require.True(t, a.Admitted())
	for _, job := range []string{"river.work/flush", "river.work/sync_subscription"} {
		require.Eventually(t, func() bool { return ran(in, job) }, 30*time.Second, 50*time.Millisecond, "%s: %s", job, s.log)
	}
	require.NoError(t, s.stop())

	parents := map[string]string{}
	for _, span := range in.Spans() {
		parents[string(span.GetSpanId())] = span.GetName()
	}
	within := map[string]bool{}
	for _, span := range in.Spans() {
		within[span.GetName()+" in "+parents[string(span.GetParentSpanId())]] = true
	}
	require.True(t, within["weir.fold_chunk in river.work/flush"], within)
	require.True(t, within["stripe GET /v1/subscriptions in river.work/sync_subscription"], within)
	for _, secret := range []string{"planted", customer.ID, p.env["STRIPE_API_KEY"]} {
		require.False(t, strings.Contains(in.Raw(), secret), secret)
	}
}

func ran(in *otlptest.Receiver, name string) bool {
	for _, span := range in.Spans() {
		if span.GetName() == name {
			return true
		}
	}
	return false
}

func TestAWrongVariableOfTracesEndsTheWorker(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["OTEL_TRACES_EXPORTER"] = "zipkin"
	_, err := p.fails(exitUsage, "serve", "--no-stripe", "--addr", "127.0.0.1:0")
	require.ErrorContains(t, err, "OTEL_TRACES_EXPORTER")
}
