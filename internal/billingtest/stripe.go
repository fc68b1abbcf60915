// Package billingtest is what tests of billing stand on: a served Stripe simulator, an endpoint for its webhooks, and a
// worker's pass.
package billingtest

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

// Stripe is a simulator that is served until the test ends.
type Stripe struct {
	*stripesim.Server
	URL  string
	HTTP *http.Client
	API  *client.API // with no retries of its own

	t testing.TB
}

// Serve starts a simulator.
func Serve(t testing.TB, cfg stripesim.Config) *Stripe {
	t.Helper()
	s := &Stripe{Server: stripesim.New(cfg), t: t}
	url, stop, err := s.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	s.URL, s.HTTP = url, &http.Client{Transport: transport, Timeout: 10 * time.Second}
	s.API = client.New(s.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(url), HTTPClient: s.HTTP, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
	return s
}

// Client is a worker's client of the simulator, whose budgets never hold anything up unless tuned.
func (s *Stripe) Client(tune ...func(*billing.ClientConfig)) *billing.Client {
	s.t.Helper()
	cfg := billing.ClientConfig{Key: s.APIKey(), BaseURL: s.URL, HTTPClient: s.HTTP, EventsPerSecond: 100_000, ReadsPerSecond: 100_000}
	for _, f := range tune {
		f(&cfg)
	}
	c, err := billing.NewClient(cfg)
	require.NoError(s.t, err)
	return c
}

// Meter makes a meter that sums.
func (s *Stripe) Meter(event string) (id string) {
	s.t.Helper()
	m, err := s.API.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String(event), EventName: stripe.String(event),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	require.NoError(s.t, err)
	return m.ID
}

// Product makes a product.
func (s *Stripe) Product() (id string) {
	s.t.Helper()
	p, err := s.API.Products.New(&stripe.ProductParams{Name: stripe.String("API")})
	require.NoError(s.t, err)
	return p.ID
}

// Licensed makes a price of a plan, with a lookup key unless that is empty.
func (s *Stripe) Licensed(product, lookup string, cents int64, interval string) (id string) {
	s.t.Helper()
	p := &stripe.PriceParams{
		Product: stripe.String(product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(cents),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String(interval)},
	}
	if lookup != "" {
		p.LookupKey = stripe.String(lookup)
	}
	got, err := s.API.Prices.New(p)
	require.NoError(s.t, err)
	return got.ID
}

// Metered makes a price of a meter's units.
func (s *Stripe) Metered(product, meter string, cents float64, interval string) (id string) {
	s.t.Helper()
	got, err := s.API.Prices.New(&stripe.PriceParams{
		Product: stripe.String(product), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(cents),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String(interval), UsageType: stripe.String("metered"), Meter: stripe.String(meter)},
	})
	require.NoError(s.t, err)
	return got.ID
}

// Customer makes a customer whose metadata names an account; none when account is empty.
func (s *Stripe) Customer(account string) (id string) {
	s.t.Helper()
	p := &stripe.CustomerParams{}
	if account != "" {
		p.AddMetadata("account_id", account)
	}
	c, err := s.API.Customers.New(p)
	require.NoError(s.t, err)
	return c.ID
}

// Subscribe puts a customer on prices.
func (s *Stripe) Subscribe(customer string, prices ...string) *stripe.Subscription {
	s.t.Helper()
	p := &stripe.SubscriptionParams{Customer: stripe.String(customer)}
	for _, id := range prices {
		p.Items = append(p.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(id)})
	}
	sub, err := s.API.Subscriptions.New(p)
	require.NoError(s.t, err)
	return sub
}

// Hook is an endpoint for webhooks whose handler comes later and may go again.
type Hook struct {
	URL string

	h atomic.Pointer[http.Handler]
}

// Endpoint serves a Hook until the test ends. Without a handler it answers 503.
func Endpoint(t testing.TB) *Hook {
	t.Helper()
	h := &Hook{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := h.h.Load(); to != nil {
			(*to).ServeHTTP(w, r)
			return
		}
		http.Error(w, "no worker", http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	h.URL = server.URL
	return h
}

// Serve makes h the handler; nil takes it away.
func (k *Hook) Serve(h http.Handler) {
	if h == nil {
		k.h.Store(nil)
		return
	}
	k.h.Store(&h)
}
