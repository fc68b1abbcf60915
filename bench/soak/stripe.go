package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
)

// post asks the simulator for something, without a socket, and returns its id.
func (s *stack) post(ctx context.Context, path string, form url.Values) (string, error) {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Authorization", "Bearer "+s.stripe.APIKey())
	w := httptest.NewRecorder()
	s.stripe.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		return "", fmt.Errorf("post %s: %d: %s", path, w.Code, w.Body)
	}
	var out struct{ ID string }
	err := json.Unmarshal(w.Body.Bytes(), &out)
	return out.ID, err
}

// sell makes the meter and the two prices of the pro plan.
func (s *stack) sell(ctx context.Context) error {
	meter, err := s.post(ctx, "/v1/billing/meters", url.Values{
		"display_name": {"events"}, "event_name": {"weir_events_overage"}, "default_aggregation[formula]": {"sum"},
	})
	if err != nil {
		return err
	}
	product, err := s.post(ctx, "/v1/products", url.Values{"name": {"Pro"}})
	if err != nil {
		return err
	}
	if _, err = s.post(ctx, "/v1/prices", url.Values{
		"product": {product}, "currency": {"usd"}, "unit_amount": {"4900"}, "lookup_key": {"pro_monthly"}, "recurring[interval]": {"month"},
	}); err != nil {
		return err
	}
	_, err = s.post(ctx, "/v1/prices", url.Values{
		"product": {product}, "currency": {"usd"}, "unit_amount_decimal": {"0.04"}, "lookup_key": {"pro_overage"}, "recurring[interval]": {"month"},
		"recurring[usage_type]": {"metered"}, "recurring[meter]": {meter},
	})
	return err
}

// subscribe gives an account a customer and the pro plan.
func (s *stack) subscribe(ctx context.Context, account string, prices [2]string) (customer string, err error) {
	customer, err = s.post(ctx, "/v1/customers", url.Values{"name": {account}, "metadata[account_id]": {account}})
	if err != nil {
		return "", err
	}
	_, err = s.post(ctx, "/v1/subscriptions", url.Values{"customer": {customer}, "items[0][price]": {prices[0]}, "items[1][price]": {prices[1]}})
	return customer, err
}

// prices finds the ids of the two prices by their lookup keys.
func (s *stack) prices(ctx context.Context) (ids [2]string, err error) {
	for i, key := range []string{"pro_monthly", "pro_overage"} {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/prices?lookup_keys[]="+key, nil)
		r.Header.Set("Authorization", "Bearer "+s.stripe.APIKey())
		w := httptest.NewRecorder()
		s.stripe.ServeHTTP(w, r)
		var out struct{ Data []struct{ ID string } }
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || len(out.Data) != 1 {
			return ids, fmt.Errorf("find price %s: %d: %s", key, w.Code, w.Body)
		}
		ids[i] = out.Data[0].ID
	}
	return ids, nil
}
