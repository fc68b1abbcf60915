package billing

import (
	"context"
	"fmt"
)

// Due says which kinds of work are due. It is read from rows, so that nothing depends on who was told of it.
type Due struct {
	Sync    bool // customers to read
	Close   bool // periods that have ended, and units that were counted in void ones
	Report  bool // links to plan or to send
	Invoice bool // invoices to read
	Late    bool // late usage to put on invoices
	Resolve bool // reports whose outcome a summary has to tell
	Sweep   bool // the daily look for what webhooks missed
	Errors  bool // thin events about refused meter events
}

// Due looks for due work.
func (b *Biller) Due(ctx context.Context) (Due, error) {
	var d Due
	now := b.now()
	err := b.db.QueryRow(ctx, `SELECT
		EXISTS (SELECT FROM weir.customers WHERE wanted > synced AND NOT deleted AND claimed_until <= clock_timestamp())
			OR EXISTS (SELECT FROM weir.customers WHERE due_at <= $1 AND NOT deleted AND claimed_until <= clock_timestamp()),
		EXISTS (SELECT FROM weir.periods WHERE state IN ('open', 'closing') AND ends <= $1 AND coalesce(cut, ends) <= $1) OR EXISTS (SELECT FROM weir.strays),
		EXISTS (SELECT FROM weir.chains WHERE due)
			OR EXISTS (SELECT FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over AND retry_at <= clock_timestamp())
			OR EXISTS (SELECT FROM weir.billing WHERE planned_at IS NULL OR planned_at <= $1 - interval '1 hour')
			OR EXISTS (SELECT FROM weir.moved) OR EXISTS (SELECT FROM weir.closing_due($1)),
		EXISTS (SELECT FROM weir.invoices WHERE wanted > read AND claimed_until <= clock_timestamp()),
		EXISTS (SELECT FROM weir.late WHERE state = 'stored' AND retry_at <= clock_timestamp()),
		EXISTS (SELECT FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over AND state = 'unknown'
			AND (first_sent <= $1 - interval '23 hours' OR retry_at = 'infinity') AND (read_at IS NULL OR read_at <= $1 - interval '1 hour')),
		EXISTS (SELECT FROM weir.billing WHERE swept_at IS NULL OR swept_at <= $1 - interval '24 hours'),
		EXISTS (SELECT FROM weir.webhook_events WHERE state = 'stored' AND thin)`, now).
		Scan(&d.Sync, &d.Close, &d.Report, &d.Invoice, &d.Late, &d.Resolve, &d.Sweep, &d.Errors)
	if err != nil {
		return d, fmt.Errorf("look for due work: %w", err)
	}
	if b.cfg.Stripe == nil {
		d = Due{Close: d.Close}
	}
	return d, nil
}
