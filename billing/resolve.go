package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

const (
	resolveMost = 100
	zeroPause   = time.Hour // between two reads that show nothing
)

// readSummary is what Stripe has of a customer on a meter in [from, to), both full minutes.
func readSummary(ctx context.Context, c *Client, meterID, customer string, from, to time.Time) (int64, error) {
	out, err := pages(ctx, c, "/v1/billing/meters/"+meterID+"/event_summaries", "GET /v1/billing/meters/{id}/event_summaries", "",
		func(s *struct {
			ID string `json:"id"`
			summary
		},
		) string {
			return s.ID
		},
		"customer", customer, "start_time", units(from.Unix()), "end_time", units(to.Unix()))
	if err != nil {
		return 0, fmt.Errorf("read the summary of %s: %w", customer, err)
	}
	sum := decimal.Zero
	for _, s := range out {
		v, err := decimal.NewFromString(s.Value.String())
		if err != nil {
			return 0, fmt.Errorf("read the summary of %s: value %q: %w", customer, s.Value, err)
		}
		sum = sum.Add(v)
	}
	if !sum.IsInteger() {
		return 0, &permanentError{fmt.Errorf("read the summary of %s: %s is no whole number of units: somebody else sends on the meter", customer, sum)}
	}
	return sum.IntPart(), nil
}

// unsure is a link whose outcome only a summary can tell.
type unsure struct {
	Report, Value   int64
	Customer, Meter string
	Stamp           time.Time
	Zeros           int32
	Frozen          bool
	Attempts        int32
}

// resolveUnknown reads the one-minute summary of each link whose outcome is unknown after 23 hours, or that was refused
// after an attempt that may have been accepted.
func (b *Biller) resolveUnknown(ctx context.Context, c *Client) error {
	now := b.now()
	rows, err := b.db.Query(ctx, `SELECT r.id, r.value, r.customer, r.meter, r.stamp, r.zero_reads, c.frozen IS NOT NULL, r.attempts
		FROM weir.reports r LEFT JOIN weir.customers c ON c.customer = r.customer
		WHERE r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over AND r.state = 'unknown' AND (r.first_sent <= $1::timestamptz - interval '23 hours' OR r.retry_at = 'infinity')
		  AND (r.retry_at = 'infinity' OR r.retry_at <= clock_timestamp()) -- no attempt is under way
		  AND (r.read_at IS NULL OR r.read_at <= $1::timestamptz - $2::interval)
		  AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final)
		ORDER BY r.read_at NULLS FIRST, r.id LIMIT $3`, now, zeroPause, resolveMost)
	if err != nil {
		return fmt.Errorf("find unknown reports: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[unsure])
	if err != nil || len(list) == 0 {
		return err
	}
	meters, err := b.metersByName(ctx)
	if err != nil {
		return err
	}
	return each(ctx, b.cfg.Readers, list, func(ctx context.Context, u unsure) error {
		m, ok := meters[u.Meter]
		if !ok {
			return nil // an archived meter is found elsewhere
		}
		found, err := readSummary(ctx, c, m.ID, u.Customer, u.Stamp, u.Stamp.Add(time.Minute))
		if err != nil {
			return err
		}
		return b.decide(ctx, u, found)
	})
}

// decide stores what a one-minute summary says of a link: the value → recorded; nothing, twice, an hour apart →
// replaced; anything else → a person.
func (b *Biller) decide(ctx context.Context, u unsure, found int64) error {
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		// The chain first, as everywhere: a replacement takes it.
		_, err := tx.Exec(ctx, "SELECT FROM weir.chains c JOIN weir.reports r ON r.key = c.key WHERE r.id = $1 FOR UPDATE OF c", u.Report)
		if err != nil {
			return fmt.Errorf("decide report %d: %w", u.Report, err)
		}
		var same bool
		err = tx.QueryRow(ctx, "SELECT state = 'unknown' AND NOT replaced AND attempts = $2 FROM weir.reports WHERE id = $1 FOR UPDATE", u.Report, u.Attempts).Scan(&same)
		if err != nil {
			return fmt.Errorf("decide report %d: %w", u.Report, err)
		}
		if !same {
			return nil // it was decided, or sent again, while its summary was read
		}
		switch {
		case found == u.Value:
			_, err = tx.Exec(ctx, `UPDATE weir.reports SET state = 'recorded', ambiguous = false, settled_at = $2, read_at = $2 WHERE id = $1 AND state = 'unknown'`, u.Report, now)
		case found == 0 && u.Zeros >= 1 && !u.Frozen:
			_, err = tx.Exec(ctx, "UPDATE weir.reports SET zero_reads = zero_reads + 1, read_at = $2 WHERE id = $1", u.Report, now)
			if err == nil {
				_, err = tx.Exec(ctx, "SELECT weir.replace_link($1, $2)", u.Report, now)
			}
		case found == 0:
			_, err = tx.Exec(ctx, "UPDATE weir.reports SET zero_reads = zero_reads + 1, read_at = $2 WHERE id = $1", u.Report, now)
		default:
			_, err = tx.Exec(ctx, "UPDATE weir.reports SET read_at = $2 WHERE id = $1", u.Report, now)
			if err == nil {
				err = raise(ctx, tx, finding{kind: "report_outcome", subject: units(u.Report), message: fmt.Sprintf(
					"report %d of %d units for %s: Stripe has %d in its minute. Somebody else sends on meter %s; look and settle it by hand", u.Report, u.Value, u.Customer, found, u.Meter)}, now)
			}
		}
		if err != nil {
			return fmt.Errorf("decide report %d: %w", u.Report, err)
		}
		return nil
	})
}

// replaceRejected stores new tries of links that were refused because their meter was archived or missing, once the
// meter is active again. Other refusals wait for a person: sent again unchanged they would be refused again.
func (b *Biller) replaceRejected(ctx context.Context, c *Client) error {
	var any bool
	err := b.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.reports r WHERE r.state = 'rejected' AND NOT r.replaced AND r.code IN ('archived_meter', 'no_meter')
		AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final))`).Scan(&any)
	if err != nil {
		return fmt.Errorf("find rejected reports: %w", err)
	}
	if !any {
		return nil
	}
	if err := b.refreshMeters(ctx, c); err != nil {
		return err
	}
	rows, err := b.db.Query(ctx, `SELECT r.id FROM weir.reports r JOIN weir.meters m ON m.event_name = r.meter AND m.active
		LEFT JOIN weir.customers c ON c.customer = r.customer
		WHERE r.state = 'rejected' AND NOT r.replaced AND r.code IN ('archived_meter', 'no_meter') AND c.frozen IS NULL
		  AND m.read_at >= r.settled_at AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final)
		ORDER BY r.id LIMIT $1`, resolveMost)
	if err != nil {
		return fmt.Errorf("find rejected reports: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return fmt.Errorf("find rejected reports: %w", err)
	}
	for _, id := range ids {
		if err := b.replace(ctx, id, "the meter is active again"); err != nil {
			return err
		}
	}
	return nil
}

// replace stores the next try of a refused link.
func (b *Biller) replace(ctx context.Context, id int64, by string) error {
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		var next *int64
		if err := tx.QueryRow(ctx, "SELECT weir.replace_link($1, $2)", id, now).Scan(&next); err != nil {
			return fmt.Errorf("replace report %d: %w", id, err)
		}
		if next == nil {
			return nil
		}
		return clearFinding(ctx, tx, "report_rejected", units(id), by, now)
	})
}

// meterErrors is the part of a thin event's details that names refused events.
type meterErrors struct {
	ID   string `json:"id"`
	Data struct {
		Reason struct {
			Count int64 `json:"error_count"`
			Types []struct {
				Code    string `json:"code"`
				Count   int64  `json:"error_count"`
				Samples []struct {
					Message string `json:"error_message"`
					Request struct {
						Identifier     string `json:"identifier"`
						IdempotencyKey string `json:"idempotency_key"`
					} `json:"request"`
				} `json:"sample_errors"`
			} `json:"error_types"`
		} `json:"reason"`
	} `json:"data"`
}

// ReadMeterErrors reads the details of stored thin events and rejects the links that they name. They are samples: every
// open window on the meter is compared soon after.
func (b *Biller) ReadMeterErrors(ctx context.Context) error {
	c, err := b.stripe()
	if err != nil {
		return err
	}
	rows, err := b.db.Query(ctx, "SELECT event, coalesce(object, '') FROM weir.webhook_events WHERE state = 'stored' AND thin ORDER BY received_at LIMIT 100")
	if err != nil {
		return fmt.Errorf("find meter errors: %w", err)
	}
	type stored struct{ ID, Meter string }
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stored])
	if err != nil {
		return fmt.Errorf("find meter errors: %w", err)
	}
	var errs []error
	for _, e := range list {
		out, _, err := call[meterErrors](ctx, c, request{method: http.MethodGet, path: "/v2/core/events/" + e.ID, version: itemVersion, endpoint: "GET /v2/core/events/{id}"})
		if err != nil && !isMissing(err) {
			errs = append(errs, fmt.Errorf("read event %s: %w", e.ID, err))
			continue
		}
		errs = append(errs, b.storeMeterErrors(ctx, e.ID, e.Meter, &out))
	}
	return errors.Join(errs...)
}

func (b *Biller) storeMeterErrors(ctx context.Context, event, meterID string, m *meterErrors) error {
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		for _, t := range m.Data.Reason.Types {
			for _, s := range t.Samples {
				for _, name := range []string{s.Request.Identifier, s.Request.IdempotencyKey} {
					if err := rejectNamed(ctx, tx, name, t.Code, s.Message, now); err != nil {
						return err
					}
				}
			}
			err := raise(ctx, tx, finding{kind: "meter_errors", subject: meterID + "/" + bounded(t.Code), message: fmt.Sprintf(
				"Stripe refused %d meter events with %q after it had accepted them", t.Count, bounded(t.Code))}, now)
			if err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE weir.meters SET suspect_at = $2 WHERE meter = $1 OR $1 = ''", meterID, now)
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE weir.webhook_events SET state = 'done' WHERE event = $1", event)
		}
		if err != nil {
			return fmt.Errorf("store event %s: %w", event, err)
		}
		return nil
	})
}

// rejectNamed rejects the link that an error report names by its identifier or by the Idempotency-Key of an attempt.
func rejectNamed(ctx context.Context, tx pgx.Tx, name, code, message string, now time.Time) error {
	if bounded(name) == "" {
		return nil
	}
	var id int64
	err := tx.QueryRow(ctx, `UPDATE weir.reports r SET state = 'rejected', ambiguous = false, code = $2, message = left($3, 500), settled_at = $4, retry_at = 'infinity'
		WHERE NOT r.replaced AND r.state IN ('unknown', 'delivered', 'recorded')
		  AND (r.identifier = $1 OR r.id = (SELECT a.report FROM weir.report_attempts a JOIN weir.reports x ON x.id = a.report WHERE x.identifier = regexp_replace($1, ':[0-9]+$', '') AND a.idempotency = $1))
		RETURNING r.id`, name, bounded(code), message, now).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // not ours, or named before
	}
	if err != nil {
		return fmt.Errorf("reject report %q: %w", name, err)
	}
	return raiseRejected(ctx, tx, id, bounded(code), now)
}
