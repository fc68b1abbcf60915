package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	reconcileMost  = 200
	summarySettles = 10 * time.Minute // a summary is read no sooner than this after a window's end
	gapPatience    = time.Hour        // a summary may lag for so long behind what was delivered
)

// window is one customer's billing window on a meter, with what the ledger says of it.
type window struct {
	Customer, Meter, MeterID string
	Account                  int64
	Start, End               time.Time
	Expected                 int64 // links that should be there
	Unsure                   int64 // of these, with an unknown outcome
	Newest                   *time.Time
}

// Reconcile resolves unknown reports, replaces refused ones whose cause has gone, and compares summaries with the
// ledger: once a day while a window is open, once after its end, hourly for customers with an unknown or refused
// report, and at once for meters that an error report named. A difference is a finding; nothing is sent because of one.
// It begins with what time alone decides, once an hour.
func (b *Biller) Reconcile(ctx context.Context) error {
	c, err := b.stripe()
	if errors.Is(err, ErrNoStripe) {
		return nil
	}
	if err := b.settleHourly(ctx); err != nil {
		return err
	}
	if err := b.resolveUnknown(ctx, c); err != nil {
		return err
	}
	if err := b.replaceRejected(ctx, c); err != nil {
		return err
	}
	list, err := b.windowsDue(ctx)
	if err != nil {
		return err
	}
	if err := each(ctx, b.cfg.Readers, list, func(ctx context.Context, w window) error { return b.compare(ctx, c, w) }); err != nil {
		return err
	}
	if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET reconciled_at = $1", b.now()); err != nil {
		return fmt.Errorf("note the reconciliation: %w", err)
	}
	return b.resumeRestored(ctx)
}

// windowsDue finds windows whose summary is to be read now, those of ended windows first.
func (b *Biller) windowsDue(ctx context.Context) ([]window, error) {
	rows, err := b.db.Query(ctx, `
		WITH w AS (
			SELECT s.customer, s.meter, s.window_start, s.window_end, max(k.account_id) AS account, array_agg(s.id) AS segments
			FROM weir.segments s JOIN weir.keys k ON k.key = s.key
			WHERE s.window_end > $1::timestamptz - interval '35 days' AND s.window_start < $1::timestamptz - interval '5 minutes'
			GROUP BY 1, 2, 3, 4),
		trouble AS (
			SELECT DISTINCT s.customer, s.meter, s.window_start FROM weir.reports r JOIN weir.segments s ON s.id = r.segment
			WHERE r.state IN ('unknown', 'rejected') AND NOT r.replaced AND r.stamp IS NOT NULL),
		due AS MATERIALIZED (
			SELECT w.*, m.meter AS meter_id FROM w
			JOIN weir.meters m ON m.event_name = w.meter AND m.active
			LEFT JOIN trouble t ON t.customer = w.customer AND t.meter = w.meter AND t.window_start = w.window_start
			LEFT JOIN LATERAL (SELECT max(x.read_at) AS at FROM weir.summaries x WHERE x.customer = w.customer AND x.meter = w.meter AND x.starts = w.window_start) last ON true
			LEFT JOIN weir.stops p ON p.cause = 'restored'
			WHERE ((p.since IS NOT NULL AND coalesce(last.at, '-infinity') < p.since AND w.window_end > $1::timestamptz - interval '3 days')
				OR (EXISTS (SELECT FROM weir.reports r WHERE r.segment = ANY (w.segments)) AND (
					(w.window_end > $1 AND coalesce(last.at, w.window_start) <= $1::timestamptz - CASE WHEN t.customer IS NOT NULL THEN interval '1 hour' ELSE interval '24 hours' END)
					OR (w.window_end <= $1::timestamptz - $2::interval AND coalesce(last.at, '-infinity') < w.window_end + $2::interval)
					OR (m.suspect_at IS NOT NULL AND coalesce(last.at, '-infinity') < m.suspect_at AND w.window_end > $1::timestamptz - interval '3 days'))))
			ORDER BY w.window_end LIMIT $3)
		SELECT d.customer, d.meter, d.meter_id, d.account, d.window_start, d.window_end, coalesce(x.expected, 0), coalesce(x.unsure, 0), x.newest
		FROM due d CROSS JOIN LATERAL (
			SELECT sum(r.value) FILTER (WHERE r.state IN ('unknown', 'delivered', 'recorded'))::bigint AS expected,
			       sum(r.value) FILTER (WHERE r.state = 'unknown')::bigint AS unsure, max(r.settled_at) AS newest
			FROM weir.reports r WHERE r.segment = ANY (d.segments) AND NOT r.replaced) x
		ORDER BY d.window_end`, b.now(), summarySettles, reconcileMost)
	if err != nil {
		return nil, fmt.Errorf("find windows to compare: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[window])
	if err != nil {
		return nil, fmt.Errorf("find windows to compare: %w", err)
	}
	return list, nil
}

// compare reads a window's summary and stores it beside what the ledger expects.
func (b *Biller) compare(ctx context.Context, c *Client, w window) error {
	from := w.Start.Add(time.Minute - time.Nanosecond).Truncate(time.Minute)
	to := w.End.Truncate(time.Minute)
	if now := b.now().Truncate(time.Minute); now.Before(to) {
		to = now
	}
	if !from.Before(to) {
		return nil
	}
	found, err := readSummary(ctx, c, w.MeterID, w.Customer, from, to)
	if err != nil {
		return err
	}
	now := b.now()
	subject := w.Customer + "/" + w.Meter + "/" + w.Start.Format(time.RFC3339)
	return b.begin(ctx, func(tx pgx.Tx) error {
		same, err := w.unmoved(ctx, tx)
		if err != nil || !same {
			return err // reports went out while the summary was read: the next pass compares
		}
		_, err = tx.Exec(ctx, `INSERT INTO weir.summaries (customer, meter, starts, ends, expected, unsure, found, read_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			w.Customer, w.Meter, w.Start, w.End, w.Expected, w.Unsure, found, now)
		if err != nil {
			return fmt.Errorf("store a summary: %w", err)
		}
		if found == w.Expected {
			return b.agreed(ctx, tx, w, subject, now)
		}
		low, high := min(w.Expected-w.Unsure, w.Expected), max(w.Expected-w.Unsure, w.Expected)
		switch {
		case found > high && b.settledFor(w, now):
			if _, err := tx.Exec(ctx, "UPDATE weir.customers SET frozen = $2 WHERE customer = $1 AND frozen IS NULL", w.Customer, subject); err != nil {
				return fmt.Errorf("freeze customer %s: %w", w.Customer, err)
			}
			return raise(ctx, tx, finding{kind: "foreign_usage", subject: subject, account: w.Account, message: fmt.Sprintf(
				"Stripe has %d units of %s on meter %s, we reported %d: somebody else sends on the meter. Nothing is replaced for this customer until that is settled",
				found, w.Customer, w.Meter, w.Expected)}, now)
		case found < low && b.settledFor(w, now):
			return raise(ctx, tx, finding{kind: "summary_gap", subject: subject, account: w.Account, message: fmt.Sprintf(
				"Stripe has %d units of %s on meter %s, we reported %d of which %d are unsure: what was accepted was not recorded", found, w.Customer, w.Meter, w.Expected, w.Unsure)}, now)
		}
		return nil
	})
}

// unmoved reports whether the ledger still says of the window what it said when it was found.
func (w *window) unmoved(ctx context.Context, tx pgx.Tx) (same bool, err error) {
	err = tx.QueryRow(ctx, `
		SELECT coalesce(sum(r.value) FILTER (WHERE r.state IN ('unknown', 'delivered', 'recorded')), 0) = $5
			AND coalesce(sum(r.value) FILTER (WHERE r.state = 'unknown'), 0) = $6
		FROM weir.reports r JOIN weir.segments s ON s.id = r.segment
		WHERE s.customer = $1 AND s.meter = $2 AND s.window_start = $3 AND s.window_end = $4 AND NOT r.replaced`,
		w.Customer, w.Meter, w.Start, w.End, w.Expected, w.Unsure).Scan(&same)
	if err != nil {
		return false, fmt.Errorf("read the ledger of %s again: %w", w.Customer, err)
	}
	return same, nil
}

// settledFor reports whether the newest link is old enough for a summary to show it.
func (b *Biller) settledFor(w window, now time.Time) bool {
	return w.Newest == nil || now.Sub(*w.Newest) >= gapPatience
}

// agreed marks a window's delivered links as recorded and clears what was found about it.
func (b *Biller) agreed(ctx context.Context, tx pgx.Tx, w window, subject string, now time.Time) error {
	if w.Unsure == 0 {
		_, err := tx.Exec(ctx, `UPDATE weir.reports r SET state = 'recorded' FROM weir.segments s
			WHERE r.segment = s.id AND s.customer = $1 AND s.meter = $2 AND s.window_start = $3 AND r.state = 'delivered' AND NOT r.replaced
			  AND r.settled_at <= $4`, w.Customer, w.Meter, w.Start, w.Newest)
		if err != nil {
			return fmt.Errorf("mark reports as recorded: %w", err)
		}
	}
	_, err := tx.Exec(ctx, "UPDATE weir.customers SET frozen = NULL WHERE customer = $1 AND frozen = $2", w.Customer, subject)
	if err != nil {
		return fmt.Errorf("unfreeze customer %s: %w", w.Customer, err)
	}
	if err := clearFinding(ctx, tx, "foreign_usage", subject, "the summary agrees", now); err != nil {
		return err
	}
	return clearFinding(ctx, tx, "summary_gap", subject, "the summary agrees", now)
}
