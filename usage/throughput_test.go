package usage_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

const (
	benchNodes = 4
	benchKeys  = 1000
)

// BenchmarkFlushToFolded measures what four nodes send under the same 1,000 keys, from sent to folded, on a durable
// server, beside the same amounts as sorted upserts of four connections.
func BenchmarkFlushToFolded(b *testing.B) {
	server := pgtest.Server(b)
	require.NoError(b, schematest.Migrate(b.Context(), server.URL("postgres")))
	db := pgtest.Pool(b, server.URL("postgres"))
	w := worldOn(b, db)
	keys := w.manyKeys(benchKeys)
	nodes := make([]int64, benchNodes)
	for i := range nodes {
		nodes[i] = w.node()
	}
	w.exec("CREATE TABLE reference (key bigint PRIMARY KEY, used bigint NOT NULL) WITH (fillfactor = 70)")
	w.exec("INSERT INTO reference SELECT unnest($1::bigint[]), 0", keys)
	for i := range nodes {
		w.flush(nodes[i], noon, pairs(keys, 1)...)
	}
	w.fold()
	w.exec("CHECKPOINT")
	rounds := int64(max(b.N, 20))
	b.ResetTimer()

	wal := w.wal()
	start := time.Now()
	sendAndFold(w, nodes, keys, rounds)
	took := time.Since(start)
	rows := float64(rounds * benchNodes * benchKeys)
	perRow := float64(w.wal()-wal) / rows
	start = time.Now()
	upsert(w, keys, rounds)
	reference := time.Since(start)
	b.StopTimer()

	require.EqualValues(b, benchKeys*benchNodes*(rounds+1), w.number("SELECT sum(used) FROM weir.totals"))
	b.ReportMetric(rows/took.Seconds(), "rows/s")
	b.ReportMetric(perRow, "WAL-B/row")
	b.ReportMetric(reference.Seconds()/took.Seconds(), "x-of-upserts")
	b.ReportMetric(0, "ns/op")
}

func sendAndFold(w *world, nodes, keys []int64, rounds int64) {
	ctx, stop := context.WithCancel(w.Context())
	var folder, senders sync.WaitGroup
	folder.Go(func() {
		for ctx.Err() == nil {
			n, err := usage.Fold(w.Context(), w.db, 5000)
			require.NoError(w, err)
			if n == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	for _, n := range nodes {
		senders.Go(func() {
			for r := range rounds {
				w.flush(n, noon, pairs(keys, r+2)...)
			}
		})
	}
	senders.Wait()
	stop()
	folder.Wait()
	w.fold()
}

func upsert(w *world, keys []int64, rounds int64) {
	var wg sync.WaitGroup
	one := make([]int64, len(keys))
	for i := range one {
		one[i] = 1
	}
	for range benchNodes {
		wg.Go(func() {
			for range rounds {
				_, err := w.db.Exec(w.Context(), `INSERT INTO reference AS r (key, used) SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS t(k, u) ORDER BY k
					ON CONFLICT (key) DO UPDATE SET used = r.used + excluded.used`, keys, one)
				require.NoError(w, err)
			}
		})
	}
	wg.Wait()
}

// manyKeys makes that many accounts and returns their keys of this period, ascending.
func (w *world) manyKeys(n int) []int64 {
	w.Helper()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := i; j < n; j += 8 {
				w.contact(-5, fmt.Sprintf("account %06d", j), noon)
			}
		})
	}
	wg.Wait()
	return numbers(w, w.db, "SELECT k.key FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE p.starts <= $1 AND $1 < p.ends ORDER BY 1", noon)
}

func numbers(t testing.TB, db *pgxpool.Pool, sql string, args ...any) []int64 {
	t.Helper()
	var all []int64
	require.NoError(t, db.QueryRow(t.Context(), "SELECT coalesce(array_agg(x.n), '{}') FROM ("+sql+") x(n)", args...).Scan(&all))
	return all
}

func (w *world) wal() int64 {
	return w.number("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
}

func pairs(keys []int64, upto int64) []int64 {
	out := make([]int64, 0, 2*len(keys))
	for _, k := range keys {
		out = append(out, k, upto)
	}
	return out
}
