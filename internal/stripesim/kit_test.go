package stripesim_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/internal/stripesim"
)

const basil = "2025-03-31.basil"

// kit is a simulator behind a real listener, with stripe-go as its caller.
type kit struct {
	t   *testing.T
	sim *stripesim.Server
	url string
	api *client.API
	be  stripe.Backend
}

func start(t *testing.T, cfg stripesim.Config) *kit {
	t.Helper()
	sim := stripesim.New(cfg)
	url, stop, err := sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	backends := stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), HTTPClient: &http.Client{Transport: transport}, MaxNetworkRetries: stripe.Int64(0),
		EnableTelemetry: stripe.Bool(false), LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	})
	return &kit{t: t, sim: sim, url: url, api: client.New(sim.APIKey(), backends), be: backends.API}
}

func (k *kit) advance(to time.Time) {
	k.t.Helper()
	require.NoError(k.t, k.sim.Advance(k.t.Context(), to))
}

func (k *kit) customer() string {
	k.t.Helper()
	c, err := k.api.Customers.New(&stripe.CustomerParams{})
	require.NoError(k.t, err)
	return c.ID
}

func (k *kit) meter(event string) string {
	k.t.Helper()
	m, err := k.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String(event), EventName: stripe.String(event),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(k.t, err)
	return m.ID
}

func (k *kit) product() string {
	k.t.Helper()
	p, err := k.api.Products.New(&stripe.ProductParams{Name: stripe.String("API calls")})
	require.NoError(k.t, err)
	return p.ID
}

func (k *kit) price(product string, p stripe.PriceParams) string {
	k.t.Helper()
	p.Product, p.Currency = stripe.String(product), stripe.String("usd")
	if p.Recurring == nil {
		p.Recurring = &stripe.PriceRecurringParams{Interval: stripe.String("month")}
	}
	got, err := k.api.Prices.New(&p)
	require.NoError(k.t, err)
	return got.ID
}

// licensed is a price of that many cents a month.
func (k *kit) licensed(product string, cents int64) string {
	return k.price(product, stripe.PriceParams{UnitAmount: stripe.Int64(cents)})
}

// metered is a price of that many cents a unit of the meter, a month.
func (k *kit) metered(product, meter string, cents float64) string {
	return k.price(product, stripe.PriceParams{
		UnitAmountDecimal: stripe.Float64(cents),
		Recurring:         &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(meter)},
	})
}

func items(prices ...string) []*stripe.SubscriptionItemsParams {
	out := make([]*stripe.SubscriptionItemsParams, 0, len(prices))
	for _, p := range prices {
		out = append(out, &stripe.SubscriptionItemsParams{Price: stripe.String(p)})
	}
	return out
}

func (k *kit) subscribe(customer string, prices ...string) *stripe.Subscription {
	k.t.Helper()
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(customer), Items: items(prices...)})
	require.NoError(k.t, err)
	return sub
}

func (k *kit) subscription(id string) *stripe.Subscription {
	k.t.Helper()
	sub, err := k.api.Subscriptions.Get(id, nil)
	require.NoError(k.t, err)
	return sub
}

// plan is a customer with a licensed base of $10 and a metered price of 0.04
// cents a unit.
type plan struct {
	product, customer, meter, base, usage string
	sub                                   *stripe.Subscription
}

func (k *kit) plan(event string) plan {
	k.t.Helper()
	p := plan{product: k.product(), customer: k.customer(), meter: k.meter(event)}
	p.base, p.usage = k.licensed(p.product, 1000), k.metered(p.product, p.meter, 0.04)
	p.sub = k.subscribe(p.customer, p.base, p.usage)
	return p
}

func event(name, customer string, value int64, at time.Time, identifier string) *stripe.BillingMeterEventParams {
	p := &stripe.BillingMeterEventParams{
		EventName: stripe.String(name), Timestamp: stripe.Int64(at.Unix()),
		Payload: map[string]string{"stripe_customer_id": customer, "value": strconv.FormatInt(value, 10)},
	}
	if identifier != "" {
		p.Identifier = stripe.String(identifier)
	}
	return p
}

func (k *kit) send(name, customer string, value int64, at time.Time, identifier string) {
	k.t.Helper()
	_, err := k.api.BillingMeterEvents.New(event(name, customer, value, at, identifier))
	require.NoError(k.t, err)
}

// refused asserts that err is Stripe's answer with this status, and returns it.
func refused(t *testing.T, err error, status int) *stripe.Error {
	t.Helper()
	var e *stripe.Error
	require.True(t, errors.As(err, &e), "want a Stripe error, got %v", err)
	require.Equal(t, status, e.HTTPStatusCode, e.Msg)
	return e
}

func date(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

// receiver is a webhook endpoint that keeps what it gets.
type receiver struct {
	url    string
	mu     sync.Mutex
	got    []received
	answer func(r received) int
}

type received struct {
	body   []byte
	header http.Header
}

func listen(t *testing.T) *receiver {
	t.Helper()
	rec := &receiver{answer: func(received) int { return http.StatusOK }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		one := received{body: body, header: r.Header}
		rec.mu.Lock()
		rec.got = append(rec.got, one)
		answer := rec.answer
		rec.mu.Unlock()
		w.WriteHeader(answer(one))
	}))
	t.Cleanup(srv.Close)
	rec.url = srv.URL
	return rec
}

func (r *receiver) respond(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = func(received) int { return status }
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}
