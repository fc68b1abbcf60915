package books

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// FindingRow is an open finding of a list.
type FindingRow struct {
	ID int64
	billing.Finding
}

// FindingRows lists open findings after an id, oldest first, at most most; kind narrows to one kind, empty is all.
func FindingRows(ctx context.Context, db usage.DB, kind string, after int64, most int) ([]FindingRow, error) {
	var all []FindingRow
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		where, args := "f.cleared_at IS NULL AND f.id > $1", []any{after, most}
		if kind != "" {
			where, args = where+" AND f.kind = $3", append(args, kind)
		}
		rows, err := tx.Query(ctx, `SELECT f.id, f.kind, f.subject, coalesce(a.account, ''), f.message, f.since, f.seen_at, f.times
			FROM weir.findings f LEFT JOIN weir.accounts a ON a.id = f.account_id WHERE `+where+" ORDER BY f.id LIMIT $2", args...)
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (FindingRow, error) {
			var f FindingRow
			err := row.Scan(&f.ID, &f.Kind, &f.Subject, &f.Account, &f.Message, &f.Since, &f.SeenAt, &f.Times)
			return f, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list findings: %w", err)
	}
	return all, nil
}

// ReadFinding reads an open finding. One that is not there, or is cleared, is usage.ErrNotFound.
func ReadFinding(ctx context.Context, db usage.DB, id int64) (FindingRow, error) {
	var f FindingRow
	err := inSnapshot(ctx, db, func(tx pgx.Tx) (err error) {
		f, err = readFinding(ctx, tx, id)
		return err
	})
	if err != nil {
		return FindingRow{}, fmt.Errorf("read finding %d: %w", id, err)
	}
	return f, nil
}

func readFinding(ctx context.Context, tx pgx.Tx, id int64) (FindingRow, error) {
	f := FindingRow{ID: id}
	err := tx.QueryRow(ctx, `SELECT f.kind, f.subject, coalesce(a.account, ''), f.message, f.since, f.seen_at, f.times
		FROM weir.findings f LEFT JOIN weir.accounts a ON a.id = f.account_id WHERE f.id = $1 AND f.cleared_at IS NULL`, id).
		Scan(&f.Kind, &f.Subject, &f.Account, &f.Message, &f.Since, &f.SeenAt, &f.Times)
	if errors.Is(err, pgx.ErrNoRows) {
		return f, usage.ErrNotFound
	}
	return f, err
}

// FindingKinds lists the kinds of open findings, the one that has been open longest first, at most 50.
func FindingKinds(ctx context.Context, db usage.DB) ([]FindingKind, error) {
	var all []FindingKind
	err := inSnapshot(ctx, db, func(tx pgx.Tx) (err error) {
		all, err = findingKinds(ctx, tx)
		return err
	})
	return all, err
}
