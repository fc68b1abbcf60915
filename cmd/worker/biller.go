package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

// desk is what a command works with that touches the books: the database, business time, and billing.
type desk struct {
	pool   *pgxpool.Pool
	clock  *clock.Database
	biller *billing.Biller
}

// desk opens the database and billing. flags may be nil for commands that never call Stripe.
func (c *call) desk(flags *stripeFlags) (*desk, error) {
	var client *billing.Client
	if flags != nil {
		if err := flags.read(c.env); err != nil {
			return nil, err
		}
		var err error
		if client, err = flags.client(); err != nil {
			return nil, err
		}
	}
	pool, err := c.openMigrated()
	if err != nil {
		return nil, err
	}
	d := &desk{pool: pool, clock: databaseClock(pool)}
	if err := d.bill(c, client, nil); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

func databaseClock(pool *pgxpool.Pool) *clock.Database {
	return clock.NewDatabase(func(ctx context.Context) (time.Time, error) { return usage.Now(ctx, pool) })
}

// bill sets the clock and makes the Biller.
func (d *desk) bill(c *call, client *billing.Client, secrets []string) error {
	if err := d.clock.Sync(c.ctx); err != nil {
		return err
	}
	enqueuer, err := jobs.NewEnqueuer(d.pool)
	if err != nil {
		return err
	}
	d.biller, err = billing.New(d.pool, billing.Config{
		Stripe: client, Clock: d.clock, Logger: c.logger, Enqueue: enqueuer.Enqueue, WebhookSecrets: secrets,
	})
	return err
}
