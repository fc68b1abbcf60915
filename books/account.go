package books

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// Account is how one account stands: what it is, how it is billed, and what holds for it beside its plan.
type Account struct {
	Name      string
	Plan      string // empty: the default plan
	PlanUntil *time.Time
	Quantity  int64
	Shadow    bool
	CreatedAt time.Time
	Contact   string
	Customers []AccountCustomer
	Overrides []AccountOverride
	Leases    []AccountLease // of the period under way
	Ceilings  map[int64]int64
	Held      []billing.LateUsage // late usage that waits for a decision
	Findings  []billing.Finding   // open ones
}

// AccountCustomer is a customer at Stripe whom the account is mapped to.
type AccountCustomer struct {
	Customer string
	Live     bool
	Source   string
	MappedAt *time.Time
	SyncedAt *time.Time
	Waiting  bool // it is to be read again
	Deleted  bool
	Frozen   string // why automatic decisions stopped; empty: they go on
	Error    string
}

// AccountOverride is what was negotiated for a feature, or set by the customer. Nil: as the plan says.
type AccountOverride struct {
	Feature                        string
	Included, Maximum, SpendingCap *int64
	Reason, Actor                  string
	SetAt                          time.Time
}

// AccountLease is what one node was allowed under a key, and used of it.
type AccountLease struct {
	Key       int64
	Feature   string
	Node      int64
	NodeName  string
	NodeState string
	Limit     int64
	Used      int64 // as folded
	Tight     bool
}

// maxLeases bounds the leases that are listed, those with the most left first.
const maxLeases = 200

const (
	accountHead = `SELECT a.id, a.account, coalesce(a.plan, ''), a.plan_until, a.quantity, a.shadow, a.created_at,
		coalesce((SELECT c.email FROM weir.contacts c WHERE c.account_id = a.id), '') FROM weir.accounts a WHERE a.account = $1`
	accountCustomers = `SELECT c.customer, c.livemode, coalesce(c.source, ''), c.mapped_at, c.synced_at, c.wanted > c.synced, c.deleted, coalesce(c.frozen, ''), coalesce(c.error, '')
		FROM weir.customers c WHERE c.account_id = $1 ORDER BY c.customer LIMIT 10`
	accountOverrides = `SELECT f.name, o.included, o.maximum, o.spending_cap, o.reason, o.actor, o.set_at FROM weir.overrides o
		JOIN weir.features f ON f.id = o.feature_id WHERE o.account_id = $1 ORDER BY f.name LIMIT 200`
	accountLeases = `SELECT l.key, f.name, l.node, n.name, n.state, l.lim, coalesce(d.used, 0), l.tight
		FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id JOIN weir.leases l ON l.key = k.key JOIN weir.nodes n ON n.id = l.node
		LEFT JOIN weir.done d ON d.key = l.key AND d.node = l.node
		WHERE k.period_id = weir.period_at($1, $2) ORDER BY f.name, l.lim - coalesce(d.used, 0) DESC, l.node LIMIT $3`
	accountCeilings = `SELECT q.key, q.ceiling FROM weir.keys k JOIN weir.quotas q ON q.key = k.key WHERE k.period_id = weir.period_at($1, $2)`
	accountHeld     = `SELECT l.id, a.account, f.name, p.starts, p.ends, l.units, l.policy, l.state, l.cause, coalesce(s.customer, ''), l.created_at, coalesce(l.error, '')
		FROM weir.keys k JOIN weir.late l ON l.key = k.key AND l.state = 'held' JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		JOIN weir.periods p ON p.id = k.period_id LEFT JOIN weir.segments s ON s.id = l.segment WHERE k.account_id = $1 ORDER BY l.id LIMIT 100`
	accountFindings = `SELECT f.kind, f.subject, a.account, f.message, f.since, f.seen_at, f.times FROM weir.findings f JOIN weir.accounts a ON a.id = f.account_id
		WHERE f.account_id = $1 AND f.cleared_at IS NULL ORDER BY f.id LIMIT 100`
)

// AccountQueries are what ReadAccount runs: the settings of its transaction, then its queries. The first takes the
// account's name, the others its number; leases also an instant and a limit, ceilings an instant.
func AccountQueries() []string {
	return []string{byIndex, accountHead, accountCustomers, accountOverrides, accountHeld, accountFindings, accountCeilings, accountLeases}
}

// ReadAccount reads how an account stands, in one snapshot. One that does not exist is usage.ErrNotFound.
func ReadAccount(ctx context.Context, db usage.DB, account string, now time.Time) (*Account, error) {
	a := &Account{Ceilings: map[int64]int64{}}
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		var id int64
		err := tx.QueryRow(ctx, accountHead, account).Scan(&id, &a.Name, &a.Plan, &a.PlanUntil, &a.Quantity, &a.Shadow, &a.CreatedAt, &a.Contact)
		if errors.Is(err, pgx.ErrNoRows) {
			return usage.ErrNotFound
		}
		if err != nil {
			return err
		}
		var errs [5]error
		a.Customers, errs[0] = collect[AccountCustomer](ctx, tx, accountCustomers, id)
		a.Overrides, errs[1] = collect[AccountOverride](ctx, tx, accountOverrides, id)
		a.Leases, errs[2] = collect[AccountLease](ctx, tx, accountLeases, id, now, maxLeases)
		a.Held, errs[3] = collect[billing.LateUsage](ctx, tx, accountHeld, id)
		a.Findings, errs[4] = collect[billing.Finding](ctx, tx, accountFindings, id)
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		var key, most int64
		rows, err := tx.Query(ctx, accountCeilings, id, now)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&key, &most}, func() error { a.Ceilings[key] = most; return nil })
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read account %q: %w", account, err)
	}
	return a, nil
}

func collect[T any](ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}
