package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Total is what is stored under one key, the inbox included, read in one statement. Counts are units.
type Total struct {
	Key         int64
	Account     string
	Feature     string
	Plan        string
	PeriodID    int64
	Starts      time.Time
	Ends        time.Time
	State       string // of the period
	Included    *int64 // nil: unlimited
	Used        int64  // counted by nodes, folded or in the inbox
	Folded      int64
	Free        int64 // folded
	Overage     int64 // folded
	NotBillable int64
	Adjusted    int64
	Ceiling     int64
	Granted     int64
}

// Totals reads the stored amounts of an account's periods that end after an instant, oldest first. A zero instant
// reads all. An account that does not exist has none.
func Totals(ctx context.Context, db DB, account string, after time.Time) ([]Total, error) {
	rows, err := db.Query(ctx, `
		SELECT k.key, a.account, f.name, p.plan, p.id, p.starts, p.ends, p.state, k.included, weir.stored(k.key), t.used, t.free, t.overage,
		       t.not_billable, t.adjusted, q.ceiling, q.granted
		FROM weir.accounts a
		JOIN weir.periods p ON p.account_id = a.id AND p.state <> 'void' AND p.ends > $2
		JOIN weir.keys k ON k.period_id = p.id
		JOIN weir.features f ON f.id = k.feature_id
		JOIN weir.totals t ON t.key = k.key
		JOIN weir.quotas q ON q.key = k.key
		WHERE a.account = $1 ORDER BY p.starts, f.name`, account, after)
	if err != nil {
		return nil, wrap("read totals", err)
	}
	totals, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Total])
	return totals, wrap("read totals", err)
}

// AccountIDs lists the database's ids of accounts above after, ascending, at most most of them.
func AccountIDs(ctx context.Context, db DB, after int64, most int) ([]int64, error) {
	rows, err := db.Query(ctx, "SELECT id FROM weir.accounts WHERE id > $1 ORDER BY id LIMIT $2", after, most)
	if err != nil {
		return nil, wrap("list accounts", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return ids, wrap("list accounts", err)
}
