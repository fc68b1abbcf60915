package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

type creditNote struct {
	ID       string            `json:"id"`
	Total    int64             `json:"total"` // with tax
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
		if due, err := b.stillDue(ctx, c, l); err != nil || !due {
			return err
		}
		lines := []string{
			"invoice", l.CreditInvoice, "lines[0][type]", "invoice_line_item", "lines[0][invoice_line_item]", l.CreditLine, "lines[0][amount]", units(amount),
		}
		form := values(append(lines, "memo", "Usage that was billed too much", "metadata[weir_id]", l.WeirID)...)
		if l.CreditInvoiceState == "paid" {
			total, err := withTax(ctx, c, lines, amount)
			if err != nil {
				return fmt.Errorf("credit late row %d: %w", l.ID, err)
			}
			form.Add("credit_amount", units(total))
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

// withTax is the total of a credit note, as Stripe reckons it: what goes to the customer's balance has to be that, and the
// line's amount may be without tax. Where Stripe does not tell, it is the amount.
func withTax(ctx context.Context, c *Client, lines []string, amount int64) (int64, error) {
	n, _, err := call[creditNote](ctx, c, request{method: http.MethodGet, path: "/v1/credit_notes/preview", form: values(lines...)})
	if IsPermanent(err) || (err == nil && n.Total <= 0) {
		return amount, nil
	}
	return n.Total, err
}

// stillDue reads the invoices that bill a key once more before anything is given back: one that another replaces may be
// void by now, and a customer who is billed twice for a minute is owed nothing after it. It also learns whether the
// invoice was paid meanwhile.
func (b *Biller) stillDue(ctx context.Context, c *Client, l *lateRow) (bool, error) {
	const billing = "SELECT DISTINCT n.invoice FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE x.key = $1 ORDER BY 1 LIMIT 50"
	rows, err := b.db.Query(ctx, billing, l.Key)
	if err != nil {
		return false, fmt.Errorf("find the invoices of late row %d: %w", l.ID, err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("find the invoices of late row %d: %w", l.ID, err)
	}
	// What was never sent is as if it had not been tried: what is read may take it back.
	if _, err := b.db.Exec(ctx, "UPDATE weir.late SET attempts = 0 WHERE id = $1 AND attempts = 1 AND state = 'stored'", l.ID); err != nil {
		return false, fmt.Errorf("store late row %d: %w", l.ID, err)
	}
	for _, id := range ids {
		if err := b.readAgain(ctx, id, l.Customer, c.Live()); err != nil {
			return false, err
		}
	}
	var stored, waits bool
	err = b.db.QueryRow(ctx, `WITH x AS (UPDATE weir.late SET attempts = greatest(attempts, 1) WHERE id = $1 RETURNING state)
		SELECT x.state = 'stored', coalesce(v.status, ''), EXISTS (SELECT FROM weir.invoices y WHERE y.invoice = ANY ($3) AND y.wanted > y.read)
		FROM x LEFT JOIN weir.invoices v ON v.invoice = $2`, l.ID, l.CreditInvoice, ids).Scan(&stored, &l.CreditInvoiceState, &waits)
	switch {
	case err != nil:
		return false, fmt.Errorf("look at late row %d again: %w", l.ID, err)
	case stored && waits:
		return false, fmt.Errorf("credit late row %d: %w", l.ID, errBeingRead)
	}
	return stored, nil
}

// errBeingRead says that somebody else reads an invoice right now.
var errBeingRead = errors.New("an invoice of it is being read, it waits for that")
