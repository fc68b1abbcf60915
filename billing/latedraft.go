package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// errNoDraft says that the invoice of a late row was finalized, or deleted, between its choice and the item for it.
var errNoDraft = errors.New("its invoice is no draft any more, another one is looked for")

// aimedAt says what a refusal of a late row's item means. Stripe takes items on drafts only: where the invoice is none
// any more, it is read, and the row is aimed again, at what is the right invoice by then. Nothing was made, and the row
// is looked up before its next try, so that it is never on two.
func (b *Biller) aimedAt(ctx context.Context, c *Client, l *lateRow, id string, cause error) error {
	if id == "" || !IsPermanent(cause) {
		return cause
	}
	inv, _, err := call[invoice](ctx, c, request{method: http.MethodGet, path: "/v1/invoices/" + id, endpoint: "GET /v1/invoices/{id}"})
	switch {
	case err != nil && !isMissing(err):
		return fmt.Errorf("look at the invoice of late row %d: %w", l.ID, err)
	case err == nil && inv.Status == "draft":
		return cause
	}
	if err := b.readAgain(ctx, id, l.Customer, c.Live()); err != nil {
		return err
	}
	return fmt.Errorf("put late row %d on invoice %s: %w", l.ID, id, errNoDraft)
}

// readAgain reads an invoice now, whatever its webhooks did.
func (b *Biller) readAgain(ctx context.Context, id, customer string, live bool) error {
	_, err := b.db.Exec(ctx, `INSERT INTO weir.invoices AS i (invoice, customer, livemode, seen_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (invoice) DO UPDATE SET wanted = i.wanted + 1`, id, customer, live, b.now())
	if err != nil {
		return fmt.Errorf("mark invoice %s: %w", id, err)
	}
	return b.ReadInvoice(ctx, id)
}

// invoiceFor is the draft that the item goes on: the subscription's own, one of its own after the end, and none while
// the subscription lives and has no draft, so that the next invoice takes it.
func (b *Biller) invoiceFor(ctx context.Context, c *Client, l *lateRow) (string, error) {
	if l.DraftInvoice != "" || !l.SubscriptionEnded {
		return l.DraftInvoice, nil
	}
	drafts, err := pages(ctx, c, "/v1/invoices", "", "", func(i *struct {
		ID       string            `json:"id"`
		Metadata map[string]string `json:"metadata"`
	},
	) string {
		return i.ID
	}, "customer", l.Customer, "status", "draft")
	if err != nil {
		return "", fmt.Errorf("look for the invoice of late row %d: %w", l.ID, err)
	}
	for _, d := range drafts {
		if d.Metadata["weir_id"] == l.WeirID {
			return d.ID, nil
		}
	}
	inv, _, err := call[invoice](ctx, c, request{
		method: http.MethodPost, path: "/v1/invoices", idempotency: l.key("invoice"),
		form: values("customer", l.Customer, "currency", l.Currency, "auto_advance", "true", "pending_invoice_items_behavior", "exclude",
			"description", "Usage after the end of the subscription", "metadata[weir_id]", l.WeirID),
	})
	if l.heard(err); err != nil {
		return "", fmt.Errorf("make an invoice for late row %d: %w", l.ID, err)
	}
	return inv.ID, nil
}
