package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetSpendingCap stores the customer's own bound of overage units for a feature, nil for none, and applies it to the
// open period and those to come. What was negotiated with the account beside it stays. A feature or an account that
// does not exist is ErrNotFound.
func SetSpendingCap(ctx context.Context, db DB, account, feature string, units *int64, actor string, now time.Time) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, err := FindAccount(ctx, tx, account, false, now)
		if err != nil {
			return err
		}
		// First the fold's lock, as everywhere.
		if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", id); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO weir.overrides AS o (account_id, feature_id, spending_cap, reason, actor, set_at)
			SELECT $1, f.id, $3, 'spending cap', $4, $5 FROM weir.features f WHERE f.name = $2
			ON CONFLICT (account_id, feature_id) DO UPDATE SET spending_cap = excluded.spending_cap, set_at = excluded.set_at,
				reason = CASE WHEN o.included IS NULL AND o.maximum IS NULL THEN excluded.reason ELSE o.reason END,
				actor = CASE WHEN o.included IS NULL AND o.maximum IS NULL THEN excluded.actor ELSE o.actor END`,
			id, feature, units, actor, now)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return pgx.ErrNoRows
		}
		_, err = tx.Exec(ctx, "SELECT weir.apply_terms($1, NULL, $2)", id, now)
		return err
	})
	return wrap("set spending cap", err)
}
