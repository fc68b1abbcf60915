package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/plans"
)

// Offer is what a plan file needs at Stripe, as it is there now: meters, products and prices. It is read once and never
// changes; safe for concurrent use.
type Offer struct {
	catalog  *plans.Catalog
	live     bool
	meters   []meter
	prices   map[string]offered // by lookup key or id, as the plan file names them
	errors   map[string]string  // price ids that could not be read, and what Stripe said
	metered  map[string][]offered
	products map[string]product
}

// offered is a price as far as it is compared.
type offered struct {
	price
	Active   bool   `json:"active"`
	Livemode bool   `json:"livemode"`
	Tiers    []tier `json:"tiers"`
}

type tier struct {
	UpTo   *int64 `json:"up_to"`
	Amount string `json:"unit_amount_decimal"`
	Flat   string `json:"flat_amount_decimal"`
}

type product struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Active bool   `json:"active"`
}

// keysAtOnce is how many lookup keys Stripe takes in one list.
const keysAtOnce = 10

// Offer reads what the catalog needs. It changes nothing.
func (c *Client) Offer(ctx context.Context, catalog *plans.Catalog) (*Offer, error) {
	o := &Offer{
		catalog: catalog, live: c.live, prices: map[string]offered{}, errors: map[string]string{}, metered: map[string][]offered{},
		products: map[string]product{},
	}
	var err error
	o.meters, err = pages(ctx, c, "/v1/billing/meters", "", "", func(m *meter) string { return m.ID })
	if err != nil {
		return nil, fmt.Errorf("read meters: %w", err)
	}
	if err := o.readNamed(ctx, c); err != nil {
		return nil, err
	}
	for _, sold := range o.overages() {
		m, ok := o.meter(sold.feature.Meter)
		if !ok {
			continue
		}
		o.metered[m.ID], err = pages(ctx, c, "/v1/prices", "", "", func(p *offered) string { return p.ID },
			"recurring[meter]", m.ID, "active", "true", "expand[]", "data.tiers")
		if err != nil {
			return nil, fmt.Errorf("read the prices of meter %s: %w", sold.feature.Meter, err)
		}
	}
	if err := o.readProducts(ctx, c); err != nil {
		return nil, err
	}
	return o, nil
}

// readNamed reads the prices that the file names: by id, and by lookup key.
func (o *Offer) readNamed(ctx context.Context, c *Client) error {
	var keys []string
	for _, p := range o.catalog.Plans() {
		for _, name := range p.Prices() {
			if !isPriceID(name) {
				keys = append(keys, name)
				continue
			}
			one, _, err := call[offered](ctx, c, request{method: http.MethodGet, path: "/v1/prices/" + name, endpoint: "GET /v1/prices/{id}"})
			switch {
			case isMissing(err):
				o.errors[name] = messageOf(err)
			case err != nil:
				return fmt.Errorf("read price %s: %w", name, err)
			default:
				o.prices[name] = one
			}
		}
	}
	for _, s := range o.overages() {
		for _, p := range s.prices {
			keys = append(keys, overageKey(s.feature.Meter, p, o.catalog.Currency()))
		}
	}
	for chunk := range slices.Chunk(keys, keysAtOnce) {
		params := []string{"limit", pageSize}
		for _, k := range chunk {
			params = append(params, "lookup_keys[]", k)
		}
		page, _, err := call[list[offered]](ctx, c, request{method: http.MethodGet, path: "/v1/prices", form: values(params...)})
		if err != nil {
			return fmt.Errorf("read prices by lookup key: %w", err)
		}
		for _, p := range page.Data {
			o.prices[p.LookupKey] = p
		}
	}
	return nil
}

// readProducts reads the products that push would make, and those of the prices that are there.
func (o *Offer) readProducts(ctx context.Context, c *Client) error {
	want := map[string]bool{}
	for _, p := range o.catalog.Plans() {
		if len(p.Prices()) > 0 {
			want[planProduct(p.Name)] = true
		}
	}
	for _, s := range o.overages() {
		want[meterProduct(s.feature.Meter)] = true
	}
	for _, p := range o.prices {
		want[string(p.Product)] = true
	}
	for _, all := range o.metered {
		for _, p := range all {
			want[string(p.Product)] = true
		}
	}
	for id := range want {
		p, _, err := call[product](ctx, c, request{method: http.MethodGet, path: "/v1/products/" + id, endpoint: "GET /v1/products/{id}"})
		if isMissing(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read product %s: %w", id, err)
		}
		o.products[id] = p
	}
	return nil
}

// overage is a feature that some plan sells beyond what is included, with each price that a plan states for it.
type overage struct {
	feature plans.Feature
	prices  []plans.Price // stated; empty: Stripe's price decides
	noPrice []string      // plans that state none
	noMax   []string      // plans without a maximum
}

// overages lists what is sold beyond plans, in the order of the file.
func (o *Offer) overages() []overage {
	var all []overage
	for _, f := range o.catalog.Features() {
		s := overage{feature: f}
		sold := false
		for _, p := range o.catalog.Plans() {
			q, ok := p.Quota(f.Name)
			if !ok || !q.BillOverage {
				continue
			}
			sold = true
			if q.Price.FromStripe() {
				s.noPrice = append(s.noPrice, p.Name)
			} else if !slices.ContainsFunc(s.prices, q.Price.Equal) {
				s.prices = append(s.prices, q.Price)
			}
			if q.Max.IsUnlimited() {
				s.noMax = append(s.noMax, p.Name)
			}
		}
		if sold {
			all = append(all, s)
		}
	}
	return all
}

// meter is the active meter of an event name.
func (o *Offer) meter(event string) (meter, bool) {
	i := slices.IndexFunc(o.meters, func(m meter) bool { return m.EventName == event && m.Status == "active" })
	if i < 0 {
		return meter{}, false
	}
	return o.meters[i], true
}

func isPriceID(name string) bool { return strings.HasPrefix(name, "price_") }

// Products have ids of ours, so that a push that was broken off finds what it made.
func planProduct(plan string) string   { return "weir_plan_" + plan }
func meterProduct(event string) string { return "weir_meter_" + event }

// overageKey is the lookup key of a metered price. It holds the price, so that another price is another object.
func overageKey(event string, p plans.Price, currency string) string {
	return event + "_" + p.UnitAmountDecimal() + "_" + currency
}

func messageOf(err error) string {
	var se *stripe.Error
	if errors.As(err, &se) {
		return se.Msg
	}
	return err.Error()
}
