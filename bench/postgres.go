package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const (
	flushNodes = 4
	flushKeys  = 1000
)

// flushes measures what four nodes send under the same keys, from sent to folded, beside the same amounts as sorted
// upserts of four connections. Both share one database and alternate.
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
	var rates, references, ratios, wals []float64
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
		began = time.Now()
		if err := upserts(w.ctx, db, keys, repeat); err != nil {
			return nil, err
		}
		reference := time.Since(began)
		rows := float64(repeat * flushNodes * flushKeys)
		rates, references = append(rates, rows/took.Seconds()), append(references, rows/reference.Seconds())
		ratios, wals = append(ratios, reference.Seconds()/took.Seconds()), append(wals, float64(after-before)/rows)
	}
	sum, err := number(w.ctx, db, "SELECT sum(used) FROM weir.totals")
	if err != nil {
		return nil, err
	}
	if want := upto * flushNodes * flushKeys; sum != want {
		return nil, fmt.Errorf("folded %d units, sent %d", sum, want)
	}
	deadlocks, err := number(w.ctx, db, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
	if err != nil {
		return nil, err
	}
	median := measure.Median
	return []row{
		absolute("flush, 4 nodes × 1,000 keys, sent → folded", median(rates), 60_000, "rows/s", true),
		compared("the same against sorted upserts", fmt.Sprintf("%.0f rows/s", median(rates)), fmt.Sprintf("%.0f rows/s", median(references)), median(ratios), 1.5, true),
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
	for i := range flushKeys {
		found, err := usage.Contact(ctx, db, usage.ContactRequest{Node: nodes[0], Account: fmt.Sprintf("account-%06d", i), At: now, Feature: "events", Units: 1, Want: 1000, Waiting: 1})
		if err != nil {
			return nil, nil, err
		}
		for _, k := range found {
			if k.Feature == "events" && !now.Before(k.Starts) && now.Before(k.Ends) {
				keys = append(keys, k.Key)
			}
		}
	}
	_, err = db.Exec(ctx, "CREATE TABLE reference (key bigint PRIMARY KEY, used bigint NOT NULL) WITH (fillfactor = 70)")
	if err == nil {
		_, err = db.Exec(ctx, "INSERT INTO reference SELECT unnest($1::bigint[]), 0", keys)
	}
	return nodes, keys, err
}

func sendAndFold(ctx context.Context, db *pgxpool.Pool, nodes, keys []int64, upto *int64, repeat int64) error {
	var senders, folder sync.WaitGroup
	var sent atomic.Bool
	failures := make(chan error, len(nodes)+1)
	folder.Go(func() {
		for {
			last := sent.Load()
			n, err := usage.Fold(ctx, db, 5000)
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

func upserts(ctx context.Context, db *pgxpool.Pool, keys []int64, repeat int64) error {
	one := make([]int64, len(keys))
	for i := range one {
		one[i] = 1
	}
	var all sync.WaitGroup
	failures := make(chan error, flushNodes)
	for range flushNodes {
		all.Go(func() {
			for range repeat {
				if _, err := db.Exec(ctx, `INSERT INTO reference AS r (key, used) SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS t(k, u) ORDER BY k
					ON CONFLICT (key) DO UPDATE SET used = r.used + excluded.used`, keys, one); err != nil {
					failures <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	return errors.Join(collect(failures)...)
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

const capFile = `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 5_000_000}, on_exceeded: block}}
`

// hotAccount lets four nodes use one exact cap up, call by call, beside the conditional UPDATE that does the same.
func hotAccount(w *world, o measure.Options) ([]row, error) {
	const ceiling = 5_000_000
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	var nodes []*enforcer.Enforcer
	for range 4 {
		e, err := w.node(db, capFile)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, e)
	}
	var rates, references, ratios, trips []float64
	for r := range o.Rounds {
		account := fmt.Sprint("hot ", r)
		before := roundTrips(nodes)
		began := time.Now()
		admitted, err := useUp(w.ctx, nodes, account)
		took := time.Since(began)
		if err != nil {
			return nil, err
		}
		if admitted != ceiling {
			return nil, fmt.Errorf("admitted %d of a cap of %d", admitted, ceiling)
		}
		reference, err := conditionalUpdates(w.ctx, db)
		if err != nil {
			return nil, err
		}
		rate := float64(admitted) / took.Seconds()
		rates, references, ratios = append(rates, rate), append(references, reference), append(ratios, rate/reference)
		trips = append(trips, float64(roundTrips(nodes)-before)/float64(ceiling/1000))
	}
	return []row{
		compared("hot account, 4 nodes, cap of 5,000,000 filled to the unit", fmt.Sprintf("%.3g units/s", measure.Median(rates)),
			fmt.Sprintf("conditional UPDATE %.0f/s", measure.Median(references)), measure.Median(ratios), 1000, true),
		absolute("its round trips per 1,000 units", measure.Median(trips), 0.05, "", false),
	}, nil
}

func roundTrips(nodes []*enforcer.Enforcer) (n int64) {
	for _, e := range nodes {
		s := e.Stats()
		n += s.Exchanges + s.Contacts
	}
	return n
}

func useUp(ctx context.Context, nodes []*enforcer.Enforcer, account string) (int64, error) {
	var admitted atomic.Int64
	var all sync.WaitGroup
	failures := make(chan error, len(nodes))
	for _, e := range nodes {
		all.Go(func() {
			mine := int64(0)
			defer func() { admitted.Add(mine) }()
			for {
				d, err := e.Consume(ctx, account, "events", 1)
				switch {
				case err != nil:
					failures <- err
					return
				case d.Allowed:
					mine++
				case d.Reason == enforcer.QuotaExceeded:
					return
				}
			}
		})
	}
	all.Wait()
	close(failures)
	return admitted.Load(), errors.Join(collect(failures)...)
}

// conditionalUpdates is how many calls per second four connections get through on one row.
func conditionalUpdates(ctx context.Context, db *pgxpool.Pool) (float64, error) {
	if _, err := db.Exec(ctx, "CREATE TABLE IF NOT EXISTS hot (id int PRIMARY KEY, used bigint NOT NULL)"); err != nil {
		return 0, err
	}
	if _, err := db.Exec(ctx, "INSERT INTO hot VALUES (1, 0) ON CONFLICT DO NOTHING"); err != nil {
		return 0, err
	}
	const lasting = 500 * time.Millisecond
	var done atomic.Int64
	var all sync.WaitGroup
	failures := make(chan error, 4)
	began := time.Now()
	for range 4 {
		all.Go(func() {
			for time.Since(began) < lasting {
				if _, err := db.Exec(ctx, "UPDATE hot SET used = used + 1 WHERE id = 1 AND used + 1 <= 1000000000"); err != nil {
					failures <- err
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	close(failures)
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(collect(failures)...)
}
