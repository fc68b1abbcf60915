package metrics

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// HTTP is a registry of its own, its page, and the counts of the routes of one server.
type HTTP struct {
	registry *prometheus.Registry
	answers  *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// NewHTTP makes it with these collectors, the Go runtime's and the process's.
func NewHTTP(all ...prometheus.Collector) (*HTTP, error) {
	h := &HTTP{
		registry: prometheus.NewRegistry(),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_http_answers_total", Help: "Answers by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_http_seconds", Help: "Time from a request's header to its answer, by route.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route"}),
	}
	own := []prometheus.Collector{h.answers, h.seconds, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
	for _, c := range append(own, all...) {
		if err := h.registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return h, nil
}

// Page is /metrics.
func (h *HTTP) Page() http.Handler {
	return promhttp.HandlerFor(h.registry, promhttp.HandlerOpts{Registry: h.registry, MaxRequestsInFlight: 4})
}

// Measured counts and times a route's answers. A route is a fixed name, never a path.
func (h *HTTP) Measured(route string, next http.Handler) http.Handler {
	seconds := h.seconds.WithLabelValues(route)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		seen := &watched{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		seconds.Observe(time.Since(began).Seconds())
		h.answers.WithLabelValues(route, strconv.Itoa(seen.status)).Inc()
	})
}

// watched remembers the status.
type watched struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (w *watched) WriteHeader(status int) {
	if !w.wrote && status >= http.StatusOK {
		w.status, w.wrote = status, true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.wrote = true
	return w.ResponseWriter.Write(b)
}

// Unwrap serves http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
