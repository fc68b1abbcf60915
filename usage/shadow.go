package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"
)

// MaxShadowed bounds the rows of one Shadowed report.
const MaxShadowed = 10_000

// ShadowTotal is what shadow mode let pass under one key. Counts are units, as folded.
type ShadowTotal struct {
	Account  string
	Feature  string
	Plan     string
	Starts   time.Time
	Ends     time.Time
	Included *int64 // nil: unlimited
	Used     int64
	Passed   int64 // that would have been refused under the terms as they stand
	Billed   int64 // overage that the terms admit and bill
	// UnitAmount is the price of a unit in the currency's minor units; not valid: it is not known yet.
	UnitAmount decimal.NullDecimal
}

// Shadowed lists the keys of accounts and plans that are in shadow mode now, whose period ends after an instant and that
// passed units which would have been refused, or are overage: the most refused first, at most MaxShadowed. Nothing has to
// be recorded for it: what was counted beyond the included units and the overage that the terms admit is what would have
// been refused, call sizes aside.
func Shadowed(ctx context.Context, db DB, after time.Time) ([]ShadowTotal, error) {
	rows, err := db.Query(ctx, `
		SELECT x.account, x.feature, x.plan, x.starts, x.ends, x.included, x.used, x.passed, x.overage - x.passed AS billed, x.unit_amount FROM (
			SELECT a.account, f.name AS feature, p.plan, p.starts, p.ends, k.included, t.used + t.adjusted AS used, k.unit_amount,
			       CASE WHEN k.in_plan THEN t.overage ELSE t.free + t.overage END AS overage,
			       CASE WHEN NOT k.in_plan THEN t.free + t.overage
			            WHEN weir.overage_open(k.on_exceeded, k.billability, k.when_not_billable)
			            THEN greatest(0, t.overage - least(coalesce(k.maximum, weir.boundless()), coalesce(k.spending_cap, weir.boundless())))
			            ELSE t.overage END AS passed
			FROM weir.periods p
			JOIN weir.accounts a ON a.id = p.account_id
			JOIN weir.keys k ON k.period_id = p.id
			JOIN weir.features f ON f.id = k.feature_id
			JOIN weir.totals t ON t.key = k.key
			WHERE p.state <> 'void' AND p.ends > $1 AND weir.in_shadow(a.shadow, p.plan, (SELECT weir.shadow_plans()))) x
		WHERE x.overage > 0 ORDER BY x.passed DESC, x.overage DESC, x.account, x.feature, x.starts LIMIT $2`, after, MaxShadowed)
	if err != nil {
		return nil, wrap("list what shadow mode let pass", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ShadowTotal])
	return out, wrap("list what shadow mode let pass", err)
}

// SetShadow puts an account into shadow mode or takes it out: its calls are decided and recorded, and none is refused.
// Nodes learn of it by its change number.
func SetShadow(ctx context.Context, db DB, account int64, on bool) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE weir.accounts SET shadow = $2 WHERE id = $1 AND shadow <> $2", account, on)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "SELECT weir.touch($1)", account)
		return err
	})
	return wrap("set shadow mode", err)
}
