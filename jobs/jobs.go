// Package jobs runs the worker's part of Weir on River: it folds, closes, reports and reads, each in a job that calls
// usage or billing and does nothing else.
//
// A job is a nudge. What is due is read from rows and claimed in rows by those packages, so a job that is lost, doubled
// or stuck changes nothing: a Worker looks for due work each second and inserts a job for each kind that has some.
package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirhq/weir/billing"
)

// Schema is the PostgreSQL schema of River's tables.
const Schema = "weir"

const (
	jobTimeout  = 30 * time.Second
	rescueAfter = 2 * time.Minute
	longestWait = 30 * time.Second // between two tries of a job
)

// Migrate makes River's own tables in Weir's schema, which must be there. It may run many times and in many programs.
func Migrate(ctx context.Context, db *pgxpool.Pool) error {
	m, err := rivermigrate.New(riverpgxv5.New(db), &rivermigrate.Config{Schema: Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return fmt.Errorf("migrate River's tables: %w", err)
	}
	// Two programs at once would make a table twice; the lock of Weir's own migrations is another one. It is the
	// session's, since some of River's migrations need transactions of their own.
	lock, err := db.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("migrate River's tables: %w", err)
	}
	defer lock.Release()
	if _, err := lock.Exec(ctx, "SELECT pg_advisory_lock(1463110994, 1)"); err != nil {
		return fmt.Errorf("migrate River's tables: take the lock: %w", err)
	}
	defer func() { _, _ = lock.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock(1463110994, 1)") }()
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	if err != nil {
		return fmt.Errorf("migrate River's tables: %w", err)
	}
	return nil
}

// Enqueuer inserts jobs in somebody else's transaction; billing's webhook uses one.
type Enqueuer struct{ client *river.Client[pgx.Tx] }

// NewEnqueuer makes an Enqueuer; it works no jobs.
func NewEnqueuer(db *pgxpool.Pool) (*Enqueuer, error) {
	c, err := river.NewClient(riverpgxv5.New(db), &river.Config{Schema: Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("make an enqueuer: %w", err)
	}
	return &Enqueuer{client: c}, nil
}

// Enqueue inserts a job within tx; it fits billing.Config.Enqueue.
func (e *Enqueuer) Enqueue(ctx context.Context, tx pgx.Tx, n billing.Nudge) error {
	_, err := e.client.InsertTx(ctx, tx, n, &river.InsertOpts{Queue: queueOf(n.Kind())})
	return err
}

// Queues keep kinds of work from each other's way: the fold never waits for a call to Stripe.
const (
	queueFold = "fold"
	queueSend = "send"
	queueRead = "read"
)

func queueOf(kind string) string {
	switch kind {
	case "flush", "close", "retire":
		return queueFold
	case "report", "late":
		return queueSend
	case "warn":
		return queueTell
	}
	return queueRead
}

// steer turns an error of the work into what River does next: a permanent one is parked, a throttled one waits without
// counting as a failure, anything else is tried again soon.
func steer(err error) error {
	if err == nil {
		return nil
	}
	if d, ok := billing.Throttled(err); ok {
		return river.JobSnooze(max(d, time.Second))
	}
	if billing.IsPermanent(err) {
		return river.JobCancel(err)
	}
	return err
}

// retries are short: due work must not wait for a job's long memory of failures.
type retries struct{}

func (retries) NextRetry(job *rivertype.JobRow) time.Time {
	wait := time.Second << min(max(job.Attempt-1, 0), 5)
	return time.Now().Add(min(wait, longestWait))
}

var errNoBiller = errors.New("jobs: New needs a database, a Biller, a clock and a logger")
