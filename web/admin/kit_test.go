package admin_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
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
`

const (
	meterName  = "weir_events_overage"
	hookSecret = "whsec_test"
	adminToken = "an admin's token"
)

// start is the first instant of business time, which the simulator's clock moves.
var start = time.Date(2026, 1, 10, 9, 30, 17, 0, time.UTC)

// world is an installation: a database, the Stripe simulator, a Biller with its webhook, a node, and the admin.
type world struct {
	testing.TB
	db     *pgxpool.Pool
	sim    *stripesim.Server
	api    *client.API
	b      *billing.Biller
	hooks  atomic.Bool // webhooks are taken
	prices map[string]string
	meter  string
	node   int64
	used   map[int64]int64
	wall   time.Time
	cfg    admin.Config
	url    string
	hookAt string
}

func newWorld(t testing.TB, tune ...func(*admin.Config)) *world {
	t.Helper()
	w := &world{TB: t, db: schematest.Pool(t), prices: map[string]string{}, used: map[int64]int64{}, wall: start}
	hook := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !w.hooks.Load() {
			http.Error(rw, "no worker", http.StatusServiceUnavailable)
			return
		}
		w.b.Webhook().ServeHTTP(rw, r)
	}))
	t.Cleanup(hook.Close)
	w.hookAt = hook.URL
	w.sim = stripesim.New(stripesim.Config{Start: start, Webhooks: []stripesim.Webhook{
		{URL: hook.URL, Secret: hookSecret}, {URL: hook.URL, Secret: hookSecret, Thin: true},
	}})
	at, stop, err := w.sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	w.api = client.New(w.sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(at), HTTPClient: hc, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: at, HTTPClient: hc, EventsPerSecond: 100_000, ReadsPerSecond: 100_000})
	require.NoError(t, err)
	w.b, err = billing.New(w.db, billing.Config{
		Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{hookSecret}, LookEach: time.Nanosecond,
	})
	require.NoError(t, err)
	w.hooks.Store(true)
	file, err := plans.Parse([]byte(planFile))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), w.db, file, "test", w.sim.Now())
	require.NoError(t, err)
	n, err := usage.Register(t.Context(), w.db, "node", "test", w.sim.Now())
	require.NoError(t, err)
	w.node = n.ID
	w.cfg = admin.Config{
		DB: w.db, Biller: w.b, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), Token: adminToken, WallClock: func() time.Time { return w.wall },
	}
	for _, f := range tune {
		f(&w.cfg)
	}
	w.serve()
	return w
}

// serve makes the admin as it is configured now.
func (w *world) serve() {
	w.Helper()
	a, err := admin.New(w.cfg)
	require.NoError(w, err)
	server := httptest.NewServer(a)
	w.Cleanup(server.Close)
	w.url = server.URL
}

// catalogue makes meter and prices at Stripe that the plan file names.
func (w *world) catalogue() {
	w.Helper()
	m, err := w.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("events"), EventName: stripe.String(meterName),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(w, err)
	w.meter = m.ID
	p, err := w.api.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(w, err)
	price := func(name string, p *stripe.PriceParams) {
		got, err := w.api.Prices.New(p)
		require.NoError(w, err)
		w.prices[name] = got.ID
	}
	for _, name := range []string{"pro_monthly", "unknown_monthly"} {
		price(name, &stripe.PriceParams{
			Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(2_000), LookupKey: stripe.String(name),
			Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
		})
	}
	price("usage", &stripe.PriceParams{
		Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(w.meter)},
	})
}

// subscribe makes a customer that names the account, and puts it on prices.
func (w *world) subscribe(account string, prices ...string) (customer string, sub *stripe.Subscription) {
	w.Helper()
	p := &stripe.CustomerParams{}
	p.AddMetadata("account_id", account)
	c, err := w.api.Customers.New(p)
	require.NoError(w, err)
	s := &stripe.SubscriptionParams{Customer: stripe.String(c.ID)}
	for _, name := range prices {
		s.Items = append(s.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(w.prices[name])})
	}
	sub, err = w.api.Subscriptions.New(s)
	require.NoError(w, err)
	return c.ID, sub
}

// use counts units of an account now, whatever its ceiling.
func (w *world) use(account string, units int64) int64 {
	w.Helper()
	now := w.sim.Now()
	keys, err := usage.Contact(w.Context(), w.db, usage.ContactRequest{Node: w.node, Account: account, At: now, Feature: "nothing"})
	require.NoError(w, err)
	for _, k := range keys {
		if k.Feature == "events" && !now.Before(k.Starts) && now.Before(k.Ends) {
			w.used[k.Key] += units
			w.seal([]int64{k.Key}, []int64{w.used[k.Key]})
			return k.Key
		}
	}
	require.FailNow(w, "no key", "account %s at %s", account, now)
	return 0
}

// seal is a node's batch: everything before now is in it.
func (w *world) seal(keys, upto []int64) {
	w.Helper()
	latest, _, err := usage.Changes(w.Context(), w.db, 0)
	require.NoError(w, err)
	now := w.sim.Now()
	_, err = usage.Flush(w.Context(), w.db, usage.Batch{Node: w.node, Keys: keys, Upto: upto, At: now, Sealed: now, Applied: latest})
	require.NoError(w, err)
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
	ctx := w.Context()
	w.fold()
	for range 50 {
		n, err := w.b.SyncDue(ctx, 100)
		require.NoError(w, err)
		_, err = w.b.Close(ctx)
		require.NoError(w, err)
		require.NoError(w, w.b.Report(ctx))
		m, err := w.b.ReadDueInvoices(ctx, 100)
		require.NoError(w, err)
		if n == 0 && m == 0 {
			return
		}
	}
	require.FailNow(w, "there is always more to do")
}

// advance moves time in steps in which the node seals and the worker works.
func (w *world) advance(to time.Time, step time.Duration) {
	w.Helper()
	for now := w.sim.Now(); now.Before(to); now = w.sim.Now() {
		next := now.Add(step)
		if next.After(to) {
			next = to
		}
		require.NoError(w, w.sim.Advance(w.Context(), next))
		w.seal(nil, nil)
		w.work()
	}
}

// over makes an account on plan pro that has used all that is included, and so much more.
func (w *world) over(account string, units int64) (customer string, key int64) {
	w.Helper()
	customer, _ = w.subscribe(account, "pro_monthly", "usage")
	w.advance(w.sim.Now().Add(11*time.Minute), 5*time.Minute)
	return customer, w.use(account, 1_000+units)
}

func (w *world) hour() { w.advance(w.sim.Now().Add(time.Hour), time.Hour) }

func (w *world) exec(sql string, args ...any) {
	w.Helper()
	_, err := w.db.Exec(w.Context(), sql, args...)
	require.NoError(w, err)
}

// visitor is a client of the admin: a browser with its cookies, or a program.
type visitor struct {
	*world
	http    *http.Client
	headers []string
}

type answer struct {
	status int
	header http.Header
	body   string
}

// browser is somebody who has not signed in.
func (w *world) browser(headers ...string) *visitor {
	w.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(w, err)
	return &visitor{world: w, headers: append([]string{"Accept", "text/html"}, headers...), http: &http.Client{
		Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second,
	}}
}

// signedIn is a browser after the login page.
func (w *world) signedIn(name string) *visitor {
	w.Helper()
	v := w.browser()
	a := v.post("/admin/login", url.Values{"name": {name}, "token": {w.cfg.Token}})
	require.Equal(w, http.StatusSeeOther, a.status, a.body)
	return v
}

func (v *visitor) do(method, path string, form url.Values, headers ...string) answer {
	v.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(v.Context(), method, v.url+path, body)
	require.NoError(v, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	all := append(append([]string{}, v.headers...), headers...)
	for i := 0; i < len(all); i += 2 {
		r.Header.Set(all[i], all[i+1])
	}
	res, err := v.http.Do(r)
	require.NoError(v, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(v, err)
	return answer{res.StatusCode, res.Header, string(b)}
}

func (v *visitor) get(path string, headers ...string) answer {
	v.Helper()
	return v.do(http.MethodGet, path, nil, headers...)
}

// post sends a form as it is; a page's own form has a key.
func (v *visitor) post(path string, form url.Values, headers ...string) answer {
	v.Helper()
	return v.do(http.MethodPost, path, form, headers...)
}

// page is a page, which must be there.
func (v *visitor) page(path string) string {
	v.Helper()
	a := v.get(path)
	require.Equal(v, http.StatusOK, a.status, a.body)
	return a.body
}

var formKey = regexp.MustCompile(`name="key" value="([^"]+)"`)

// key is what the forms of a page carry.
func (v *visitor) key(path string) string {
	v.Helper()
	m := formKey.FindStringSubmatch(v.page(path))
	require.NotNil(v, m, "no form on %s", path)
	return m[1]
}
