package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// Right is something that the key must be allowed to do.
type Right struct {
	Name    string // as a restricted key's permissions are named
	Allowed bool
	Message string // what Stripe said; empty when allowed
}

// Restricted reports whether the key is a restricted one.
func (c *Client) Restricted() bool { return strings.HasPrefix(c.key, "rk_") }

// Rights tries what the worker needs of the key and changes nothing: reads are lists of one, writes are requests
// without the parameters that Stripe demands, which are refused for that only where the right is there. An error says
// that Stripe could not be asked, or does not know the key (IsUnauthorized).
func (c *Client) Rights(ctx context.Context) ([]Right, error) {
	var all []Right
	for _, r := range []struct{ name, method, path string }{
		{"Customers: read", http.MethodGet, "/v1/customers"},
		{"Subscriptions: read", http.MethodGet, "/v1/subscriptions"},
		{"Invoices: read", http.MethodGet, "/v1/invoices"},
		{"Prices: read", http.MethodGet, "/v1/prices"},
		{"Products: read", http.MethodGet, "/v1/products"},
		{"Billing meters: read", http.MethodGet, "/v1/billing/meters"},
		{"Webhook endpoints: read", http.MethodGet, "/v1/webhook_endpoints"},
		{"Billing meter events: write", http.MethodPost, "/v1/billing/meter_events"},
		{"Invoice items: write", http.MethodPost, "/v1/invoiceitems"},
		{"Credit notes: write", http.MethodPost, "/v1/credit_notes"},
	} {
		form := values()
		if r.method == http.MethodGet {
			form = values("limit", "1")
		}
		_, _, err := call[struct{}](ctx, c, request{method: r.method, path: r.path, form: form})
		var se *stripe.Error
		switch {
		case err == nil, errors.As(err, &se) && r.method == http.MethodPost && se.HTTPStatusCode == http.StatusBadRequest:
			all = append(all, Right{Name: r.name, Allowed: true})
		case se != nil && se.HTTPStatusCode == http.StatusForbidden:
			all = append(all, Right{Name: r.name, Message: se.Msg})
		default:
			return nil, fmt.Errorf("ask Stripe: %w", err)
		}
	}
	return all, nil
}

// IsUnauthorized reports whether Stripe does not know the key.
func IsUnauthorized(err error) bool {
	var se *stripe.Error
	return errors.As(err, &se) && se.HTTPStatusCode == http.StatusUnauthorized
}

// Endpoint is a webhook endpoint at Stripe.
type Endpoint struct {
	ID         string   `json:"id"`
	URL        string   `json:"url"`
	Status     string   `json:"status"`
	APIVersion string   `json:"api_version"` // empty: the account's, which moves
	Events     []string `json:"enabled_events"`
}

// Endpoints lists the webhook endpoints. Destinations of thin events are not among them.
func (c *Client) Endpoints(ctx context.Context) ([]Endpoint, error) {
	all, err := pages(ctx, c, "/v1/webhook_endpoints", "", "", func(e *Endpoint) string { return e.ID })
	if err != nil {
		return nil, fmt.Errorf("read webhook endpoints: %w", err)
	}
	return all, nil
}

// MissingEvents lists the types of events that the worker acts on and the endpoint does not send. All of them are
// hints: what is missed is found by the sweep, up to a day later.
func (e *Endpoint) MissingEvents() []string {
	var missing []string
	for _, want := range wantedEvents() {
		has := false
		for _, sent := range e.Events {
			has = has || sent == "*" || sent == want
		}
		if !has {
			missing = append(missing, want)
		}
	}
	return missing
}

// wantedEvents are the types that hints reads.
func wantedEvents() []string {
	return []string{
		"checkout.session.completed", "customer.updated", "customer.deleted",
		"customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted",
		"customer.subscription.paused", "customer.subscription.resumed",
		"invoice.created", "invoice.finalized", "invoice.voided", "invoice.paid", "invoice.marked_uncollectible", "price.updated",
	}
}

// Intake is what came of Stripe's side so far.
type Intake struct {
	LastWebhook time.Time // zero: none was stored, or all were pruned
	Mapped      int64     // customers that are mapped to an account
	Frozen      int64     // customers whose automatic decisions stopped, for a foreign amount on a meter
}

// Intake reads it.
func (b *Biller) Intake(ctx context.Context) (Intake, error) {
	var in Intake
	var last *time.Time
	err := b.db.QueryRow(ctx, `SELECT (SELECT max(received_at) FROM weir.webhook_events), count(*) FILTER (WHERE account_id IS NOT NULL),
		count(*) FILTER (WHERE frozen IS NOT NULL) FROM weir.customers`).Scan(&last, &in.Mapped, &in.Frozen)
	if err != nil {
		return in, fmt.Errorf("read webhooks and mappings: %w", err)
	}
	if last != nil {
		in.LastWebhook = *last
	}
	return in, nil
}
