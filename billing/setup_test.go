package billing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
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
	sim    *stripesim.Server
	api    *client.API
	b      *billing.Biller
	client *billing.Client
	hook   atomic.Pointer[http.Handler]
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
	w := &world{T: t, db: openDatabase(t, s.timeZone), prices: map[string]string{}}
	mux := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if h := w.hook.Load(); h != nil {
			(*h).ServeHTTP(rw, r)
			return
		}
		http.Error(rw, "no worker", http.StatusServiceUnavailable)
	}))
	t.Cleanup(mux.Close)
	w.hookAt = mux.URL
	if s.sim.Start.IsZero() {
		s.sim.Start = start
	}
	if !s.noHooks {
		s.sim.Webhooks = append(s.sim.Webhooks, stripesim.Webhook{URL: mux.URL, Secret: secret},
			stripesim.Webhook{URL: mux.URL, Secret: secret, Thin: true})
	}
	w.sim = stripesim.New(s.sim)
	url, stop, err := w.sim.Listen()
	w.simURL = url
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	w.api = client.New(w.sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), HTTPClient: hc, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	cc := billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: url, HTTPClient: hc, EventsPerSecond: 100_000, ReadsPerSecond: 100_000}
	if s.tune != nil {
		s.tune(&cc)
	}
	w.client, err = billing.NewClient(cc)
	require.NoError(t, err)
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
	url := migrated(t)
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

func migrated(t testing.TB) string {
	return pgtest.Migrated(t, schema.Fingerprint(), func(ctx context.Context, url string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = schema.Migrate(ctx, conn)
		return err
	})
}

func (w *world) biller(db *pgxpool.Pool) *billing.Biller {
	w.Helper()
	b, err := billing.New(db, billing.Config{
		Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{"whsec_old", secret}, Senders: 8, LookEach: time.Nanosecond, SecondLook: time.Nanosecond,
	})
	require.NoError(w, err)
	return b
}

func (w *world) serve(b *billing.Biller) {
	h := b.Webhook()
	w.hook.Store(&h)
}

func (w *world) publish(file string) {
	w.Helper()
	c, err := plans.Parse([]byte(file))
	require.NoError(w, err)
	_, _, err = usage.Publish(w.Context(), w.db, c, "test", w.sim.Now())
	require.NoError(w, err)
}

// catalogue makes the meter and the prices at Stripe that the plan file names.
func (w *world) catalogue() {
	w.Helper()
	m, err := w.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("events"), EventName: stripe.String(event),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(w, err)
	w.meter = m.ID
	p, err := w.api.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(w, err)
	w.product = p.ID
	w.prices["pro_monthly"] = w.licensed("pro_monthly", 2_000, "month")
	w.prices["scale_monthly"] = w.licensed("scale_monthly", 20_000, "month")
	w.prices["scale_yearly"] = w.licensed("scale_yearly", 200_000, "year")
	w.prices["usage"] = w.metered(0.04, "month")
}

func (w *world) licensed(lookup string, cents int64, interval string) string {
	w.Helper()
	p := &stripe.PriceParams{
		Product: stripe.String(w.product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(cents),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String(interval)},
	}
	if lookup != "" {
		p.LookupKey = stripe.String(lookup)
	}
	got, err := w.api.Prices.New(p)
	require.NoError(w, err)
	return got.ID
}

func (w *world) metered(cents float64, interval string) string {
	w.Helper()
	got, err := w.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(w.product), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(cents),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String(interval), UsageType: stripe.String("metered"), Meter: stripe.String(w.meter)},
	})
	require.NoError(w, err)
	return got.ID
}

// customer makes a customer whose metadata names an account; none when account is empty.
func (w *world) customer(account string) string {
	w.Helper()
	p := &stripe.CustomerParams{}
	if account != "" {
		p.AddMetadata("account_id", account)
	}
	c, err := w.api.Customers.New(p)
	require.NoError(w, err)
	return c.ID
}

// subscribe puts an account's new customer on prices by lookup key.
func (w *world) subscribe(account string, prices ...string) (customer string, sub *stripe.Subscription) {
	w.Helper()
	customer = w.customer(account)
	return customer, w.subscribeCustomer(customer, prices...)
}

func (w *world) subscribeCustomer(customer string, prices ...string) *stripe.Subscription {
	w.Helper()
	p := &stripe.SubscriptionParams{Customer: stripe.String(customer)}
	for _, name := range prices {
		p.Items = append(p.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(w.price(name))})
	}
	sub, err := w.api.Subscriptions.New(p)
	require.NoError(w, err)
	return sub
}

func (w *world) price(name string) string {
	if id, ok := w.prices[name]; ok {
		return id
	}
	return name
}

// node counts like an enforcer that sends everything at once.
type node struct {
	w      *world
	id     int64
	change int64
	used   map[int64]int64 // by key, cumulative
}

func (w *world) newNode() *node {
	w.Helper()
	n, err := usage.Register(w.Context(), w.db, "node", "test", w.sim.Now())
	require.NoError(w, err)
	return &node{w: w, id: n.ID, change: n.Change, used: map[int64]int64{}}
}

// use counts units of an account now, whatever its ceiling.
func (n *node) use(account string, units int64) int64 {
	n.w.Helper()
	key := n.keyAt(account, n.w.sim.Now())
	n.used[key] += units
	n.flush(key)
	return key
}

func (n *node) keyAt(account string, at time.Time) int64 {
	n.w.Helper()
	keys, err := usage.Contact(n.w.Context(), n.w.db, usage.ContactRequest{Node: n.id, Account: account, At: at, Feature: "nothing"})
	require.NoError(n.w, err)
	for _, k := range keys {
		if k.Feature == "events" && !at.Before(k.Starts) && at.Before(k.Ends) {
			return k.Key
		}
	}
	require.FailNow(n.w, "no key", "account %s at %s", account, at)
	return 0
}

// flush sends cumulative amounts, and with them the mark: everything before now is sealed.
func (n *node) flush(keys ...int64) {
	n.w.Helper()
	latest, _, err := usage.Changes(n.w.Context(), n.w.db, n.change)
	require.NoError(n.w, err)
	b := usage.Batch{Node: n.id, At: n.w.sim.Now(), Sealed: n.w.sim.Now(), Applied: latest}
	for _, k := range keys {
		b.Keys, b.Upto = append(b.Keys, k), append(b.Upto, n.used[k])
	}
	_, err = usage.Flush(n.w.Context(), n.w.db, b)
	require.NoError(n.w, err)
	n.change = latest
}

func (w *world) fold() {
	w.Helper()
	for {
		n, err := usage.Fold(w.Context(), w.db, 5000)
		require.NoError(w, err)
		if n == 0 {
			return
		}
	}
}

// work does everything that a worker would find due, until nothing is.
func (w *world) work() {
	w.Helper()
	w.workWith(w.b)
}

func (w *world) workWith(b *billing.Biller) {
	w.Helper()
	ctx := w.Context()
	w.fold()
	for range 50 {
		again := false
		n, err := b.SyncDue(ctx, 100)
		require.NoError(w, err)
		again = again || n > 0
		_, err = b.Close(ctx)
		require.NoError(w, err)
		require.NoError(w, b.Report(ctx))
		n, err = b.ReadDueInvoices(ctx, 100)
		require.NoError(w, err)
		if !again && n == 0 {
			return
		}
	}
	require.FailNow(w, "there is always more to do")
}

// advance moves time in steps in which nodes seal and the worker works.
func (w *world) advance(to time.Time, step time.Duration) {
	w.Helper()
	for now := w.sim.Now(); now.Before(to); now = w.sim.Now() {
		next := now.Add(step)
		if next.After(to) {
			next = to
		}
		require.NoError(w, w.sim.Advance(w.Context(), next))
		if w.node != nil {
			w.node.flush()
		}
		w.work()
	}
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
