package demo

import (
	"context"
	_ "embed" // the plan file
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/internal/stripesim"
)

//go:embed plans.yaml
var planFile string

// account is one customer of the demo and what was seen of it on all sides. Counts are units.
type account struct {
	id    string
	plan  string
	asks  int64 // units asked for in random amounts, before single ones fill the rest
	most  int64 // units of one call
	fills bool  // single units follow until one is refused

	customer string    // at Stripe; empty for free accounts
	ends     time.Time // of the subscription's month

	asked, admitted, refused int64 // as the callers saw it
	calls                    int64
}

// cast is who takes part: two that are stopped at their quota, one within it, two that go over, one up to its maximum.
func cast() []*account {
	return []*account{
		{id: "fern", plan: "free", asks: 12_345, most: 50, fills: true},
		{id: "moss", plan: "free", asks: 4_321, most: 20},
		{id: "oak", plan: "pro", asks: 750_000, most: 1_500},
		{id: "birch", plan: "pro", asks: 1_234_567, most: 2_000},
		{id: "cedar", plan: "pro", asks: 6_500_000, most: 9_000, fills: true},
	}
}

const draftTime = time.Hour // that an invoice stays a draft

// startStripe starts the simulator on the demo's clock and sells the plan file's pro plan there: a monthly price, and a
// metered price on the meter for what goes over.
func (w *world) startStripe(ctx context.Context) error {
	w.hook = "whsec_of_the_demo"
	w.stripe = stripesim.New(stripesim.Config{Clock: w.clock, Seed: w.cfg.Seed})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.asking.RLock()
		defer w.asking.RUnlock()
		w.stripe.ServeHTTP(rw, r)
	})}
	go func() { _ = server.Serve(l) }()
	w.onClose(func() { _ = server.Close() })
	w.stripeAt = "http://" + l.Addr().String()
	running, cancel := context.WithCancel(context.Background())
	w.onClose(cancel)
	go w.tick(running)
	w.say.detail("simulated, at %s, and its clock reads %s", w.stripeAt, w.clock.Now().Format(time.RFC1123))
	return w.sell(ctx)
}

// tick lets the simulator do what is due, again and again.
func (w *world) tick(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		w.ticking.Lock()
		_ = w.stripe.Tick(ctx) // it fails with ctx alone
		w.ticking.Unlock()
	}
}

func (w *world) api() *client.API {
	return client.New(w.stripe.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		URL: stripe.String(w.stripeAt), MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}))
}

func (w *world) sell(ctx context.Context) error {
	api := w.api()
	meter := &stripe.BillingMeterParams{
		DisplayName: stripe.String("Events over the quota"), EventName: stripe.String("weir_events_overage"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	}
	meter.Context = ctx
	m, err := api.BillingMeters.New(meter)
	if err != nil {
		return fmt.Errorf("make the meter: %w", err)
	}
	product := &stripe.ProductParams{Name: stripe.String("Pro")}
	product.Context = ctx
	p, err := api.Products.New(product)
	if err != nil {
		return fmt.Errorf("make the product: %w", err)
	}
	base := &stripe.PriceParams{
		Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(4900), LookupKey: stripe.String("pro_monthly"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
	}
	base.Context = ctx
	if _, err := api.Prices.New(base); err != nil {
		return fmt.Errorf("make the monthly price: %w", err)
	}
	over := &stripe.PriceParams{
		// $0.40 per 1,000 is 0.04 cents a unit.
		Product: stripe.String(p.ID), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04), LookupKey: stripe.String("pro_overage"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m.ID)},
	}
	over.Context = ctx
	if _, err := api.Prices.New(over); err != nil {
		return fmt.Errorf("make the overage price: %w", err)
	}
	return nil
}

// subscribe gives every pro account a customer and a subscription, and waits until each node knows its plan.
func (w *world) subscribe(ctx context.Context) error {
	w.accounts = cast()
	api := w.api()
	prices := make(map[string]string)
	list := api.Prices.List(&stripe.PriceListParams{LookupKeys: stripe.StringSlice([]string{"pro_monthly", "pro_overage"})})
	for list.Next() {
		prices[list.Price().LookupKey] = list.Price().ID
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("list prices: %w", err)
	}
	for _, a := range w.accounts {
		if a.plan == "free" {
			continue
		}
		customer := &stripe.CustomerParams{Name: stripe.String(a.id), Metadata: map[string]string{"account_id": a.id}}
		customer.Context = ctx
		c, err := api.Customers.New(customer)
		if err != nil {
			return fmt.Errorf("make customer %s: %w", a.id, err)
		}
		a.customer = c.ID
		sub := &stripe.SubscriptionParams{
			Customer: stripe.String(c.ID),
			Items: []*stripe.SubscriptionItemsParams{
				{Price: stripe.String(prices["pro_monthly"])}, {Price: stripe.String(prices["pro_overage"])},
			},
		}
		sub.Context = ctx
		made, err := api.Subscriptions.New(sub)
		if err != nil {
			return fmt.Errorf("subscribe %s: %w", a.id, err)
		}
		a.ends = time.Unix(made.CurrentPeriodEnd, 0).UTC()
		if a.ends.After(w.ends) {
			w.ends = a.ends
		}
	}
	w.say.detail("by webhook, each read back from Stripe")
	for _, a := range w.accounts {
		for _, c := range w.enforcer {
			err := until(ctx, func() (bool, error) {
				plan, err := c.planOf(a.id)
				return plan == a.plan, err
			})
			if err != nil {
				return fmt.Errorf("%s does not learn that %s is on plan %s: %w", c.name, a.id, a.plan, err)
			}
		}
	}
	return nil
}
