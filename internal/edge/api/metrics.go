package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/enforcer/prom"
)

// metrics counts what the API answers and shows what the enforcer counts.
type metrics struct {
	answers *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	page    http.Handler
}

func newMetrics(registry *prometheus.Registry, e *enforcer.Enforcer) (*metrics, error) {
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_answers_total", Help: "Answers by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_http_seconds", Help: "Time from a request's header to its answer, by route.",
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"route"}),
		page: promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry, MaxRequestsInFlight: 4}),
	}
	for _, c := range []prometheus.Collector{m.answers, m.seconds, prom.New(e)} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// measured counts and times a route's answers.
func (a *API) measured(route string, h handle) http.Handler {
	seconds := a.metrics.seconds.WithLabelValues(route)
	ok := a.metrics.answers.WithLabelValues(route, "200")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Since(a.born)
		status := h(w, r)
		seconds.Observe((time.Since(a.born) - began).Seconds())
		if status == http.StatusOK {
			ok.Inc()
			return
		}
		a.metrics.answers.WithLabelValues(route, strconv.Itoa(status)).Inc()
	})
}

func (a *API) serveMetrics(w http.ResponseWriter, r *http.Request) int {
	a.metrics.page.ServeHTTP(w, r)
	return http.StatusOK
}
