package billing

import (
	"context"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

type creditNote struct {
	ID       string            `json:"id"`
	Metadata map[string]string `json:"metadata"`
}

// charge is what the credited line costs with so many units of it left. Credits are differences of it, so that what is
// rounded never adds up to more than the line.
func (l *lateRow) charge(left int64) int64 {
	switch {
	case left <= 0:
		return 0
	case left >= l.CreditQuantity:
		return l.CreditAmount
	}
	return min(l.CreditAmount, decimal.NewFromInt(left).Mul(l.UnitAmount).Round(0).IntPart())
}

// credit settles units that were billed too much by a credit note on the invoice that billed them.
func (b *Biller) credit(ctx context.Context, c *Client, l *lateRow) error {
	if l.CreditLine == "" {
		return &permanentError{fmt.Errorf("credit late row %d: no line of a finalized invoice bills this key", l.ID)}
	}
	object := ""
	if l.Attempts > 1 {
		notes, err := pages(ctx, c, "/v1/credit_notes", "", "", func(n *creditNote) string { return n.ID }, "invoice", l.CreditInvoice)
		if err != nil {
			return fmt.Errorf("look for the credit note of late row %d: %w", l.ID, err)
		}
		for _, n := range notes {
			if n.Metadata["weir_id"] == l.WeirID {
				object = n.ID
			}
		}
	}
	amount := l.charge(l.CreditBefore) - l.charge(l.CreditBefore+l.Units)
	if object == "" && amount > 0 {
		form := values("invoice", l.CreditInvoice, "lines[0][type]", "invoice_line_item", "lines[0][invoice_line_item]", l.CreditLine,
			"lines[0][amount]", units(amount), "memo", "Usage that was billed too much", "metadata[weir_id]", l.WeirID)
		if l.CreditInvoiceState == "paid" {
			form.Add("credit_amount", units(amount))
		}
		n, _, err := call[creditNote](ctx, c, request{
			method: http.MethodPost, path: "/v1/credit_notes", form: form, idempotency: l.key("credit"),
		})
		if l.heard(err); err != nil {
			return fmt.Errorf("credit late row %d: %w", l.ID, err)
		}
		object = n.ID
	}
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
			return fmt.Errorf("store credit of late row %d: %w", l.ID, err)
		}
		_, err := tx.Exec(ctx, `UPDATE weir.late SET state = 'credited', answers = answers + 1, object = nullif($2, ''), invoice = $3, line = $5, settled_at = $4, error = NULL,
			reason = CASE WHEN $2 = '' THEN 'less than the smallest amount of money' ELSE reason END WHERE id = $1 AND state = 'stored'`,
			l.ID, object, l.CreditInvoice, now, l.CreditLine)
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT weir.book(ARRAY[$1::bigint], $2)", l.Key, now)
		}
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT weir.unfind('overbilled', $1, 'credit note', $2)", units(l.Key), now)
		}
		if err != nil {
			return fmt.Errorf("store credit of late row %d: %w", l.ID, err)
		}
		return nil
	})
}
