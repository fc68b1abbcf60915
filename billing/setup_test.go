package billing_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/internal/usagetest"
)

const planFile = `
currency: usd
default_plan: free
features:
  events: {meter: weir_events_overage}
plans:
  free:
    quota: {events: 100}
    on_exceeded: block
  pro:
    prices: [pro_monthly]
    quota:
      events: {included: 1_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}
    on_exceeded: bill_overage
  scale:
    prices: [scale_monthly, scale_yearly]
    quota:
      events: {included: 20_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}
    on_exceeded: bill_overage
`

const (
	event  = "weir_events_overage"
	secret = "whsec_test"
)

// start is the simulator's first instant.
var start = time.Date(2026, 1, 10, 9, 30, 17, 0, time.UTC)

// world is an installation: a database, the Stripe simulator whose clock is business time, a Biller with its webhook,
// and nodes that count.
type world struct {
	*testing.T
	db     *pgxpool.Pool
	sim    *billingtest.Stripe
	api    *client.API
	b      *billing.Biller
	client *billing.Client
	hook   *billingtest.Hook
	hookAt string
	simURL string

	meter   string
	product string
	prices  map[string]string // by lookup key; "usage" is the metered one
	node    *node
}

type setup struct {
	sim      stripesim.Config
	file     string
	noHooks  bool
	timeZone string // of the database's sessions
	tune     func(*billing.ClientConfig)
}

func newWorld(t *testing.T, s setup) *world {
	t.Helper()
	w := &world{T: t, db: openDatabase(t, s.timeZone), hook: billingtest.Endpoint(t), prices: map[string]string{}}
	if s.sim.Start.IsZero() {
		s.sim.Start = start
	}
	if !s.noHooks {
		s.sim.Webhooks = append(s.sim.Webhooks, stripesim.Webhook{URL: w.hook.URL, Secret: secret},
			stripesim.Webhook{URL: w.hook.URL, Secret: secret, Thin: true})
	}
	w.sim = billingtest.Serve(t, s.sim)
	w.api, w.simURL, w.hookAt = w.sim.API, w.sim.URL, w.hook.URL
	if s.tune == nil {
		s.tune = func(*billing.ClientConfig) {}
	}
	w.client = w.sim.Client(s.tune)
	w.b = w.biller(w.db)
	w.serve(w.b)
	if s.file == "" {
		s.file = planFile
	}
	w.publish(s.file)
	w.catalogue()
	w.node = w.newNode()
	return w
}

func openDatabase(t *testing.T, zone string) *pgxpool.Pool {
	t.Helper()
	url := schematest.URL(t)
	if zone == "" {
		return pgtest.Pool(t, url)
	}
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.ConnConfig.RuntimeParams["timezone"] = zone
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

func (w *world) biller(db *pgxpool.Pool) *billing.Biller {
	w.Helper()
	b, err := billing.New(db, billing.Config{
		Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{"whsec_old", secret}, Senders: 8, LookEach: time.Nanosecond, SecondLook: time.Nanosecond,
	})
	require.NoError(w, err)
	return b
}

func (w *world) serve(b *billing.Biller) { w.hook.Serve(b.Webhook()) }

func (w *world) publish(file string) {
	w.Helper()
	usagetest.Publish(w, w.db, file, w.sim.Now())
}

// catalogue makes the meter and the prices at Stripe that the plan file names.
func (w *world) catalogue() {
	w.Helper()
	w.meter, w.product = w.sim.Meter(event), w.sim.Product()
	w.prices["pro_monthly"] = w.licensed("pro_monthly", 2_000, "month")
	w.prices["scale_monthly"] = w.licensed("scale_monthly", 20_000, "month")
	w.prices["scale_yearly"] = w.licensed("scale_yearly", 200_000, "year")
	w.prices["usage"] = w.metered(0.04, "month")
}

func (w *world) licensed(lookup string, cents int64, interval string) string {
	w.Helper()
	return w.sim.Licensed(w.product, lookup, cents, interval)
}

func (w *world) metered(cents float64, interval string) string {
	w.Helper()
	return w.sim.Metered(w.product, w.meter, cents, interval)
}

func (w *world) customer(account string) string {
	w.Helper()
	return w.sim.Customer(account)
}

// subscribe puts an account's new customer on prices by lookup key.
func (w *world) subscribe(account string, prices ...string) (customer string, sub *stripe.Subscription) {
	w.Helper()
	customer = w.customer(account)
	return customer, w.subscribeCustomer(customer, prices...)
}

func (w *world) subscribeCustomer(customer string, prices ...string) *stripe.Subscription {
	w.Helper()
	ids := make([]string, len(prices))
	for i, name := range prices {
		ids[i] = w.price(name)
	}
	return w.sim.Subscribe(customer, ids...)
}

func (w *world) price(name string) string {
	if id, ok := w.prices[name]; ok {
		return id
	}
	return name
}

// node counts events at the simulator's time.
type node struct {
	*usagetest.Node
	w    *world
	id   int64
	used map[int64]int64 // by key, cumulative
}

func (w *world) newNode() *node {
	w.Helper()
	n := usagetest.Register(w, w.db, "node", w.sim.Now())
	return &node{Node: n, w: w, id: n.ID, used: n.Used()}
}

// use counts units of an account now, whatever its ceiling.
func (n *node) use(account string, units int64) int64 {
	n.w.Helper()
	return n.Use(account, "events", units, n.w.sim.Now())
}

func (n *node) keyAt(account string, at time.Time) int64 {
	n.w.Helper()
	return n.Key(account, "events", at)
}

// flush sends cumulative amounts, and with them the mark: everything before now is sealed.
func (n *node) flush(keys ...int64) {
	n.w.Helper()
	n.Flush(n.w.sim.Now(), keys...)
}

func (w *world) fold() {
	w.Helper()
	usagetest.Fold(w, w.db)
}

// work does everything that a worker would find due, until nothing is.
func (w *world) work() {
	w.Helper()
	w.workWith(w.b)
}

func (w *world) workWith(b *billing.Biller) {
	w.Helper()
	billingtest.Work(w, w.db, b)
}

// advance moves time in steps in which nodes seal and the worker works.
func (w *world) advance(to time.Time, step time.Duration) {
	w.Helper()
	w.sim.InSteps(to, step, func() {
		if w.node != nil {
			w.node.flush()
		}
		w.work()
	})
}

func (w *world) number(sql string, args ...any) int64 {
	w.Helper()
	var n int64
	require.NoError(w, w.db.QueryRow(w.Context(), sql, args...).Scan(&n))
	return n
}

func (w *world) text(sql string, args ...any) string {
	w.Helper()
	var s *string
	require.NoError(w, w.db.QueryRow(w.Context(), sql, args...).Scan(&s))
	if s == nil {
		return "NULL"
	}
	return *s
}

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// findings are the open ones by kind.
func (w *world) findings() map[string]string {
	w.Helper()
	all, err := w.b.Findings(w.Context())
	require.NoError(w, err)
	out := map[string]string{}
	for _, f := range all {
		out[f.Kind] = f.Message
	}
	return out
}

// billed is what finalized invoices of a customer bill on the meter, trial lines left out.
func (w *world) billed(customer string) int64 {
	w.Helper()
	var sum int64
	for _, inv := range w.sim.Invoices(customer) {
		if inv.Status == "draft" || inv.Status == "void" {
			continue
		}
		for _, l := range inv.Lines {
			if l.Meter == w.meter && !l.Free {
				sum += l.Quantity
			}
		}
	}
	return sum
}

// book is one key's five numbers, of an ended period.
type book struct{ Overage, Invoiced, Pending, Late, Forgiven, NotBillable int64 }

func (w *world) book(key int64) book {
	w.Helper()
	rows, err := w.db.Query(w.Context(), "SELECT overage, invoiced, pending, late, forgiven, not_billable FROM weir.books WHERE key = $1", key)
	require.NoError(w, err)
	got, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[book])
	require.NoError(w, err)
	require.Equal(w, got.Overage, got.Invoiced+got.Pending+got.Late+got.Forgiven+got.NotBillable, "the identity of key %d: %+v", key, got)
	return got
}

// events are the meter events that the simulator accepted for a customer, none twice.
func (w *world) reported(customer string) int64 {
	w.Helper()
	var sum int64
	seen := map[string]bool{}
	for _, e := range w.sim.MeterEvents() {
		if e.Customer != customer {
			continue
		}
		require.False(w, seen[e.Identifier], "identifier %s was accepted twice", e.Identifier)
		seen[e.Identifier] = true
		sum += e.Value
	}
	return sum
}

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(fmt.Sprintf("time %q: %v", text, err))
	}
	return t
}

// closeReport reads the books of a month.
func (w *world) closeReport(month time.Time) *books.CloseReport {
	w.Helper()
	r, err := books.ReadCloseReport(w.Context(), w.db, month, w.sim.Now())
	require.NoError(w, err)
	return r
}
