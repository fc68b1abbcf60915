// Package metrics shows to Prometheus how the worker's work stands. It is read from the database, so that every worker
// shows the same and none has to be the one that is asked. No label carries an account, a customer or an id.
package metrics

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

// State is what is shown.
type State struct {
	Usage   usage.Health
	Billing books.Health
	Jobs    []jobs.Load
}

const (
	fresh    = 5 * time.Second // how long a reading is shown again
	readTime = 4 * time.Second
)

// Worker is a prometheus.Collector over a reading of the database. It is safe for concurrent use; one reading runs at
// a time.
type Worker struct {
	read func(context.Context) (State, error)
	log  *slog.Logger

	mu   sync.Mutex
	at   time.Time
	last State
	ok   bool
}

// New makes a Worker that reads by read, at most every 5 seconds. A reading that fails shows weir_worker_up 0 and
// nothing else, never old numbers.
func New(read func(context.Context) (State, error), log *slog.Logger) *Worker {
	return &Worker{read: read, log: log}
}

// Describe sends nothing: which series there are depends on the reading.
func (w *Worker) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (w *Worker) Collect(out chan<- prometheus.Metric) {
	s, ok := w.state()
	gauge(out, "weir_worker_up", "1 when the state below could be read from the database.", boolean(ok))
	if !ok {
		return
	}
	collectUsage(out, &s.Usage)
	collectBilling(out, &s.Billing)
	for _, j := range s.Jobs {
		gauge(out, "weir_jobs", "Jobs that are not done.", float64(j.Jobs), "kind", j.Kind, "state", j.State)
		if j.State == "available" || j.State == "retryable" {
			gauge(out, "weir_jobs_age_seconds", "How long the oldest of them has waited.", j.Age.Seconds(), "kind", j.Kind, "state", j.State)
		}
	}
}

func (w *Worker) state() (State, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.at.IsZero() && time.Since(w.at) < fresh {
		return w.last, w.ok
	}
	ctx, stop := context.WithTimeout(context.Background(), readTime)
	defer stop()
	var err error
	w.last, err = w.read(ctx)
	w.ok, w.at = err == nil, time.Now()
	if err != nil {
		w.log.Warn("the metrics could not be read from the database", "error", err)
	}
	return w.last, w.ok
}

func collectUsage(out chan<- prometheus.Metric, u *usage.Health) {
	gauge(out, "weir_inbox_rows", "Rows that wait for the fold, counted up to 100,000.", float64(u.Inbox))
	gauge(out, "weir_inbox_age_seconds", "How long the oldest of them has waited.", u.InboxAge.Seconds())
	gauge(out, "weir_parked_rows", "Rows that could not be folded.", float64(u.Parked))
	gauge(out, "weir_node_silent_seconds", "Since the last heartbeat of the live node that is silent longest.", u.SilentAge.Seconds())
	gauge(out, "weir_node_unsealed_seconds", "How far the mark of the last node is behind.", u.UnsealedAge.Seconds())
	gauge(out, "weir_catalog", "Number of the published plan file.", float64(u.Catalog))
	for _, state := range []string{"live", "reaping", "reaped", "stopped", "recovered", "retiring"} {
		gauge(out, "weir_nodes", "Enforcers by state.", float64(u.Nodes[state]), "state", state)
	}
	for _, cause := range slices.Sorted(maps.Keys(u.Overshoots)) {
		gauge(out, "weir_overshoot_units", "Units admitted beyond a ceiling, by the stated exception that let them.", float64(u.Overshoots[cause]), "cause", cause)
	}
}

func collectBilling(out chan<- prometheus.Metric, b *books.Health) {
	for _, state := range []string{"stored", "unknown", "rejected"} {
		gauge(out, "weir_reports", "Reports to Stripe that are not settled.", float64(b.Reports[state]), "state", state)
	}
	gauge(out, "weir_report_age_seconds", "How long the oldest report has waited that could be sent.", b.ReportAge.Seconds())
	gauge(out, "weir_invoices_at_risk", "Draft invoices that wait for reports.", float64(b.AtRisk))
	if b.AtRisk > 0 {
		gauge(out, "weir_invoice_deadline_seconds", "Until the first of them is finalized.", b.Deadline.Seconds())
	}
	gauge(out, "weir_periods_unclosed", "Periods that have ended and are not closed.", float64(b.Unclosed))
	gauge(out, "weir_periods_unclosed_seconds", "Since the oldest of them ended.", b.UnclosedBy.Seconds())
	gauge(out, "weir_late_held", "Late usage that waits for a person.", float64(b.LateHeld))
	gauge(out, "weir_late_age_seconds", "How long the oldest of it has waited.", b.LateAge.Seconds())
	gauge(out, "weir_customers_due", "Customers whose subscriptions are to be read.", float64(b.Customers))
	gauge(out, "weir_sync_age_seconds", "Since the first of them was due.", b.SyncAge.Seconds())
	gauge(out, "weir_webhooks_waiting", "Stored webhook events that nobody has looked at.", float64(b.Webhooks))
	gauge(out, "weir_webhook_age_seconds", "How long the oldest of them has waited.", b.WebhookAge.Seconds())
	gauge(out, "weir_clock_skew_seconds", "Stripe's clock minus the database's.", b.Skew.Seconds())
	gauge(out, "weir_sweep_age_seconds", "Since the last look for what webhooks missed.", b.SweepAge.Seconds())
	for _, cause := range []string{"unauthorized", "clock", "restored"} {
		gauge(out, "weir_sending_stopped", "1 while this cause holds up all reports.", float64(b.Stops[cause]), "cause", cause)
	}
	for _, kind := range slices.Sorted(maps.Keys(b.Findings)) {
		gauge(out, "weir_findings", "What waits for a person.", float64(b.Findings[kind]), "kind", kind)
	}
}

// gauge sends one value; labels are pairs of name and value.
func gauge(out chan<- prometheus.Metric, name, help string, v float64, labels ...string) {
	var names, values []string
	for i := 0; i+1 < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), prometheus.GaugeValue, v, values...)
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
