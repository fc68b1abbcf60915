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
