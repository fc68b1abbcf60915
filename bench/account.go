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
)

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
