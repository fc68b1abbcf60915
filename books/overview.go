package books

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// Bounds of what an overview lists. What is left out is counted or has a page of its own.
const (
	overviewWorst    = 20
	overviewNodes    = 12
	overviewFeatures = 6
	overviewStuck    = 20
	mostKinds        = 50
	mostCounted      = 10_000
	// OverviewCount is where an overview stops counting what a node holds; NodeCount is where its own page does.
	OverviewCount = 1_000
	NodeCount     = 10_000
	stuckAfter    = 2 // reads in a row that failed
)

// Overview is how everything stands, read in one snapshot. Its cost follows from what waits and what is wrong, not from
// how many accounts and reports there are.
type Overview struct {
	AsOf      time.Time // business time
	LeaseTime time.Duration
	Counting  usage.Health
	Billing   Health
	Pressure  usage.Pressure
	Pace      []usage.Pace
	Nodes     []usage.NodeSheet
	Kinds     []FindingKind
	Stops     []billing.Stop
	Stuck     []StuckRead
	Parked    []usage.ParkedRow // the newest
}

// FindingKind is the open findings of one kind.
type FindingKind struct {
	Open   int64           // counted up to 10,000
	Since  time.Time       // of the oldest
	Latest billing.Finding // the newest of them
}

// StuckRead is something at Stripe that was asked for again and again in vain: a customer's subscriptions or an invoice.
// The webhooks about it are stored and wait.
type StuckRead struct {
	What     string // customer or invoice
	ID       string
	Customer string
	Account  string // empty: mapped to none
	Failures int64
	Error    string // of the last try
	Since    time.Time
	Events   int64 // stored webhook events that wait for it, counted up to 1,000
}

// ReadOverview reads it as of now, business time.
func ReadOverview(ctx context.Context, db usage.DB, now time.Time) (*Overview, error) {
	o := &Overview{AsOf: now.UTC()}
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error { return o.read(ctx, tx) })
	if err != nil {
		return nil, fmt.Errorf("read the overview: %w", err)
	}
	return o, nil
}

func (o *Overview) read(ctx context.Context, tx pgx.Tx) error {
	inst, err := usage.ReadInstallation(ctx, tx)
	if err != nil {
		return err
	}
	o.LeaseTime = inst.LeaseTime
	if o.Counting, err = usage.ReadHealth(ctx, tx, o.AsOf); err != nil {
		return err
	}
	if o.Billing, err = readHealth(ctx, tx, o.AsOf); err != nil {
		return err
	}
	if o.Pressure, err = usage.ReadPressure(ctx, tx, o.AsOf, overviewWorst); err != nil {
		return err
	}
	if o.Pace, err = usage.ReadPace(ctx, tx, o.AsOf, overviewFeatures); err != nil {
		return err
	}
	if o.Nodes, err = usage.NodeSheets(ctx, tx, o.AsOf, overviewNodes, OverviewCount); err != nil {
		return err
	}
	if o.Counting.Parked > 0 {
		if o.Parked, err = usage.ParkedRows(ctx, tx, 1); err != nil {
			return err
		}
	}
	if o.Kinds, err = findingKinds(ctx, tx); err != nil {
		return err
	}
	if o.Stops, err = readStops(ctx, tx); err != nil {
		return err
	}
	o.Stuck, err = stuckReads(ctx, tx, overviewStuck)
	return err
}

// findingKinds walks from kind to kind by an index, so that ten thousand findings of one kind cost no more than that.
func findingKinds(ctx context.Context, db usage.DB) ([]FindingKind, error) {
	rows, err := db.Query(ctx, `
		WITH RECURSIVE kinds AS (
			(SELECT f.kind, 1 AS n FROM weir.findings f WHERE f.cleared_at IS NULL ORDER BY f.kind LIMIT 1)
			UNION ALL
			SELECT (SELECT f.kind FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind > k.kind ORDER BY f.kind LIMIT 1), k.n + 1
			FROM kinds k WHERE k.kind IS NOT NULL AND k.n < $1)
		SELECT c.n, o.since, l.kind, l.subject, coalesce(a.account, ''), l.message, l.since, l.seen_at, l.times
		FROM kinds k
		CROSS JOIN LATERAL (SELECT count(*) AS n FROM (SELECT FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = k.kind LIMIT $2) x) c
		CROSS JOIN LATERAL (SELECT f.since FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = k.kind ORDER BY f.id LIMIT 1) o
		CROSS JOIN LATERAL (SELECT f.* FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = k.kind ORDER BY f.id DESC LIMIT 1) l
		LEFT JOIN weir.accounts a ON a.id = l.account_id
		WHERE k.kind IS NOT NULL ORDER BY o.since, k.kind`, mostKinds, mostCounted)
	if err != nil {
		return nil, fmt.Errorf("list kinds of findings: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (FindingKind, error) {
		var k FindingKind
		f := &k.Latest
		err := row.Scan(&k.Open, &k.Since, &f.Kind, &f.Subject, &f.Account, &f.Message, &f.Since, &f.SeenAt, &f.Times)
		return k, err
	})
	if err != nil {
		return nil, fmt.Errorf("list kinds of findings: %w", err)
	}
	return all, nil
}

func readStops(ctx context.Context, db usage.DB) ([]billing.Stop, error) {
	rows, err := db.Query(ctx, "SELECT cause, since, message FROM weir.stops ORDER BY since")
	if err != nil {
		return nil, fmt.Errorf("read what holds up reports: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[billing.Stop])
	if err != nil {
		return nil, fmt.Errorf("read what holds up reports: %w", err)
	}
	return all, nil
}

// StuckReads lists what cannot be read at Stripe, the longest known first, at most most.
func StuckReads(ctx context.Context, db usage.DB, most int) ([]StuckRead, error) {
	var all []StuckRead
	err := inSnapshot(ctx, db, func(tx pgx.Tx) (err error) {
		all, err = stuckReads(ctx, tx, most)
		return err
	})
	return all, err
}

// stuckReads finds what failed more than once and is still wanted, the longest known first.
func stuckReads(ctx context.Context, db usage.DB, most int) ([]StuckRead, error) {
	rows, err := db.Query(ctx, `
		SELECT x.what, x.id, x.customer, coalesce(a.account, ''), x.failures, coalesce(x.error, ''), x.seen_at,
		       (SELECT count(*) FROM (SELECT FROM weir.webhook_events e WHERE e.state = 'stored' AND e.customer = x.customer LIMIT 1000) y)
		FROM ((SELECT 'customer' AS what, c.customer AS id, c.customer, c.failures, c.error, c.seen_at FROM weir.customers c
		       WHERE c.failures > 0 AND c.failures >= $1 AND c.wanted > c.synced AND NOT c.deleted ORDER BY c.seen_at LIMIT $2)
		      UNION ALL
		      (SELECT 'invoice', i.invoice, i.customer, i.failures, i.error, i.seen_at FROM weir.invoices i
		       WHERE i.failures > 0 AND i.failures >= $1 AND i.wanted > i.read ORDER BY i.seen_at LIMIT $2)) x
		LEFT JOIN weir.customers u ON u.customer = x.customer LEFT JOIN weir.accounts a ON a.id = u.account_id
		ORDER BY x.seen_at, x.id LIMIT $2`, stuckAfter, most)
	if err != nil {
		return nil, fmt.Errorf("find what cannot be read: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[StuckRead])
	if err != nil {
		return nil, fmt.Errorf("find what cannot be read: %w", err)
	}
	return all, nil
}
