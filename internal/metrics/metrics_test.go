package metrics_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/metrics"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func full() metrics.State {
	return metrics.State{
		Usage: usage.Health{Inbox: 3, InboxAge: 2 * time.Second, Nodes: map[string]int64{"live": 2}, Overshoots: map[string]int64{"frozen": 4}},
		Billing: books.Health{
			Reports: map[string]int64{"unknown": 5}, Findings: map[string]int64{"item_missing": 6}, Stops: map[string]int64{"clock": 1}, AtRisk: 1, Deadline: -time.Minute,
		},
		Jobs: []jobs.Load{{Kind: "flush", State: "available", Jobs: 1, Age: time.Second}},
	}
}

func gather(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				require.True(t, slices.Contains([]string{"state", "cause", "kind"}, l.GetName()), "label %s of %s is not bounded", l.GetName(), name)
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue()
		}
	}
	return out
}

func TestTheStateIsShown(t *testing.T) {
	t.Parallel()
	got := gather(t, metrics.New(func(context.Context) (metrics.State, error) { return full(), nil }, quiet()))
	for name, want := range map[string]float64{
		"weir_worker_up": 1, "weir_inbox_rows": 3, "weir_inbox_age_seconds": 2, "weir_nodes live": 2, "weir_nodes reaped": 0,
		"weir_overshoot_units frozen": 4, "weir_reports unknown": 5, "weir_reports stored": 0, "weir_findings item_missing": 6,
		"weir_sending_stopped clock": 1, "weir_sending_stopped restored": 0, "weir_invoice_deadline_seconds": -60, "weir_jobs flush available": 1,
	} {
		v, ok := got[name]
		require.True(t, ok, name)
		require.InDelta(t, want, v, 0, name)
	}
}

func TestOldNumbersAreNeverShown(t *testing.T) {
	t.Parallel()
	calls := 0
	got := gather(t, metrics.New(func(context.Context) (metrics.State, error) { calls++; return full(), errors.New("away") }, quiet()))
	require.Equal(t, map[string]float64{"weir_worker_up": 0}, got)
	require.Equal(t, 1, calls)
}

func TestManyScrapersReadOnce(t *testing.T) {
	t.Parallel()
	calls := 0
	w := metrics.New(func(context.Context) (metrics.State, error) { calls++; return full(), nil }, quiet())
	gather(t, w)
	gather(t, w)
	require.Equal(t, 1, calls)
}

func TestAnswersAreCountedByRoute(t *testing.T) {
	t.Parallel()
	h, err := metrics.NewHTTP()
	require.NoError(t, err)
	route := h.Measured("route", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/teapot" {
			w.WriteHeader(http.StatusTeapot)
		}
		_, _ = io.WriteString(w, "x")
	}))
	for _, path := range []string{"/teapot", "/other", "/a-customer"} {
		route.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	page := httptest.NewRecorder()
	h.Page().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Contains(t, page.Body.String(), `weir_http_answers_total{route="route",status="200"} 2`)
	require.Contains(t, page.Body.String(), `weir_http_answers_total{route="route",status="418"} 1`)
	require.NotContains(t, page.Body.String(), "a-customer")
}
