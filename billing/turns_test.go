package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// backlog stores n links for each key, as if they had been planned hourly while nothing could be sent.
func (w *world) backlog(keys []int64, n int) {
	w.Helper()
	w.exec(`INSERT INTO weir.reports (key, segment, seq, try, from_units, to_units, value, customer, meter, identifier, stamp, cause, created_at)
		SELECT s.key, s.id, g, 1, g - 1, g, 1, s.customer, s.meter, 'weir:backlog:' || s.key || ':' || g, $2::timestamptz - g * interval '1 minute', 'a test', $2
		FROM generate_series(1, $3::integer) g, weir.segments s WHERE s.key = ANY ($1) AND s.ends IS NULL ORDER BY g, s.key`, keys, w.sim.Now(), n)
	w.exec("ANALYZE weir.reports")
}

// A claim costs what it claims, not what is due: with ten thousand links, one customer's or everybody's, it looks at
// a few of them. Whoever has had a turn waits until all others have had theirs.
func TestAClaimCostsWhatItClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		accounts, links int
		most            int64
	}{"one customer's": {1, 10_000, 10_000}, "everybody's": {20, 500, 100_000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			keys := w.crowd(c.accounts)
			require.NoError(t, w.sim.Advance(t.Context(), start.AddDate(0, 0, 20)))
			w.backlog(keys, c.links)
			turn := func(most int) {
				w.exec("CREATE TABLE turn AS SELECT * FROM weir.claim_reports($1, $2, interval '1 minute', NULL, false)", w.sim.Now(), most)
				require.EqualValues(t, min(most, c.accounts), w.number("SELECT count(*) FROM turn"))
				w.exec(`SELECT weir.settle_reports(array_agg(report), array_agg(attempt), array_agg(claim), array_agg('delivered'::text), array_agg(200), array_agg(''::text), array_agg(''::text),
					array_agg(interval '0 s'), $1) FROM turn`, w.sim.Now())
				w.exec("DROP TABLE turn")
			}
			turn(100)
			for range 4 {
				turn(max(1, c.accounts/4)) // what became due first is behind other links now: turns go round
			}
			require.EqualValues(t, 0, w.number("SELECT max(n) - min(n) FROM (SELECT count(*) AS n FROM weir.reports WHERE state = 'delivered' GROUP BY customer) x"), "each has had as many")
			touched := w.buffers("SELECT * FROM weir.claim_reports('"+w.sim.Now().Format(time.RFC3339)+"', 100, interval '1 minute', NULL, false)", int64(c.accounts))
			t.Logf("%d pages touched", touched)
			require.Less(t, touched, c.most)
		})
	}
}

// buffers counts the pages of the database that a query touches, which has to return so many rows.
func (w *world) buffers(query string, rows int64) int64 {
	w.Helper()
	var plan []struct {
		Plan struct {
			Hit  int64   `json:"Shared Hit Blocks"`
			Read int64   `json:"Shared Read Blocks"`
			Rows float64 `json:"Actual Rows"`
		}
	}
	require.NoError(w, w.db.QueryRow(w.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+query).Scan(&plan))
	require.EqualValues(w, rows, plan[0].Plan.Rows)
	return plan[0].Plan.Hit + plan[0].Plan.Read
}
