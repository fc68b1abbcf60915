package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Compared is what the last comparisons of a meter's windows said, each window's newest one of the last 35 days.
type Compared struct {
	Meter    string // event_name
	Windows  int64
	Reported int64 // units that the ledger has as told to Stripe
	Unsure   int64 // of these, with an outcome that was unknown
	AtStripe int64 // units in the summaries
	Oldest   time.Time
	Newest   time.Time // when the first and the last of these summaries were read, business time
}

// Compared lists what Reconcile has compared, by meter.
func (b *Biller) Compared(ctx context.Context) ([]Compared, error) {
	rows, err := b.db.Query(ctx, `SELECT x.meter, count(*), sum(x.expected)::bigint, sum(x.unsure)::bigint, sum(x.found)::bigint, min(x.read_at), max(x.read_at)
		FROM (SELECT DISTINCT ON (s.customer, s.meter, s.starts) s.* FROM weir.summaries s WHERE s.read_at > $1::timestamptz - interval '35 days'
			ORDER BY s.customer, s.meter, s.starts, s.read_at DESC, s.id DESC) x GROUP BY x.meter ORDER BY x.meter`, b.now())
	if err != nil {
		return nil, fmt.Errorf("read what was compared: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Compared])
	if err != nil {
		return nil, fmt.Errorf("read what was compared: %w", err)
	}
	return all, nil
}
