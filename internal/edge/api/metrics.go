package api

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirhq/weir/enforcer"
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
	for _, c := range []prometheus.Collector{m.answers, m.seconds, newStats(e)} {
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
		began := time.Now()
		status := h(w, r)
		seconds.Observe(time.Since(began).Seconds())
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

// stats collects the enforcer's own counts when a page is read: its paths count nothing twice.
type stats struct {
	enforcer *enforcer.Enforcer
	all      []stat
}

type stat struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*enforcer.Stats) float64
}

func newStats(e *enforcer.Enforcer) *stats {
	s := &stats{enforcer: e}
	add := func(kind prometheus.ValueType, name, help string, of func(*enforcer.Stats) float64) {
		s.all = append(s.all, stat{prometheus.NewDesc("weir_enforcer_"+name, help, nil, nil), kind, of})
	}
	count := func(name, help string, of func(*enforcer.Stats) int64) {
		add(prometheus.CounterValue, name, help, func(s *enforcer.Stats) float64 { return float64(of(s)) })
	}
	gauge := func(name, help string, of func(*enforcer.Stats) float64) { add(prometheus.GaugeValue, name, help, of) }
	count("exchanges_total", "Round trips of asks, extends and gives.", func(s *enforcer.Stats) int64 { return s.Exchanges })
	count("contacts_total", "Round trips that loaded an account.", func(s *enforcer.Stats) int64 { return s.Contacts })
	count("flushes_total", "Round trips of batches and heartbeats.", func(s *enforcer.Stats) int64 { return s.Flushes })
	count("recalls_total", "Calls for this node's loose leases.", func(s *enforcer.Stats) int64 { return s.Recalls })
	count("refused_total", "Calls refused for quota, after the fast path.", func(s *enforcer.Stats) int64 { return s.Refused })
	count("unavailable_total", "Calls answered unavailable.", func(s *enforcer.Stats) int64 { return s.Unavailable })
	count("timeouts_total", "Calls whose time ran out.", func(s *enforcer.Stats) int64 { return s.Timeouts })
	count("filled_units_total", "Units counted without a lease while the database was away.", func(s *enforcer.Stats) int64 { return s.Filled })
	count("overrun_units_total", "Units settled beyond what the quota had.", func(s *enforcer.Stats) int64 { return s.Overruns })
	count("expired_reservations_total", "Reservations that were forgotten.", func(s *enforcer.Stats) int64 { return s.Expired })
	count("listener_lost_total", "Times that the notification connection was lost.", func(s *enforcer.Stats) int64 { return s.ListenerLost })
	gauge("reservations", "Open reservations.", func(s *enforcer.Stats) float64 { return float64(s.Reserved) })
	gauge("nodes", "Live nodes, as of the last heartbeat.", func(s *enforcer.Stats) float64 { return float64(s.Nodes) })
	gauge("counters", "Keys in memory.", func(s *enforcer.Stats) float64 { return float64(s.Counters) })
	gauge("accounts", "Accounts in memory.", func(s *enforcer.Stats) float64 { return float64(s.Accounts) })
	gauge("heap_counters", "Counters that no journal file holds: their unflushed units die with the process.",
		func(s *enforcer.Stats) float64 { return float64(s.HeapCounters) })
	gauge("database_away", "1 while the database does not answer.", func(s *enforcer.Stats) float64 {
		if s.Away {
			return 1
		}
		return 0
	})
	return s
}

func (s *stats) Describe(out chan<- *prometheus.Desc) {
	for i := range s.all {
		out <- s.all[i].desc
	}
}

func (s *stats) Collect(out chan<- prometheus.Metric) {
	now := s.enforcer.Stats()
	for i := range s.all {
		out <- prometheus.MustNewConstMetric(s.all[i].desc, s.all[i].kind, s.all[i].of(&now))
	}
}
