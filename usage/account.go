package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// FindAccount returns the database's id of an account, making the account when create is set; else ErrNotFound.
func FindAccount(ctx context.Context, db DB, account string, create bool, now time.Time) (int64, error) {
	var id int64
	if create {
		_, err := db.Exec(ctx, "INSERT INTO weir.accounts (account, created_at) VALUES ($1, $2) ON CONFLICT (account) DO NOTHING", account, now)
		if err != nil {
			return 0, wrap("create account", err)
		}
	}
	err := db.QueryRow(ctx, "SELECT id FROM weir.accounts WHERE account = $1", account).Scan(&id)
	return id, wrap("find account", err)
}

// PlanState is what plan sync derived for an account from its live subscriptions.
type PlanState struct {
	Plan     string
	Quantity int64     // of the base item
	Anchor   time.Time // that allowances are cut from
	Months   int       // length of an allowance
	Starts   time.Time // the allowance's period, as confirmed by a GET; zero: no subscription is left
	Ends     time.Time
	Until    time.Time // the subscription is set to end then; zero: it is not
	Window   Window    // of the metered item, where it is not the period
	Billable []string  // features with exactly one live item on their meter
	Awaiting []string  // features whose overage waits for a fault to be repaired
}

// Window is a billing window, half-open. The zero value means: the period's own bounds.
type Window struct{ Start, End time.Time }

// ApplyPlan sets an account's plan and period. What was counted stays as it was counted; nothing is priced again.
// Nodes learn of it by its change number. It returns the period that is open afterwards.
func ApplyPlan(ctx context.Context, db DB, account int64, s PlanState, now time.Time) (period int64, err error) {
	err = db.QueryRow(ctx, `SELECT weir.apply_plan($1, nullif($2, ''), $3, $4, $5, $6, $7, $8, $9, $10,
		(SELECT coalesce(array_agg(f.id), '{}') FROM weir.features f WHERE f.name = ANY ($11)),
		(SELECT coalesce(array_agg(f.id), '{}') FROM weir.features f WHERE f.name = ANY ($12)), $13)`,
		account, s.Plan, max(s.Quantity, 1), orNull(s.Anchor), max(s.Months, 1), orNull(s.Starts), orNull(s.Ends), orNull(s.Until),
		orNull(s.Window.Start), orNull(s.Window.End), s.Billable, s.Awaiting, now).Scan(&period)
	return period, wrap("apply plan", err)
}

// Override is what was negotiated with an account for a feature, or what its customer set. Nil: as the plan says.
type Override struct {
	Included    *int64
	Maximum     *int64
	SpendingCap *int64 // overage units
	Reason      string
	Actor       string
}

// SetOverride stores an override and applies it to the open period and those to come.
func SetOverride(ctx context.Context, db DB, account int64, feature string, o Override, now time.Time) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// First the fold's lock, as everywhere.
		if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", account); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO weir.overrides (account_id, feature_id, included, maximum, spending_cap, reason, actor, set_at)
			SELECT $1, f.id, $3, $4, $5, $6, $7, $8 FROM weir.features f WHERE f.name = $2
			ON CONFLICT (account_id, feature_id) DO UPDATE SET included = excluded.included, maximum = excluded.maximum,
				spending_cap = excluded.spending_cap, reason = excluded.reason, actor = excluded.actor, set_at = excluded.set_at`,
			account, feature, o.Included, o.Maximum, o.SpendingCap, o.Reason, o.Actor, now)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return pgx.ErrNoRows
		}
		_, err = tx.Exec(ctx, "SELECT weir.apply_terms($1, NULL, $2)", account, now)
		return err
	})
	return wrap("set override", err)
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
