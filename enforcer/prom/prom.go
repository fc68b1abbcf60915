// Package prom shows an Enforcer's counts to Prometheus. Names are those of the sidecar, so that one dashboard and one
// set of alert rules serve both. No label carries an account: the number of series does not grow with customers.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/enforcer"
)

// Source is what is shown; *enforcer.Enforcer is one.
type Source interface{ Stats() enforcer.Stats }

// Collector reads the counts when a page is read, so that a call counts nothing twice. It is safe for concurrent use.
type Collector struct {
	source Source
	all    []series
}

type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(*enforcer.Stats) float64
}

// New makes a Collector; register it with a prometheus.Registerer. Two enforcers in one program need registries, or
// labels by prometheus.WrapRegistererWith, of their own.
func New(source Source) *Collector {
	c := &Collector{source: source}
	for _, n := range []struct {
		name, help string
		of         func(*enforcer.Stats) int64
	}{
		{"exchanges_total", "Round trips of asks, extends and gives.", func(s *enforcer.Stats) int64 { return s.Exchanges }},
		{"contacts_total", "Round trips that loaded an account.", func(s *enforcer.Stats) int64 { return s.Contacts }},
		{"flushes_total", "Round trips of batches and heartbeats.", func(s *enforcer.Stats) int64 { return s.Flushes }},
		{"recalls_total", "Calls for this node's loose leases.", func(s *enforcer.Stats) int64 { return s.Recalls }},
		{"refused_total", "Calls refused for quota, after the fast path.", func(s *enforcer.Stats) int64 { return s.Refused }},
		{"unavailable_total", "Calls answered unavailable.", func(s *enforcer.Stats) int64 { return s.Unavailable }},
		{"timeouts_total", "Calls whose time ran out.", func(s *enforcer.Stats) int64 { return s.Timeouts }},
		{"filled_units_total", "Units counted without a lease while the database was away.", func(s *enforcer.Stats) int64 { return s.Filled }},
		{"overrun_units_total", "Units settled beyond what the quota had.", func(s *enforcer.Stats) int64 { return s.Overruns }},
		{"expired_reservations_total", "Reservations that were forgotten.", func(s *enforcer.Stats) int64 { return s.Expired }},
		{"failovers_total", "Times that the database had lost stored heartbeats.", func(s *enforcer.Stats) int64 { return s.Failovers }},
		{"listener_lost_total", "Times that the notification connection was lost.", func(s *enforcer.Stats) int64 { return s.ListenerLost }},
	} {
		c.add(prometheus.CounterValue, n.name, n.help, func(s *enforcer.Stats) float64 { return float64(n.of(s)) })
	}
	gauge := func(name, help string, of func(*enforcer.Stats) float64) {
		c.add(prometheus.GaugeValue, name, help, of)
	}
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
	return c
}

func (c *Collector) add(kind prometheus.ValueType, name, help string, of func(*enforcer.Stats) float64) {
	c.all = append(c.all, series{prometheus.NewDesc("weir_enforcer_"+name, help, nil, nil), kind, of})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for i := range c.all {
		out <- c.all[i].desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	now := c.source.Stats()
	for i := range c.all {
		out <- prometheus.MustNewConstMetric(c.all[i].desc, c.all[i].kind, c.all[i].of(&now))
	}
}
