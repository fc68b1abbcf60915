package books

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Health says how billing stands in the whole database. Ages are business time; 0 where nothing waits.
type Health struct {
	Reports    map[string]int64 // links that are not settled, by state: stored, unknown, rejected
	ReportAge  time.Duration    // of the oldest link that is stored and may be sent now, or whose outcome is unknown
	Deadline   time.Duration    // until the first draft is finalized that waits for reports; below 0: it has passed
	AtRisk     int64            // drafts that wait for reports
	Unclosed   int64            // periods that have ended and are not closed
	UnclosedBy time.Duration    // for how long the oldest of them
	LateHeld   int64            // late usage that waits for a person
	LateAge    time.Duration    // of the oldest of it
	Customers  int64            // customers that are due to be read
	SyncAge    time.Duration    // since the first of them was due
	Webhooks   int64            // stored events that nobody has looked at
	WebhookAge time.Duration
	Findings   map[string]int64 // open, by kind
	Stops      map[string]int64 // 1 for each cause that holds up all reports
	Skew       time.Duration    // Stripe's clock minus the database's, as last seen
	SweepAge   time.Duration    // since the last sweep; 0: there was none yet
	PlanAge    time.Duration    // since the last hourly pass; 0: there was none yet
	Live       *bool            // the mode that the database belongs to; nil: none yet
}

// ReadHealth reads it as of now, in one snapshot.
func ReadHealth(ctx context.Context, db usage.DB, now time.Time) (Health, error) {
	var h Health
	err := inSnapshot(ctx, db, func(tx pgx.Tx) (err error) {
		h, err = readHealth(ctx, tx, now)
		return err
	})
	return h, err
}

// readHealth reads by indexes of what is not settled: its cost follows from what waits, not from the ledger's length.
func readHealth(ctx context.Context, db usage.DB, now time.Time) (Health, error) {
	h := Health{Reports: map[string]int64{}, Findings: map[string]int64{}, Stops: map[string]int64{}}
	var report, unclosed, late, sync, webhook, sweep, plan *time.Time
	var deadline *time.Time
	var skew float64
	err := db.QueryRow(ctx, `SELECT
		(SELECT min(greatest(created_at, stamp)) FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over AND stamp <= $1),
		d.n, d.first, p.n, p.first, l.n, l.first, c.n, c.first, w.n, w.first,
		coalesce(extract(epoch FROM s.clock_skew), 0)::double precision, s.swept_at, s.planned_at, s.livemode
		FROM weir.billing s,
		     (SELECT count(*) AS n, min(finalizes_at) AS first FROM weir.invoices i WHERE status = 'draft'
		        AND EXISTS (SELECT FROM weir.reports r WHERE r.customer = i.customer AND r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over)) d,
		     (SELECT count(*) AS n, min(ends) AS first FROM weir.periods WHERE state IN ('open', 'closing') AND ends <= $1 AND coalesce(cut, ends) <= $1) p,
		     (SELECT count(*) AS n, min(created_at) AS first FROM weir.late WHERE state = 'held') l,
		     (SELECT count(*) AS n, min(coalesce(x.due_at, x.seen_at)) AS first FROM (
		        SELECT due_at, seen_at FROM weir.customers WHERE NOT deleted AND wanted > synced
		        UNION ALL SELECT due_at, seen_at FROM weir.customers WHERE NOT deleted AND due_at <= $1 AND wanted <= synced) x) c,
		     (SELECT count(*) AS n, min(received_at) AS first FROM weir.webhook_events WHERE state = 'stored') w`, now).
		Scan(&report, &h.AtRisk, &deadline, &h.Unclosed, &unclosed, &h.LateHeld, &late, &h.Customers, &sync, &h.Webhooks, &webhook, &skew, &sweep, &plan, &h.Live)
	if err != nil {
		return h, fmt.Errorf("read how billing stands: %w", err)
	}
	for to, at := range map[*time.Duration]*time.Time{
		&h.ReportAge: report, &h.UnclosedBy: unclosed, &h.LateAge: late, &h.SyncAge: sync, &h.WebhookAge: webhook, &h.SweepAge: sweep, &h.PlanAge: plan,
	} {
		if at != nil {
			*to = max(0, now.Sub(*at))
		}
	}
	if deadline != nil {
		h.Deadline = deadline.Sub(now)
	}
	h.Skew = time.Duration(skew * float64(time.Second))
	for _, q := range []struct {
		into map[string]int64
		sql  string
	}{
		{h.Reports, `SELECT state, count(*) FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over GROUP BY state
			UNION ALL SELECT 'rejected', x.n FROM (SELECT count(*) AS n FROM weir.reports WHERE state = 'rejected' AND NOT replaced) x WHERE x.n > 0`},
		{h.Findings, "SELECT kind, count(*) FROM weir.findings WHERE cleared_at IS NULL GROUP BY kind ORDER BY 2 DESC LIMIT 50"},
		{h.Stops, "SELECT cause, 1::bigint FROM weir.stops"},
	} {
		rows, err := db.Query(ctx, q.sql)
		if err != nil {
			return h, fmt.Errorf("read how billing stands: %w", err)
		}
		var name string
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { q.into[name] = n; return nil }); err != nil {
			return h, fmt.Errorf("read how billing stands: %w", err)
		}
	}
	return h, nil
}
