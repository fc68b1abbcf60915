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
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/internal/usagetest"
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
	sim    *billingtest.Stripe
	b      *billing.Biller
	prices map[string]string
	meter  string
	node   *usagetest.Node
	wall   time.Time
	cfg    admin.Config
	url    string
}

func newWorld(t testing.TB, tune ...func(*admin.Config)) *world {
	t.Helper()
	w := &world{TB: t, db: schematest.Pool(t), prices: map[string]string{}, wall: start}
	hook := billingtest.Endpoint(t)
	w.sim = billingtest.Serve(t, stripesim.Config{Start: start, Webhooks: []stripesim.Webhook{
		{URL: hook.URL, Secret: hookSecret}, {URL: hook.URL, Secret: hookSecret, Thin: true},
	}})
	var err error
	w.b, err = billing.New(w.db, billing.Config{
		Stripe: w.sim.Client(), Clock: w.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{hookSecret}, LookEach: time.Nanosecond,
	})
	require.NoError(t, err)
	hook.Serve(w.b.Webhook())
	usagetest.Publish(t, w.db, planFile, w.sim.Now())
	w.node = usagetest.Register(t, w.db, "node", w.sim.Now())
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
	w.meter = w.sim.Meter(meterName)
	product := w.sim.Product()
	for _, name := range []string{"pro_monthly", "unknown_monthly"} {
		w.prices[name] = w.sim.Licensed(product, name, 2_000, "month")
	}
	w.prices["usage"] = w.sim.Metered(product, w.meter, 0.04, "month")
}

// subscribe makes a customer that names the account, and puts it on prices.
func (w *world) subscribe(account string, prices ...string) (customer string, sub *stripe.Subscription) {
	w.Helper()
	var ids []string
	for _, name := range prices {
		ids = append(ids, w.prices[name])
	}
	customer = w.sim.Customer(account)
	return customer, w.sim.Subscribe(customer, ids...)
}

// use counts units of an account now, whatever its ceiling.
func (w *world) use(account string, units int64) int64 {
	w.Helper()
	return w.node.Use(account, "events", units, w.sim.Now())
}

func (w *world) fold() {
	w.Helper()
	usagetest.Fold(w, w.db)
}

func (w *world) work() {
	w.Helper()
	billingtest.Work(w, w.db, w.b)
}

// advance moves time in steps in which the node seals and the worker works.
func (w *world) advance(to time.Time, step time.Duration) {
	w.Helper()
	w.sim.InSteps(to, step, func() {
		w.node.Flush(w.sim.Now())
		w.work()
	})
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
