package edge_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
)

const (
	token     = "the-token-of-the-admin"
	meterName = "requests_overage"
)

var opened = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// office is an installation whose business time is the Stripe simulator's, and the admin over it.
type office struct {
	*testing.T
	db     *pgxpool.Pool
	sim    *billingtest.Stripe
	b      *billing.Biller
	prices map[string]string
	node   *usagetest.Node
	url    string
}

func newOffice(t *testing.T, tune ...func(*admin.Config)) *office {
	t.Helper()
	o := &office{T: t, db: schematest.Pool(t), prices: map[string]string{}}
	hook := billingtest.Endpoint(t)
	o.sim = billingtest.Serve(t, stripesim.Config{Start: opened, Webhooks: []stripesim.Webhook{{URL: hook.URL, Secret: "whsec_test"}}})
	var err error
	o.b, err = billing.New(o.db, billing.Config{
		Stripe: o.sim.Client(), Clock: o.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{"whsec_test"}, LookEach: time.Nanosecond,
	})
	require.NoError(t, err)
	hook.Serve(o.b.Webhook())
	usagetest.Publish(t, o.db, planFile, o.sim.Now())
	o.node = usagetest.Register(t, o.db, "api-1", o.sim.Now())
	o.offer()
	cfg := admin.Config{DB: o.db, Biller: o.b, Clock: o.sim, Logger: slog.New(slog.DiscardHandler), Token: token}
	for _, f := range tune {
		f(&cfg)
	}
	a, err := admin.New(cfg)
	require.NoError(t, err)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	o.url = server.URL
	return o
}

// offer makes at Stripe what the plan file names.
func (o *office) offer() {
	o.Helper()
	product := o.sim.Product()
	for _, name := range []string{"pro_monthly", "scale_monthly", "pro_2027"} {
		o.prices[name] = o.sim.Licensed(product, name, 4_900, "month")
	}
	o.prices["usage"] = o.sim.Metered(product, o.sim.Meter(meterName), 0.04, "month")
}

func (o *office) subscribe(account string, prices ...string) string {
	o.Helper()
	var ids []string
	for _, name := range prices {
		ids = append(ids, o.prices[name])
	}
	customer := o.sim.Customer(account)
	o.sim.Subscribe(customer, ids...)
	return customer
}

// use counts units of requests now.
func (o *office) use(account string, units int64) int64 {
	o.Helper()
	return o.node.Use(account, "requests", units, o.sim.Now())
}

// work does what a worker would find due.
func (o *office) work() {
	o.Helper()
	billingtest.Work(o, o.db, o.b)
	_, err := usage.RefreshPressing(o.Context(), o.db, o.sim.Now(), 0)
	require.NoError(o, err)
}

func (o *office) advance(d, step time.Duration) {
	o.Helper()
	o.sim.InSteps(o.sim.Now().Add(d), step, func() {
		o.node.Flush(o.sim.Now())
		o.work()
	})
}

// signIn opens a browser that has signed in by the login page.
func (o *office) signIn(width, height int64, more ...chromedp.Action[chromedp.Void]) *tab {
	o.Helper()
	b := open(o.T, width, height, more...)
	b.load(o.url + "/admin/")
	b.do(chromedp.SendKeys(chromedp.CSS("#name"), "Ada Byron"), chromedp.SendKeys(chromedp.CSS("#token"), token), chromedp.Click(chromedp.CSS(".login button")),
		chromedp.WaitVisible(chromedp.CSS(".me")))
	b.forget()
	return b
}

// busy is an office with accounts at every level, a month behind it, faults, and nodes in every state.
func busy(t *testing.T, tune ...func(*admin.Config)) *office {
	t.Helper()
	o := newOffice(t, tune...)
	for i, units := range []int64{1_240_000, 1_060_000, 400_000} {
		account := []string{"northwind", "contoso-eu", "fabrikam"}[i]
		o.subscribe(account, "pro_monthly", "usage")
		o.advance(11*time.Minute, 11*time.Minute)
		o.use(account, units)
	}
	o.advance(30*24*time.Hour, 10*24*time.Hour)
	o.advance(28*time.Hour, 20*time.Minute*3)
	for i, units := range []int64{9_950, 8_120, 10_000, 4_300} {
		o.use(fmt.Sprintf("org_%c8f21", 'a'+i), units)
	}
	o.use("<b>bold & co</b>", 9_400)
	o.use("contoso-eu", 5_990_000)
	o.use("fabrikam", 640_000)
	// Faults.
	o.subscribe("wide-world", "pro_2027", "usage")
	o.subscribe("northwind", "pro_monthly", "usage")
	o.advance(2*time.Minute, time.Minute)
	o.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: "/v1/billing/meter_events", Count: 1}, stripesim.Refuse("The value of the payload is odd.", ""))
	o.advance(time.Hour, time.Hour)
	key := o.use("fabrikam", 5)
	o.node.Count(key+1_000_000, 7)
	o.node.Flush(o.sim.Now(), key+1_000_000)
	gone := usagetest.Register(t, o.db, "api-2", o.sim.Now())
	reaped, err := usage.Reap(t.Context(), o.db, gone.ID, 0)
	require.NoError(t, err)
	require.True(t, reaped)
	for i := range 40 {
		o.use("northwind", int64(900+700*((i*i)%7)))
		o.advance(time.Minute, time.Minute)
	}
	return o
}

func TestTheAdminsLogin(t *testing.T) {
	o := newOffice(t)
	b := open(t, 1280, 800)
	b.load(o.url + "/admin/nodes")
	b.shoot("admin-login")
	require.Equal(t, "Sign in", b.text("h1"))
	b.forget() // the browser notes the 401
	b.do(chromedp.SendKeys(chromedp.CSS("#name"), "Ada"), chromedp.SendKeys(chromedp.CSS("#token"), "wrong\r"), chromedp.WaitVisible(chromedp.CSS(".error")))
	require.Contains(t, b.text(".error"), "This is not the token")
	b.forget()
	b.do(chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"), chromedp.WaitVisible(chromedp.CSS(".me")))
	require.Equal(t, "Nodes", b.text("h1"), "where it was going")
	b.do(chromedp.Click(chromedp.CSS(".me button")), chromedp.WaitVisible(chromedp.CSS("#token")))
}

func TestTheAdminsOverview(t *testing.T) {
	o := busy(t)
	b := o.signIn(1280, 1000)
	b.shoot("admin-overview")
	require.Contains(t, b.text("main"), "What needs a person")
	require.Contains(t, b.text("#alert-finding-unknown_price"), "Next:")
	require.Contains(t, b.text("main"), "northwind")
	for path, name := range map[string]string{
		"/admin/findings": "admin-findings", "/admin/nodes": "admin-nodes", "/admin/accounts": "admin-accounts", "/admin/books/2026-04": "admin-books",
		"/admin/held": "admin-held", "/admin/search?q=org_": "admin-search", fmt.Sprintf("/admin/nodes/%d", o.node.ID): "admin-node",
	} {
		b.load(o.url + path)
		b.shoot(name)
		require.Equal(t, 1, value[int](b, `document.querySelectorAll("h1").length`), path)
		require.Zero(t, value[int](b, `[...document.querySelectorAll("input:not([type=hidden])")].filter(e => !e.labels.length).length`), path)
		require.Zero(t, value[int](b, `[...document.querySelectorAll("button, a")].filter(e => !e.textContent.trim()).length`), path)
	}
	b.load(o.url + "/admin/books/2026-04")
	require.Contains(t, b.text("main"), "They agree")
	require.Contains(t, b.text("main"), "240,000")
	b.quiet()
}

func TestTheAdminOnAPhoneAndInTheDark(t *testing.T) {
	o := busy(t)
	b := o.signIn(390, 844, dark(), noScript())
	b.shoot("admin-phone")
	for _, path := range []string{"/admin/", "/admin/findings", "/admin/nodes", "/admin/accounts", "/admin/books/2026-04", "/admin/held", fmt.Sprintf("/admin/nodes/%d", o.node.ID)} {
		b.load(o.url + path)
		require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 390, "nothing sticks out of %s", path)
		require.Zero(t, value[int](b, `[...document.querySelectorAll("button, nav a")].filter(e => e.getBoundingClientRect().height < 24).length`), path)
	}
	b.load(o.url + "/admin/books/2026-04")
	b.shoot("admin-phone-books")
	b.load(o.url + "/admin/findings")
	b.shoot("admin-phone-findings")
	wide := o.signIn(1280, 1000, dark())
	wide.shoot("admin-dark")
	wide.quiet()
	b.quiet()
}

func TestTheAdminsSearchLeadsThere(t *testing.T) {
	o := busy(t)
	b := o.signIn(1280, 800)
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), fmt.Sprintf("%d\r", o.node.ID)))
	b.do(chromedp.WaitVisible(chromedp.CSS(".sheet")))
	require.Contains(t, b.text("h1"), "Node")
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), "org_\r"))
	b.do(chromedp.WaitVisible(chromedp.CSS(".matches")))
	require.Equal(t, 4, value[int](b, `document.querySelectorAll(".matches li").length`))
	b.quiet()
}
