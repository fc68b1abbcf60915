package tracing_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/otlptest"
	"github.com/weirhq/weir/internal/tracing"
)

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

// Nothing asks for traces: nothing is made, and nothing is in the way of a call.
func TestOffCostsNothing(t *testing.T) {
	t.Parallel()
	for _, env := range []map[string]string{
		nil, {"OTEL_SERVICE_NAME": "x"}, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
		{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"},
	} {
		traces, err := tracing.Start(t.Context(), environment(env), "test", "1", slog.Default())
		require.NoError(t, err)
		require.Nil(t, traces)
		cfg, err := pgxpool.ParseConfig("postgres://localhost/x")
		require.NoError(t, err)
		traces.Database(cfg)
		traces.Work(cfg)
		require.Nil(t, cfg.ConnConfig.Tracer)
		require.Nil(t, traces.Provider())
		next := http.DefaultTransport
		require.Same(t, next, traces.Stripe(next))
		traces.Stop(t.Context())
	}
}

func TestWrongVariablesAreNamed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"exporter": {map[string]string{"OTEL_TRACES_EXPORTER": "jaeger"}, `OTEL_TRACES_EXPORTER is "jaeger": use otlp`},
		"protocol": {map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, `OTEL_EXPORTER_OTLP_PROTOCOL is "grpc": use http/protobuf`},
		"address":  {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "user:planted@host"}, "OTEL_EXPORTER_OTLP_ENDPOINT is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tracing.Start(t.Context(), environment(c.env), "test", "1", slog.Default())
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "planted")
		})
	}
}

// A call to Stripe is a span that tells which call it was and what came of it, and neither whom it was about nor the key.
func TestACallToStripeIsASpanWithoutIDs(t *testing.T) {
	t.Parallel()
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Request-Id", "req_1")
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusPaymentRequired)
		}
	}))
	t.Cleanup(stripe.Close)
	in := otlptest.New(t)
	traces, err := tracing.Start(t.Context(), environment(map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": in.URL() + "/"}), "test", "1", slog.Default())
	require.NoError(t, err)
	client := &http.Client{Transport: traces.Stripe(http.DefaultTransport)}
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/customers/cus_planted?expand=planted"}, {"POST", "/v1/invoices/in_planted/finalize"}, {"GET", "/v1/billing/meters/planted/event_summaries"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, stripe.URL+c.path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer sk_test_planted")
		res, err := client.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
	}
	stripe.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, stripe.URL+"/v1/prices", nil)
	require.NoError(t, err)
	_, err = client.Do(req)
	require.Error(t, err)
	traces.Stop(t.Context())

	var names []string
	for _, s := range in.Spans() {
		names = append(names, s.GetName()+" "+s.GetStatus().GetMessage())
	}
	require.Equal(t, []string{
		"stripe GET /v1/customers/{id} ", "stripe POST /v1/invoices/{id}/finalize Payment Required", "stripe GET /v1/billing/meters/{id}/event_summaries ",
		"stripe GET /v1/prices no answer",
	}, names)
	require.Contains(t, in.Raw(), "req_1")
	require.NotContains(t, in.Raw(), "planted")
}

// A collector that is away is said once, and stops nothing.
func TestTracesThatCannotBeSentAreDropped(t *testing.T) {
	t.Parallel()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	t.Cleanup(refuses.Close)
	var log bytes.Buffer
	traces, err := tracing.Start(t.Context(), environment(map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": refuses.URL}), "test", "1",
		slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	_, span := traces.Provider().Tracer("test").Start(t.Context(), "x")
	span.End()
	traces.Stop(t.Context())
	require.Contains(t, log.String(), "traces could not be sent")
}
