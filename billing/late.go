package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
	"github.com/stripe/stripe-go/v79"
)

const (
	lateHold  = 5 * time.Minute // wall: for how long one worker has a late row
	lateStart = 3 * time.Minute // no row of a claim is begun later than this: its calls end within the hold
	lateMost  = 50              // rows in one pass
)

// lateRow is usage that missed its invoice and is to be put on one, or, negative, to be credited.
type lateRow struct {
	ID                                            int64
	Key                                           int64
	Units                                         int64
	Policy, WeirID                                string
	Attempts, Answers                             int32
	Customer, Subscription, Product, Currency     string
	TaxBehavior                                   string
	UnitAmount                                    decimal.Decimal
	Starts, Ends                                  time.Time
	SubscriptionEnded                             bool
	DraftInvoice                                  string
	CreditInvoice, CreditLine, CreditInvoiceState string
	CreditQuantity, CreditAmount                  int64
	CreditBefore                                  int64 // units of the line that no earlier row credits, or holds

	answered bool // Stripe did, or refused, what was to be made
	doubtful bool // but an attempt may be under way
}

// heard notes whether a call that makes something was answered by what Stripe did with it. What was not executed says
// nothing of an attempt before it, which may still be under way: too many calls, a key that is not accepted, a use of the
// same Idempotency-Key at the same time. Nor is it sure after a fault, or where that key was used for another request,
// that nothing is under way: then the next attempt waits for longer than any call lasts.
func (l *lateRow) heard(err error) {
	var se *stripe.Error
	l.answered, l.doubtful = err == nil, false
	if !errors.As(err, &se) {
		return
	}
	_, throttled := Throttled(err)
	l.answered = !throttled && !isStopped(err) && se.HTTPStatusCode != http.StatusConflict
	l.doubtful = se.HTTPStatusCode >= http.StatusInternalServerError || se.Type == stripe.ErrorTypeIdempotency
}

// key is the Idempotency-Key of what is made for a row. An attempt that was never answered may still be under way: its
// key is used again, so that Stripe does not do it twice. One that was answered, if only by a 500 that is kept for a
// day, is over, and the look-up by weir_id finds what it did.
func (l *lateRow) key(what string) string {
	return l.WeirID + ":" + what + ":" + units(int64(l.Answers))
}

// Late puts stored late usage on invoices, and credits what was billed too much. Each row is looked up at Stripe by its
// weir_id before it is sent, so that nothing is charged twice.
func (b *Biller) Late(ctx context.Context) error {
	c, err := b.stripe()
	if err != nil {
		return err
	}
	if stopped, err := b.isStopped(ctx); err != nil || stopped {
		return err
	}
	begun := time.Now()
	rows, err := b.claimLate(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range rows {
		if time.Since(begun) > lateStart {
			break // the rest is taken again when its hold is over
		}
		if err := b.lateOne(ctx, c, &rows[i]); err != nil {
			errs = append(errs, b.lateFailed(ctx, &rows[i], err))
		}
	}
	return errors.Join(errs...)
}

func (b *Biller) isStopped(ctx context.Context) (bool, error) {
	var is bool
	if err := b.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.stops)").Scan(&is); err != nil {
		return false, fmt.Errorf("look for a stop: %w", err)
	}
	return is, nil
}

// claimLate takes rows for a while; the attempt is counted before it is made.
func (b *Biller) claimLate(ctx context.Context) ([]lateRow, error) {
	rows, err := b.db.Query(ctx, `
		WITH due AS (
			SELECT l.id FROM weir.late l WHERE l.state = 'stored' AND l.policy IN ('invoice_item', 'credit_note') AND l.retry_at <= clock_timestamp()
			ORDER BY l.id LIMIT $1 FOR UPDATE SKIP LOCKED),
		mine AS (UPDATE weir.late l SET attempts = l.attempts + 1, retry_at = clock_timestamp() + $2 FROM due WHERE l.id = due.id RETURNING l.*)
		SELECT m.id, m.key, m.units, m.policy, m.weir_id, m.attempts, m.answers, s.customer, s.subscription, coalesce(s.product, ''), s.currency,
			coalesce(s.tax_behavior, ''), coalesce(s.unit_amount, k.unit_amount, 0)::text, p.starts, p.ends, u.ended_at IS NOT NULL,
			coalesce((SELECT i.invoice FROM weir.invoices i WHERE i.subscription = s.subscription AND i.status = 'draft' AND i.currency = s.currency
			          ORDER BY i.created DESC LIMIT 1), ''),
			coalesce(c.invoice, ''), coalesce(c.line, ''), coalesce(c.status, ''), coalesce(c.quantity, 0), coalesce(c.amount, 0), coalesce(c.before, 0)
		FROM mine m
		JOIN weir.segments s ON s.id = m.segment
		JOIN weir.keys k ON k.key = m.key
		JOIN weir.periods p ON p.id = k.period_id
		LEFT JOIN weir.subscriptions u ON u.subscription = s.subscription
		LEFT JOIN LATERAL (
			SELECT n.invoice, n.line, v.status, n.quantity, n.amount,
			       n.quantity + coalesce((SELECT sum(o.units) FROM weir.late o WHERE o.line = n.line AND o.id < m.id AND o.state IN ('held', 'stored', 'credited')), 0)::bigint AS before
			FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line JOIN weir.invoices v ON v.invoice = n.invoice
			WHERE x.key = m.key AND x.units > 0 AND (m.line IS NULL OR n.line = m.line) ORDER BY x.units DESC, n.line LIMIT 1) c ON true
		ORDER BY m.id`, lateMost, lateHold)
	if err != nil {
		return nil, fmt.Errorf("claim late usage: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[lateRow])
	if err != nil {
		return nil, fmt.Errorf("claim late usage: %w", err)
	}
	return list, nil
}

func (b *Biller) lateOne(ctx context.Context, c *Client, l *lateRow) error {
	if l.Units < 0 {
		return b.credit(ctx, c, l)
	}
	object, err := findInvoiceItem(ctx, c, l)
	if err != nil {
		return err
	}
	invoice := ""
	if object == "" {
		if invoice, err = b.invoiceFor(ctx, c, l); err != nil {
			return err
		}
		if object, err = createInvoiceItem(ctx, c, l, invoice); err != nil {
			return b.aimedAt(ctx, c, l, invoice, err)
		}
	}
	_, err = b.db.Exec(ctx, "UPDATE weir.late SET state = 'sent', answers = answers + 1, object = $2, invoice = nullif($3, ''), error = NULL WHERE id = $1 AND state = 'stored'", l.ID, object, invoice)
	if err != nil {
		return fmt.Errorf("store late row %d: %w", l.ID, err)
	}
	return nil
}

// lateFailed stores what went wrong. What Stripe refuses is held for a person.
func (b *Biller) lateFailed(ctx context.Context, l *lateRow, cause error) error {
	ctx, cancel := b.after(ctx)
	defer cancel()
	if isStopped(cause) {
		return b.stop(ctx, "unauthorized", "Stripe does not accept the API key: "+cause.Error())
	}
	state := "stored"
	if IsPermanent(cause) {
		state = "held"
	}
	var pause time.Duration
	if l.doubtful {
		pause = lateHold
	}
	_, err := b.db.Exec(ctx, `UPDATE weir.late SET error = left($2, 500), state = CASE WHEN state = 'stored' THEN $3 ELSE state END,
		answers = answers + CASE WHEN $4 THEN 1 ELSE 0 END, retry_at = clock_timestamp() + greatest($5::interval, least(interval '30 s', interval '1 s' * power(2, least(attempts, 5)))) WHERE id = $1`,
		l.ID, cause.Error(), state, l.answered, pause)
	if err != nil {
		return fmt.Errorf("store late row %d: %w", l.ID, err)
	}
	if state == "held" {
		do := "Mend the cause and release it again with worker late release"
		if l.Units < 0 {
			do += ", or make the credit note by hand in the Dashboard and release the row with policy forgive"
		}
		return raise(ctx, b.db, finding{kind: "late_refused", subject: units(l.ID), message: fmt.Sprintf("Stripe refused late row %d: %s. %s", l.ID, cause, do)}, b.now())
	}
	if _, throttled := Throttled(cause); throttled || errors.Is(cause, errNoDraft) || errors.Is(cause, errBeingRead) {
		return nil
	}
	return fmt.Errorf("settle late row %d: %w", l.ID, cause)
}

type invoiceItem struct {
	ID       string            `json:"id"`
	Deleted  bool              `json:"deleted"`
	Customer ref               `json:"customer"`
	Invoice  ref               `json:"invoice"`
	Metadata map[string]string `json:"metadata"`
}

func findInvoiceItem(ctx context.Context, c *Client, l *lateRow) (string, error) {
	if l.Attempts == 1 {
		return "", nil // it was never sent
	}
	items, err := pages(ctx, c, "/v1/invoiceitems", "", "", func(i *invoiceItem) string { return i.ID }, "customer", l.Customer)
	if err != nil {
		return "", fmt.Errorf("look for late row %d: %w", l.ID, err)
	}
	i := slices.IndexFunc(items, func(i invoiceItem) bool { return i.Metadata["weir_id"] == l.WeirID })
	if i < 0 {
		return "", nil
	}
	return items[i].ID, nil
}

func createInvoiceItem(ctx context.Context, c *Client, l *lateRow, invoice string) (string, error) {
	if !l.UnitAmount.IsPositive() {
		return "", &permanentError{fmt.Errorf("put late row %d on an invoice: no price of its units is known: it would cost nothing", l.ID)}
	}
	form := values("customer", l.Customer, "quantity", units(l.Units),
		"price_data[currency]", l.Currency, "price_data[product]", l.Product, "price_data[unit_amount_decimal]", l.UnitAmount.String(),
		"period[start]", units(l.Starts.Unix()), "period[end]", units(l.Ends.Unix()),
		"description", "Usage of an earlier period", "metadata[weir_id]", l.WeirID)
	if l.TaxBehavior != "" {
		form.Add("price_data[tax_behavior]", l.TaxBehavior)
	}
	switch {
	case invoice != "":
		form.Add("invoice", invoice)
	case !l.SubscriptionEnded:
		form.Add("subscription", l.Subscription)
	}
	it, _, err := call[invoiceItem](ctx, c, request{
		method: http.MethodPost, path: "/v1/invoiceitems", form: form, idempotency: l.key("item"),
	})
	if l.heard(err); err != nil {
		return "", fmt.Errorf("make an invoice item of late row %d: %w", l.ID, err)
	}
	return it.ID, nil
}
