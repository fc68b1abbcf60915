package jobs_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

const planFile = `
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 100}, on_exceeded: block}}
`

type wall struct{}

func (wall) Now() time.Time { return time.Now() }

func newDatabase(t *testing.T) *pgxpool.Pool {
	t.Helper()
	db := pgtest.Pool(t, pgtest.Migrated(t, "jobs "+schema.Fingerprint(), func(ctx context.Context, url string) error {
		if err := schematest.Migrate(ctx, url); err != nil {
			return err
		}
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return err
		}
		defer pool.Close()
		return jobs.Migrate(ctx, pool)
	}))
	usagetest.Publish(t, db, planFile, time.Now())
	return db
}

func newWorker(t *testing.T, db *pgxpool.Pool) *jobs.Worker {
	t.Helper()
	return newLoggedWorker(t, db, slog.New(slog.DiscardHandler))
}

func newLoggedWorker(t *testing.T, db *pgxpool.Pool, log *slog.Logger) *jobs.Worker {
	t.Helper()
	b, err := billing.New(db, billing.Config{Clock: wall{}, Logger: log})
	require.NoError(t, err)
	w, err := jobs.New(jobs.Config{DB: db, Biller: b, Clock: wall{}, Logger: log})
	require.NoError(t, err)
	return w
}

func start(t *testing.T, w *jobs.Worker) {
	t.Helper()
	require.NoError(t, w.Start(t.Context()))
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
		defer stop()
		require.NoError(t, w.Stop(ctx))
	})
}

func count(t *testing.T, db *pgxpool.Pool, account string, units int64) int64 {
	t.Helper()
	now := time.Now()
	return usagetest.Register(t, db, "node", now).Use(account, "events", units, now)
}

func folded(t *testing.T, db *pgxpool.Pool, key, units int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		var used int64
		err := db.QueryRow(t.Context(), "SELECT used FROM weir.totals WHERE key = $1", key).Scan(&used)
		return err == nil && used == units
	}, 30*time.Second, 20*time.Millisecond)
}

func TestWorkerFoldsWhatNodesFlush(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	start(t, newWorker(t, db))
	folded(t, db, count(t, db, "acme", 7), 7)
	folded(t, db, count(t, db, "umbrella", 9), 9)
}

// What was folded stays in the table's file until somebody tidies up, and autovacuum comes once a minute at most.
func TestWorkerTidiesTheInboxAfterMuchWasFolded(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	key := count(t, db, "acme", 7)
	_, err := db.Exec(t.Context(), "INSERT INTO weir.inbox (node, key, upto, at) SELECT i.node, i.key, n, i.at FROM weir.inbox i, generate_series(8, $1::bigint) n", usage.TidyRows+8)
	require.NoError(t, err)
	start(t, newWorker(t, db))
	folded(t, db, key, usage.TidyRows+8)
	require.Eventually(t, func() bool {
		var done int64
		err := db.QueryRow(t.Context(), "SELECT vacuum_count FROM pg_stat_all_tables WHERE relid = 'weir.inbox'::regclass").Scan(&done)
		return err == nil && done == 1
	}, 30*time.Second, 20*time.Millisecond)
}

func TestWorkerFoldsInSpiteOfAStuckJob(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	// A worker was killed in the middle of its flush: its jobs are running for ever, as far as rows say.
	_, err := db.Exec(t.Context(), `INSERT INTO weir.river_job (state, attempt, max_attempts, attempted_at, attempted_by, kind, queue, args, priority)
		SELECT 'running', 1, 25, now(), '{dead}', 'flush', 'fold', '{}', 1 FROM generate_series(1, 10)`)
	require.NoError(t, err)
	start(t, newWorker(t, db))
	folded(t, db, count(t, db, "acme", 7), 7)
}

func TestTwoWorkersCountOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	start(t, newWorker(t, db))
	start(t, newWorker(t, db))
	key := count(t, db, "acme", 50)
	folded(t, db, key, 50)
	var inbox int64
	require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM weir.inbox").Scan(&inbox))
	require.Zero(t, inbox)
}

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	w := newWorker(t, db)
	require.NoError(t, w.Stop(t.Context()), "a worker that was not started is stopped")
	require.NoError(t, w.Start(t.Context()))
	require.ErrorContains(t, w.Start(t.Context()), "started before")
	require.NoError(t, w.Stop(t.Context()))
	require.NoError(t, w.Stop(t.Context()))
	_, err := jobs.New(jobs.Config{})
	require.Error(t, err)
}

func TestMigrateRunsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, pgtest.URL(t))
	_, err := db.Exec(t.Context(), "CREATE SCHEMA weir")
	require.NoError(t, err)
	errs := make(chan error, 2)
	for range 2 {
		go func() { errs <- jobs.Migrate(t.Context(), db) }()
	}
	require.NoError(t, <-errs)
	require.NoError(t, <-errs)
	require.NoError(t, jobs.Migrate(t.Context(), db))
}
