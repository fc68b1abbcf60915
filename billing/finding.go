package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// finding is something that a person has to look at: one open row per kind and subject.
type finding struct {
	kind, subject, message string
	account                int64 // 0: of no account
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func raise(ctx context.Context, db execer, f finding, now time.Time) error {
	var account *int64
	if f.account != 0 {
		account = &f.account
	}
	if _, err := db.Exec(ctx, "SELECT weir.find($1, $2, $3, $4, $5)", f.kind, f.subject, account, f.message, now); err != nil {
		return fmt.Errorf("raise %s: %w", f.kind, err)
	}
	return nil
}

func clearFinding(ctx context.Context, db execer, kind, subject, by string, now time.Time) error {
	if _, err := db.Exec(ctx, "SELECT weir.unfind($1, $2, $3, $4)", kind, subject, by, now); err != nil {
		return fmt.Errorf("clear %s: %w", kind, err)
	}
	return nil
}

// Finding is an open item for a person: what is wrong, with what, since when.
type Finding struct {
	Kind    string
	Subject string
	Account string // empty: of no account
	Message string
	Since   time.Time
	SeenAt  time.Time
	Times   int64
}

// Findings lists what is open, oldest first, at most 10,000.
func (b *Biller) Findings(ctx context.Context) ([]Finding, error) {
	rows, err := b.db.Query(ctx, `SELECT f.kind, f.subject, coalesce(a.account, ''), f.message, f.since, f.seen_at, f.times
		FROM weir.findings f LEFT JOIN weir.accounts a ON a.id = f.account_id WHERE f.cleared_at IS NULL ORDER BY f.id LIMIT 10000`)
	if err != nil {
		return nil, fmt.Errorf("list findings: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Finding])
	if err != nil {
		return nil, fmt.Errorf("list findings: %w", err)
	}
	return list, nil
}
