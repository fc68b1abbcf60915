package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/measure"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const (
	flushNodes = 4
	flushKeys  = 1000
)

// flushes measures what four nodes send under the same keys, from sent to folded, beside what they would do without an
// inbox: each brings its own row of every key and the key's total up to date, in one statement that is sorted by key. A
// total alone, upserted by bare increments that count twice when they are sent twice, stands beside it. All share one
// database and alternate.
func flushes(w *world, o measure.Options) ([]row, error) {
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	nodes, keys, err := flushWorld(w.ctx, db)
	if err != nil {
		return nil, err
	}
	upto := int64(0)
	var rates, references, ratios, bares, wals []float64
	for range o.Rounds {
		const repeat = 5
		before, err := number(w.ctx, db, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if err := sendAndFold(w.ctx, db, nodes, keys, &upto, repeat); err != nil {
			return nil, err
		}
		took := time.Since(began)
		after, err := number(w.ctx, db, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
		if err != nil {
			return nil, err
		}
		reference, err := upserts(w.ctx, db, nodes, keys, upto-repeat, repeat, sameWork)
		if err != nil {
			return nil, err
		}
		bare, err := upserts(w.ctx, db, nodes, keys, upto-repeat, repeat, bareTotal)
		if err != nil {
			return nil, err
		}
		rows := float64(repeat * flushNodes * flushKeys)
		rates, references = append(rates, rows/took.Seconds()), append(references, rows/reference.Seconds())
		ratios, bares = append(ratios, reference.Seconds()/took.Seconds()), append(bares, bare.Seconds()/took.Seconds())
		wals = append(wals, float64(after-before)/rows)
	}
	for _, table := range []string{"weir.totals", "reference"} {
		sum, err := number(w.ctx, db, "SELECT sum(used) FROM "+table)
		if err != nil {
			return nil, err
		}
		if want := upto * flushNodes * flushKeys; sum != want {
			return nil, fmt.Errorf("%s has %d units, sent were %d", table, sum, want)
		}
	}
	deadlocks, err := number(w.ctx, db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	if err != nil {
		return nil, err
	}
	median := measure.Median
	rate := fmt.Sprintf("%.0f rows/s", median(rates))
	bare := compared("the same against bare increments of the total", rate, "", median(bares), 0, true)
	bare.target = ""
	return []row{
		absolute("flush, 4 nodes × 1,000 keys, sent → folded", median(rates), 60_000, "rows/s", true),
		compared("the same against sorted upserts of the same rows", rate, fmt.Sprintf("%.0f rows/s", median(references)), median(ratios), 1.5, true),
		bare,
		absolute("deadlocks in all rounds", float64(deadlocks), 0, "", false),
		absolute("WAL per row", median(wals), 350, "bytes", false),
	}, nil
}

func flushWorld(ctx context.Context, db *pgxpool.Pool) (nodes, keys []int64, err error) {
	catalog, err := plans.Parse([]byte(planFile))
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	if _, _, err := usage.Publish(ctx, db, catalog, "bench", now); err != nil {
		return nil, nil, err
	}
	for i := range flushNodes {
		n, err := usage.Register(ctx, db, fmt.Sprint("node ", i), "", now)
		if err != nil {
			return nil, nil, err
		}
		nodes = append(nodes, n.ID)
	}
	var calls []usage.ContactCall
	for i := range flushKeys {
		calls = append(calls, usage.ContactCall{Account: fmt.Sprintf("account-%06d", i), Feature: "events", Units: 1, Want: 1000, Waiting: 1})
	}
	found, err := usage.Contacts(ctx, db, nodes[0], true, now, calls)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range found {
		if k.Feature == "events" && !now.Before(k.Starts) && now.Before(k.Ends) {
			keys = append(keys, k.Key)
		}
	}
	slices.Sort(keys)
	_, err = db.Exec(ctx, `
		CREATE TABLE reference (key bigint PRIMARY KEY, used bigint NOT NULL) WITH (fillfactor = 45);
		CREATE TABLE reference_done (key bigint, node bigint, used bigint NOT NULL, PRIMARY KEY (key, node)) WITH (fillfactor = 45);
		CREATE TABLE bare (key bigint PRIMARY KEY, used bigint NOT NULL) WITH (fillfactor = 70);
		ANALYZE`)
	return nodes, keys, err
}

func sendAndFold(ctx context.Context, db *pgxpool.Pool, nodes, keys []int64, upto *int64, repeat int64) error {
	var senders, folder sync.WaitGroup
	var sent atomic.Bool
	failures := make(chan error, len(nodes)+1)
	folder.Go(func() {
		gone := int64(0)
		for {
			last := sent.Load()
			n, err := usage.Fold(ctx, db, 5000)
			if gone += n; err == nil && n == 0 && gone >= usage.TidyRows { // as a worker does
				gone = 0
				err = usage.TidyInbox(ctx, db)
			}
			if err != nil {
				failures <- err
				return
			}
			if n == 0 && last {
				return
			}
			if n == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	})
	for _, node := range nodes {
		senders.Go(func() {
			counts := make([]int64, len(keys))
			for r := range repeat {
				for i := range counts {
					counts[i] = *upto + r + 1
				}
				now := time.Now()
				if _, err := usage.Flush(ctx, db, usage.Batch{Node: node, Keys: keys, Upto: counts, At: now, Sealed: now}); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	senders.Wait()
	sent.Store(true)
	folder.Wait()
	*upto += repeat
	close(failures)
	return errors.Join(collect(failures)...)
}

const (
	// sameWork takes what the node had, moves it to the new amount, and adds the difference to the total.
	sameWork = `
		WITH b AS MATERIALIZED (
			SELECT t.k, t.u, coalesce(d.used, 0) AS old FROM unnest($1::bigint[], $2::bigint[]) AS t(k, u)
			LEFT JOIN reference_done d ON d.key = t.k AND d.node = $3 ORDER BY t.k),
		own AS (
			INSERT INTO reference_done AS d (key, node, used) SELECT b.k, $3, b.u FROM b WHERE b.u > b.old
			ON CONFLICT (key, node) DO UPDATE SET used = greatest(d.used, excluded.used))
		INSERT INTO reference AS r (key, used) SELECT b.k, b.u - b.old FROM b WHERE b.u > b.old ORDER BY b.k
		ON CONFLICT (key) DO UPDATE SET used = r.used + excluded.used`
	bareTotal = `
		INSERT INTO bare AS r (key, used) SELECT t.k, least(t.u, 1) FROM unnest($1::bigint[], $2::bigint[]) AS t(k, u) WHERE $3::bigint > 0 ORDER BY t.k
		ON CONFLICT (key) DO UPDATE SET used = r.used + excluded.used`
)

// upserts sends the batches of sendAndFold by a statement that does all of the work at once, a connection for each node.
func upserts(ctx context.Context, db *pgxpool.Pool, nodes, keys []int64, upto, repeat int64, statement string) (time.Duration, error) {
	var all sync.WaitGroup
	failures := make(chan error, len(nodes))
	began := time.Now()
	for _, node := range nodes {
		all.Go(func() {
			counts := make([]int64, len(keys))
			for r := range repeat {
				for i := range counts {
					counts[i] = upto + r + 1
				}
				if _, err := db.Exec(ctx, statement, keys, counts, node); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	return time.Since(began), errors.Join(collect(failures)...)
}

func collect(failures <-chan error) (all []error) {
	for err := range failures {
		all = append(all, err)
	}
	return all
}

func number(ctx context.Context, db *pgxpool.Pool, sql string) (n int64, err error) {
	err = db.QueryRow(ctx, "SELECT ("+sql+")::bigint").Scan(&n)
	return n, err
}
