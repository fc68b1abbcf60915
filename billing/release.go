package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// LateUsage is usage that missed its invoice (or, negative, was billed too much) and what becomes of it.
type LateUsage struct {
	ID       int64
	Account  string
	Feature  string
	Starts   time.Time // of its period
	Ends     time.Time
	Units    int64
	Policy   string // hold, invoice_item, forgive, credit_note
	State    string // held, stored, sent
	Cause    string
	Customer string // empty: no item to bill it on
	Since    time.Time
	Error    string // what Stripe said last
}

// LateList lists open late usage, oldest first, at most 10,000 rows.
func (b *Biller) LateList(ctx context.Context) ([]LateUsage, error) {
	rows, err := b.db.Query(ctx, `SELECT l.id, a.account, f.name, p.starts, p.ends, l.units, l.policy, l.state, l.cause, coalesce(s.customer, ''), l.created_at, coalesce(l.error, '')
		FROM weir.late l JOIN weir.keys k ON k.key = l.key JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		JOIN weir.periods p ON p.id = k.period_id LEFT JOIN weir.segments s ON s.id = l.segment
		WHERE l.state IN ('held', 'stored', 'sent') ORDER BY l.id LIMIT 10000`)
	if err != nil {
		return nil, fmt.Errorf("list late usage: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LateUsage])
	if err != nil {
		return nil, fmt.Errorf("list late usage: %w", err)
	}
	return list, nil
}

// ErrNotHeld says that a late row is not held, so that nothing is left to decide.
var ErrNotHeld = errors.New("no held late usage of this number")

// LateRelease decides about held late usage: "invoice_item" puts it on an invoice, "forgive" writes it off, and
// "credit_note" credits what was billed too much. Actor and reason go into the ledger.
func (b *Biller) LateRelease(ctx context.Context, id int64, policy, actor, reason string) error {
	if actor == "" || reason == "" {
		return &permanentError{errors.New("release late usage: give an actor and a reason")}
	}
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
			return fmt.Errorf("release late usage %d: %w", id, err)
		}
		var key, count int64
		var segment *int64
		err := tx.QueryRow(ctx, "SELECT key, units, segment FROM weir.late WHERE id = $1 AND state = 'held' FOR UPDATE", id).Scan(&key, &count, &segment)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("release late usage %d: %w", id, ErrNotHeld)
		}
		if err != nil {
			return fmt.Errorf("release late usage %d: %w", id, err)
		}
		if policy == "invoice_item" && segment == nil {
			if segment, err = presentSegment(ctx, tx, key); err != nil {
				return err
			}
		}
		switch {
		case policy == "forgive":
			_, err = tx.Exec(ctx, `WITH l AS (UPDATE weir.late SET state = 'forgiven', policy = 'forgive', actor = $2, reason = $3, settled_at = $4 WHERE id = $1 RETURNING key, units)
				INSERT INTO weir.forgiven (key, units, cause, actor, reason, at) SELECT key, units, 'late', $2, $3, $4 FROM l`, id, actor, reason, now)
		case policy == "invoice_item" && count > 0 && segment != nil, policy == "credit_note" && count < 0 && segment != nil:
			_, err = tx.Exec(ctx, `UPDATE weir.late SET state = 'stored', policy = $2, actor = $3, reason = $4, segment = $5, retry_at = '-infinity', error = NULL WHERE id = $1`, id, policy, actor, reason, segment)
		default:
			return &permanentError{fmt.Errorf("release late usage %d: %q does not fit %d units: use invoice_item for late ones that have an item, credit_note for negative ones, or forgive", id, policy, count)}
		}
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT weir.book(ARRAY[$1::bigint], $2), weir.unfind('late_refused', $3, $4, $2), weir.unfind('late_deleted', $3, $4, $2)", key, now, units(id), actor)
		}
		if err != nil {
			return fmt.Errorf("release late usage %d: %w", id, err)
		}
		return nil
	})
}
