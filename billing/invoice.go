package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// ReadInvoice reads an invoice and its lines and books what it bills. Another worker's turn, and an invoice that is not
// due, do nothing.
func (b *Biller) ReadInvoice(ctx context.Context, id string) error {
	c, err := b.stripe()
	if err != nil {
		return err
	}
	var claim, wanted int64
	err = b.db.QueryRow(ctx, `UPDATE weir.invoices SET claim = claim + 1, claimed_until = clock_timestamp() + $2
		WHERE invoice = $1 AND wanted > read AND claimed_until <= clock_timestamp() RETURNING claim, wanted`, id, syncHold).Scan(&claim, &wanted)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claim invoice %s: %w", id, err)
	}
	if err := b.readClaimed(ctx, c, id, claim, wanted); err != nil {
		return errors.Join(err, b.readFailed(ctx, id, claim, err))
	}
	return nil
}

// ReadDueInvoices reads up to most invoices that are due: drafts and invoices of ended windows first.
func (b *Biller) ReadDueInvoices(ctx context.Context, most int) (int, error) {
	if _, err := b.stripe(); err != nil {
		return 0, err
	}
	rows, err := b.db.Query(ctx, `SELECT invoice FROM weir.invoices WHERE wanted > read AND claimed_until <= clock_timestamp()
		ORDER BY finalizes_at NULLS FIRST, claimed_until LIMIT $1`, most)
	if err != nil {
		return 0, fmt.Errorf("find invoices to read: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("find invoices to read: %w", err)
	}
	return len(ids), each(ctx, b.cfg.Readers, ids, b.ReadInvoice)
}

func (b *Biller) readFailed(ctx context.Context, id string, claim int64, cause error) error {
	ctx, cancel := b.after(ctx)
	defer cancel()
	if isStopped(cause) {
		if err := b.stop(ctx, "unauthorized", "Stripe does not accept the API key: "+cause.Error()); err != nil {
			return err
		}
	}
	wait, _ := Throttled(cause)
	_, err := b.db.Exec(ctx, `UPDATE weir.invoices SET failures = failures + 1, error = left($3, 500),
		claimed_until = clock_timestamp() + greatest($4, least(interval '30 s', interval '1 s' * power(2, least(failures, 5))))
		WHERE invoice = $1 AND claim = $2`, id, claim, cause.Error(), wait)
	if err != nil {
		return fmt.Errorf("give back invoice %s: %w", id, err)
	}
	return nil
}

func (b *Biller) readClaimed(ctx context.Context, c *Client, id string, claim, wanted int64) error {
	inv, _, err := call[invoice](ctx, c, request{method: http.MethodGet, path: "/v1/invoices/" + id, endpoint: "GET /v1/invoices/{id}"})
	if isMissing(err) {
		// A draft that was deleted bills nothing.
		_, err := b.db.Exec(ctx, `WITH gone AS (UPDATE weir.invoices SET status = 'deleted', read = $3, claimed_until = '-infinity' WHERE invoice = $1 AND claim = $2 RETURNING invoice)
			UPDATE weir.webhook_events e SET state = 'done' FROM gone g WHERE e.object = g.invoice AND e.state = 'stored'`, id, claim, wanted)
		if err != nil {
			return fmt.Errorf("store invoice %s: %w", id, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("read invoice %s: %w", id, err)
	}
	lines := inv.Lines.Data
	if inv.Lines.HasMore {
		lines, err = pages(ctx, c, "/v1/invoices/"+id+"/lines", "GET /v1/invoices/{id}/lines", "", func(l *invoiceLine) string { return l.ID })
		if err != nil {
			return fmt.Errorf("read lines of invoice %s: %w", id, err)
		}
	}
	if inv.Livemode != c.Live() {
		return &permanentError{fmt.Errorf("read invoice %s: it is of the other mode", id)}
	}
	var want []string
	for i := range lines {
		if p := lines[i].Price; p != nil && p.metered() {
			want = append(want, p.Recurring.Meter)
		}
	}
	meters, err := b.meters(ctx, c, want)
	if err != nil {
		return err
	}
	books, err := b.changesBooks(ctx, &inv)
	if err != nil {
		return err
	}
	return b.begin(ctx, func(tx pgx.Tx) error { return b.storeInvoice(ctx, tx, &inv, lines, meters, claim, wanted, books) })
}

// changesBooks reports whether an invoice may change any books. A draft bills nothing yet: it can only confirm a period
// that ended without being read. At a boundary there is a draft for each account, and none of them waits for the fold.
func (b *Biller) changesBooks(ctx context.Context, inv *invoice) (is bool, err error) {
	if inv.Status != "draft" {
		return true, nil
	}
	err = b.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.customers c JOIN weir.periods p ON p.account_id = c.account_id AND p.state <> 'void'
		WHERE c.customer = $1 AND p.source = 'subscription' AND NOT p.confirmed AND p.ends <= $2)`, string(inv.Customer), b.now()).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look for unconfirmed periods of invoice %s: %w", inv.ID, err)
	}
	return is, nil
}

func (b *Biller) storeInvoice(ctx context.Context, tx pgx.Tx, inv *invoice, lines []invoiceLine, meters map[string]meter, claim, wanted int64, books bool) error {
	if books {
		if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
			return fmt.Errorf("store invoice %s: %w", inv.ID, err)
		}
	}
	now := b.now()
	tag, err := tx.Exec(ctx, `UPDATE weir.invoices SET customer = $3, subscription = nullif($4, ''), status = $5, billing_reason = $6, currency = $7, number = nullif($8, ''),
			created = $9, finalizes_at = $10, finalized_at = $11, voided_at = $12, total = $13, read = $14, read_at = $15, failures = 0, error = NULL, claimed_until = '-infinity',
			hosted_url = CASE WHEN octet_length($16) BETWEEN 1 AND 2000 THEN $16 END
		WHERE invoice = $1 AND claim = $2`,
		inv.ID, claim, string(inv.Customer), inv.subscription(), inv.Status, inv.BillingReason, inv.Currency, inv.Number, unix(inv.Created),
		nullTime(unix(inv.FinalizesAt)), nullTime(unix(inv.Transitions.FinalizedAt)), nullTime(unix(inv.Transitions.VoidedAt)), inv.Total, wanted, now, inv.HostedURL)
	if err != nil {
		return fmt.Errorf("store invoice %s: %w", inv.ID, err)
	}
	if tag.RowsAffected() == 0 {
		return nil // another worker has taken the turn
	}
	if err := storeLines(ctx, tx, inv, lines, meters); err != nil {
		return err
	}
	var lost []string
	if books {
		if err := tx.QueryRow(ctx, "SELECT weir.settle_invoice($1, $2)", inv.ID, now).Scan(&lost); err != nil {
			return fmt.Errorf("settle invoice %s: %w", inv.ID, err)
		}
	}
	for _, line := range lost {
		err := raise(ctx, tx, finding{kind: "foreign_line", subject: line, message: fmt.Sprintf(
			"invoice %s bills usage on our meter in line %s, which belongs to no period that we reported: look who else sends on the meter", inv.ID, line)}, now)
		if err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, "UPDATE weir.webhook_events SET state = 'done' WHERE object = $1 AND state = 'stored'", inv.ID); err != nil {
		return fmt.Errorf("finish invoice %s: %w", inv.ID, err)
	}
	if !books {
		return nil
	}
	return b.noteOverbilled(ctx, tx, inv.ID, now)
}

// storeLines replaces the stored lines of an invoice by those that were read.
func storeLines(ctx context.Context, tx pgx.Tx, inv *invoice, lines []invoiceLine, meters map[string]meter) error {
	ids := make([]string, 0, len(lines))
	for i := range lines {
		l := &lines[i]
		ids = append(ids, l.ID)
		start, end := unix(l.Period.Start), unix(l.Period.End)
		if start.IsZero() {
			return &permanentError{fmt.Errorf("store invoice %s: line %s has no period", inv.ID, l.ID)}
		}
		sub := l.subscription()
		if sub == "" {
			sub = inv.subscription()
		}
		event := ""
		if l.Price != nil && l.Price.metered() {
			event = meters[l.Price.Recurring.Meter].EventName
		}
		_, err := tx.Exec(ctx, `INSERT INTO weir.invoice_lines (line, invoice, subscription, item, price, meter, quantity, amount, starts, ends, weir_id)
			SELECT $1, $2, nullif($3, ''), nullif($4, ''), nullif($5, ''), coalesce(nullif($6, ''), (SELECT p.meter FROM weir.prices p WHERE p.price = $5)),
			       $7, $8, $9, $10, nullif($11, '')
			ON CONFLICT (line) DO UPDATE SET quantity = excluded.quantity, amount = excluded.amount, starts = excluded.starts, ends = excluded.ends,
				price = excluded.price, meter = excluded.meter, item = excluded.item, weir_id = excluded.weir_id`,
			l.ID, inv.ID, sub, l.item(), l.priceID(), event, l.Quantity, l.Amount, start, end, bounded(l.Metadata["weir_id"]))
		if err != nil {
			return fmt.Errorf("store line %s: %w", l.ID, err)
		}
	}
	slices.Sort(ids)
	if _, err := tx.Exec(ctx, "DELETE FROM weir.invoice_lines WHERE invoice = $1 AND NOT line = ANY ($2)", inv.ID, ids); err != nil {
		return fmt.Errorf("drop lines of invoice %s: %w", inv.ID, err)
	}
	return nil
}

// noteOverbilled alerts of keys that an invoice bills more of than was counted, and of usage that missed it.
func (b *Biller) noteOverbilled(ctx context.Context, tx pgx.Tx, id string, now time.Time) error {
	_, err := tx.Exec(ctx, `
		SELECT weir.find(CASE WHEN x.late < 0 THEN 'overbilled' ELSE 'late' END, x.key::text, k.account_id,
			CASE WHEN x.late < 0 THEN format('%s units more than were counted are on invoice %s: a credit note settles it', -x.late, $1::text)
			     ELSE format('%s billable units are not on invoice %s: they are late, policy %s', x.late, $1::text, k.late) END, $2::timestamptz)
		FROM weir.books x JOIN weir.keys k ON k.key = x.key
		WHERE x.final AND x.late <> 0 AND (x.final_by = 'invoice ' || $1::text OR x.key IN (
			SELECT i.key FROM weir.invoiced i JOIN weir.invoice_lines l ON l.line = i.line WHERE l.invoice = $1::text))`, id, now)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE weir.findings f SET cleared_at = $1, cleared_by = 'the books' FROM weir.books x
			WHERE f.cleared_at IS NULL AND f.kind IN ('late', 'overbilled') AND f.subject = x.key::text AND x.late = 0`, now)
	}
	if err != nil {
		return fmt.Errorf("note late usage: %w", err)
	}
	return nil
}
