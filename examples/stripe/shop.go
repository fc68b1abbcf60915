package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/plans"
)

// read reads the arguments.
func read(catalog *plans.Catalog, args []string) ([]subscription, error) {
	var out []subscription
	for _, arg := range args {
		account, name, ok := strings.Cut(arg, "=")
		if !ok || account == "" {
			return nil, fmt.Errorf("%q: write ACCOUNT=PLAN, such as acme=pro", arg)
		}
		plan, ok := catalog.Plan(name)
		if !ok {
			return nil, fmt.Errorf("%q: the plan file has no plan %q", arg, name)
		}
		if len(plan.Prices()) == 0 {
			return nil, fmt.Errorf("%q: plan %s has no prices, so nobody can subscribe to it", arg, name)
		}
		out = append(out, subscription{account, plan})
	}
	return out, nil
}

// shop is a client of the simulator. It speaks as billing's own client does, and makes what a host's checkout would.
type shop struct {
	base   string
	http   *http.Client
	prices map[string]string // id, by lookup key
	meters map[string]string // id of the metered price, by the meter's event_name
}

// sell makes what `worker plans push` makes. Each plan's own price costs 49.00 a month here.
func (s *shop) sell(ctx context.Context, catalog *plans.Catalog) error {
	client, err := billing.NewClient(billing.ClientConfig{Key: key, BaseURL: s.base})
	if err != nil {
		return err
	}
	offer, err := client.Offer(ctx, catalog)
	if err != nil {
		return fmt.Errorf("read what is sold: %w", err)
	}
	amounts := map[string]billing.Amount{}
	for _, p := range catalog.Plans() {
		for _, name := range p.Prices() {
			amounts[name] = billing.Amount{Amount: "49.00", Interval: "month"}
		}
	}
	steps, _, err := offer.Steps(amounts)
	if err != nil {
		return err
	}
	if err := client.Push(ctx, steps, func(billing.Step, string) {}); err != nil {
		return fmt.Errorf("make what is sold: %w", err)
	}
	return s.look(ctx)
}

// look reads the ids of prices: of the first hundred, which is as long as a page of Stripe's is.
func (s *shop) look(ctx context.Context) error {
	var meters struct {
		Data []struct {
			ID        string `json:"id"`
			EventName string `json:"event_name"`
		} `json:"data"`
	}
	if err := s.call(ctx, http.MethodGet, "/v1/billing/meters?limit=100", nil, &meters); err != nil {
		return err
	}
	events := map[string]string{}
	for _, m := range meters.Data {
		events[m.ID] = m.EventName
	}
	var prices struct {
		Data []struct {
			ID        string `json:"id"`
			LookupKey string `json:"lookup_key"`
			Recurring struct {
				Meter string `json:"meter"`
			} `json:"recurring"`
		} `json:"data"`
	}
	if err := s.call(ctx, http.MethodGet, "/v1/prices?limit=100", nil, &prices); err != nil {
		return err
	}
	s.prices, s.meters = map[string]string{}, map[string]string{}
	for _, p := range prices.Data {
		if event := events[p.Recurring.Meter]; event != "" {
			s.meters[event] = p.ID
		} else {
			s.prices[p.LookupKey] = p.ID
		}
	}
	return nil
}

// subscribe makes a customer that says whose it is, and a subscription to the plan's first price and to a metered price
// for each feature whose overage the plan bills.
func (s *shop) subscribe(ctx context.Context, w subscription, catalog *plans.Catalog) (customer string, err error) {
	items := url.Values{}
	add := func(what, id string) error {
		if id == "" {
			return fmt.Errorf("%s is not for sale here: give the plan a lookup key, and its overage a price", what)
		}
		items.Set("items["+strconv.Itoa(len(items))+"][price]", id)
		return nil
	}
	name := w.plan.Prices()[0]
	if err := add("price "+name, s.prices[name]); err != nil {
		return "", err
	}
	for _, q := range w.plan.Quotas() {
		if f, _ := catalog.Feature(q.Feature); q.BillOverage {
			if err := add("meter "+f.Meter, s.meters[f.Meter]); err != nil {
				return "", err
			}
		}
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := s.call(ctx, http.MethodPost, "/v1/customers", url.Values{"name": {w.account}, "metadata[account_id]": {w.account}}, &made); err != nil {
		return "", err
	}
	customer = made.ID
	items.Set("customer", customer)
	return customer, s.call(ctx, http.MethodPost, "/v1/subscriptions", items, &made)
}

// call asks the simulator.
func (s *shop) call(ctx context.Context, method, path string, form url.Values, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := s.http.Do(r)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	_ = res.Body.Close()
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: answered %d: %s", method, path, res.StatusCode, body)
	}
	return json.Unmarshal(body, into)
}
