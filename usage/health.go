package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// mostCounted is where counting rows for Health stops: what is more than that is bad enough.
const mostCounted = 100_000

// Health says how the counting stands in the whole database. Ages are wall time.
type Health struct {
	Inbox       int64            // rows that wait for the fold, counted up to 100,000
	InboxAge    time.Duration    // business time since the oldest of them was counted; 0: none waits
	Parked      int64            // rows that could not be folded, counted up to 100,000
	Nodes       map[string]int64 // by state, those that are over left out
	SilentAge   time.Duration    // since the last heartbeat of the live node that is silent longest; 0: no live node
	UnsealedAge time.Duration    // business time since the mark of the node that is furthest behind; 0: none
	Overshoots  map[string]int64 // units of each exception to exact caps, by cause, as far as they are kept
	Catalog     int64            // number of the published plan file; 0: none
	Change      int64            // latest change number
}

// ReadHealth reads it, at an instant of business time.
func ReadHealth(ctx context.Context, db DB, now time.Time) (Health, error) {
	h := Health{Nodes: map[string]int64{}, Overshoots: map[string]int64{}}
	var oldest *time.Time
	var silent, unsealed *float64
	err := db.QueryRow(ctx, `SELECT i.n, i.oldest, (SELECT count(*) FROM (SELECT FROM weir.inbox_parked LIMIT $1) x),
			n.silent, n.unsealed, coalesce((SELECT max(number) FROM weir.catalogs), 0), (SELECT number FROM weir.changes)
		FROM (SELECT count(*) AS n, min(at) AS oldest FROM (SELECT at FROM weir.inbox LIMIT $1) x) i,
		     (SELECT max(extract(epoch FROM clock_timestamp() - heartbeat_at)) FILTER (WHERE state = 'live')::double precision AS silent,
		             max(extract(epoch FROM $2::timestamptz - sealed))::double precision AS unsealed
		      FROM weir.nodes WHERE state IN ('live', 'reaping', 'reaped')) n`, mostCounted, now).
		Scan(&h.Inbox, &oldest, &h.Parked, &silent, &unsealed, &h.Catalog, &h.Change)
	if err != nil {
		return h, wrap("read how the counting stands", err)
	}
	if oldest != nil {
		h.InboxAge = max(0, now.Sub(*oldest))
	}
	h.SilentAge, h.UnsealedAge = seconds(silent), seconds(unsealed)
	for _, q := range []struct {
		into map[string]int64
		sql  string
	}{
		{h.Nodes, "SELECT state, count(*) FROM weir.nodes WHERE state NOT IN ('internal', 'retired', 'given_up') GROUP BY state"},
		{h.Overshoots, "SELECT cause, sum(units)::bigint FROM weir.overshoots GROUP BY cause ORDER BY 2 DESC LIMIT 20"},
	} {
		rows, err := db.Query(ctx, q.sql)
		if err != nil {
			return h, wrap("read how the counting stands", err)
		}
		var name string
		var n int64
		if _, err := pgx.ForEachRow(rows, []any{&name, &n}, func() error { q.into[name] = n; return nil }); err != nil {
			return h, wrap("read how the counting stands", err)
		}
	}
	return h, nil
}

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return max(0, time.Duration(*s*float64(time.Second)))
}
