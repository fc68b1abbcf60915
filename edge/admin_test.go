package edge_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
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

const (
	token     = "the admin's token"
	meterName = "requests_overage"
)

var opened = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// office is an installation whose business time is the Stripe simulator's, and the admin over it.
type office struct {
	*testing.T
	db     *pgxpool.Pool
	sim    *stripesim.Server
	api    *client.API
	b      *billing.Biller
	prices map[string]string
	node   int64
	used   map[int64]int64
	url    string
}

func newOffice(t *testing.T, tune ...func(*admin.Config)) *office {
	t.Helper()
	o := &office{T: t, db: schematest.Pool(t), prices: map[string]string{}, used: map[int64]int64{}}
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.b.Webhook().ServeHTTP(w, r) }))
	t.Cleanup(hook.Close)
	o.sim = stripesim.New(stripesim.Config{Start: opened, Webhooks: []stripesim.Webhook{{URL: hook.URL, Secret: "whsec_test"}}})
	at, stop, err := o.sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	hc := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	o.api = client.New(o.sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(at), HTTPClient: hc, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	c, err := billing.NewClient(billing.ClientConfig{Key: o.sim.APIKey(), BaseURL: at, HTTPClient: hc, EventsPerSecond: 100_000, ReadsPerSecond: 100_000})
	require.NoError(t, err)
	o.b, err = billing.New(o.db, billing.Config{
		Stripe: c, Clock: o.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{"whsec_test"}, LookEach: time.Nanosecond,
	})
	require.NoError(t, err)
	file, err := plans.Parse([]byte(planFile))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), o.db, file, "test", o.sim.Now())
	require.NoError(t, err)
	n, err := usage.Register(t.Context(), o.db, "api-1", "1.4.0", o.sim.Now())
	require.NoError(t, err)
	o.node = n.ID
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
	m, err := o.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("requests"), EventName: stripe.String(meterName),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(o, err)
	p, err := o.api.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(o, err)
	price := func(name string, p *stripe.PriceParams) {
		got, err := o.api.Prices.New(p)
		require.NoError(o, err)
		o.prices[name] = got.ID
	}
	for _, name := range []string{"pro_monthly", "scale_monthly", "pro_2027"} {
		price(name, &stripe.PriceParams{
			Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(4_900), LookupKey: stripe.String(name),
			Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
		})
	}
	price("usage", &stripe.PriceParams{
		Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m.ID)},
	})
}

func (o *office) subscribe(account string, prices ...string) string {
	o.Helper()
	p := &stripe.CustomerParams{}
	p.AddMetadata("account_id", account)
	c, err := o.api.Customers.New(p)
	require.NoError(o, err)
	s := &stripe.SubscriptionParams{Customer: stripe.String(c.ID)}
	for _, name := range prices {
		s.Items = append(s.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(o.prices[name])})
	}
	_, err = o.api.Subscriptions.New(s)
	require.NoError(o, err)
	return c.ID
}

// use counts units of requests now.
func (o *office) use(account string, units int64) int64 {
	o.Helper()
	now := o.sim.Now()
	keys, err := usage.Contact(o.Context(), o.db, usage.ContactRequest{Node: o.node, Account: account, At: now, Feature: "nothing"})
	require.NoError(o, err)
	for _, k := range keys {
		if k.Feature == "requests" && !now.Before(k.Starts) && now.Before(k.Ends) {
			o.used[k.Key] += units
			o.seal([]int64{k.Key}, []int64{o.used[k.Key]})
			return k.Key
		}
	}
	require.FailNow(o, "no key", account)
	return 0
}

func (o *office) seal(keys, upto []int64) {
	o.Helper()
	latest, _, err := usage.Changes(o.Context(), o.db, 0)
	require.NoError(o, err)
	now := o.sim.Now()
	_, err = usage.Flush(o.Context(), o.db, usage.Batch{Node: o.node, Keys: keys, Upto: upto, At: now, Sealed: now, Applied: latest})
	require.NoError(o, err)
}

// work does what a worker would find due.
func (o *office) work() {
	o.Helper()
	ctx := o.Context()
	for n := int64(1); n > 0; {
		var err error
		n, err = usage.Fold(ctx, o.db, 5000)
		require.NoError(o, err)
	}
	for range 50 {
		n, err := o.b.SyncDue(ctx, 100)
		require.NoError(o, err)
		_, err = o.b.Close(ctx)
		require.NoError(o, err)
		require.NoError(o, o.b.Report(ctx))
		m, err := o.b.ReadDueInvoices(ctx, 100)
		require.NoError(o, err)
		if n == 0 && m == 0 {
			break
		}
	}
	_, err := usage.RefreshPressing(ctx, o.db, o.sim.Now(), 0)
	require.NoError(o, err)
}

func (o *office) advance(d, step time.Duration) {
	o.Helper()
	for to := o.sim.Now().Add(d); o.sim.Now().Before(to); {
		require.NoError(o, o.sim.Advance(o.Context(), o.sim.Now().Add(min(step, to.Sub(o.sim.Now())))))
		o.seal(nil, nil)
		o.work()
	}
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
	o.seal([]int64{key + 1_000_000}, []int64{7})
	gone, err := usage.Register(t.Context(), o.db, "api-2", "1.3.2", o.sim.Now())
	require.NoError(t, err)
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
		"/admin/held": "admin-held", "/admin/search?q=org_": "admin-search", fmt.Sprintf("/admin/nodes/%d", o.node): "admin-node",
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
	for _, path := range []string{"/admin/", "/admin/findings", "/admin/nodes", "/admin/accounts", "/admin/books/2026-04", "/admin/held", fmt.Sprintf("/admin/nodes/%d", o.node)} {
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
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), fmt.Sprintf("%d\r", o.node)))
	b.do(chromedp.WaitVisible(chromedp.CSS(".sheet")))
	require.Contains(t, b.text("h1"), "Node")
	b.do(chromedp.SendKeys(chromedp.CSS("#q"), "org_\r"))
	b.do(chromedp.WaitVisible(chromedp.CSS(".matches")))
	require.Equal(t, 4, value[int](b, `document.querySelectorAll(".matches li").length`))
	b.quiet()
}
