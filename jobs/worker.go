package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// Config is what a Worker needs.
type Config struct {
	DB     *pgxpool.Pool   // required
	Biller *billing.Biller // required
	Clock  billing.Clock   // required: business time
	Logger *slog.Logger    // required
	// ListenURL is a direct connection to the database for LISTEN, where DB goes through a transaction pooler. River
	// then polls. Empty uses DB's own configuration.
	ListenURL string
	// Warnings tells customers of thresholds. Nil: nobody is told.
	Warnings Warner
	// Middleware runs around each job, for traces. Nil: none does.
	Middleware []rivertype.Middleware
}

const (
	tickEach    = time.Second
	noticePause = 200 * time.Millisecond // between two flush jobs for notices
	mostWaiting = 2                      // jobs of a kind that may wait; a running one, stuck or not, counts nothing
	retireEach  = time.Minute
	startTime   = 30 * time.Second
)

// Worker is one worker process's share of the background work. Any number may run over one database.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	client *river.Client[pgx.Tx]
	tidy   tidy

	mu      sync.Mutex // guards what follows
	cancel  context.CancelFunc
	done    sync.WaitGroup
	started bool
}

// New makes a Worker; it starts nothing.
func New(cfg Config) (*Worker, error) {
	if cfg.DB == nil || cfg.Biller == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errNoBiller
	}
	w := &Worker{cfg: cfg, log: cfg.Logger}
	ws, err := w.workers()
	if err != nil {
		return nil, err
	}
	w.client, err = river.NewClient(riverpgxv5.New(cfg.DB), &river.Config{
		Schema: Schema, Logger: slog.New(quieter{cfg.Logger.Handler()}), Workers: ws, Middleware: cfg.Middleware, JobTimeout: jobTimeout, RescueStuckJobsAfter: rescueAfter, RetryPolicy: retries{},
		PollOnly: cfg.ListenURL != "", FetchPollInterval: tickEach, FetchCooldown: 50 * time.Millisecond,
		// Nudges are many and say nothing later.
		CompletedJobRetentionPeriod: time.Hour, CancelledJobRetentionPeriod: 7 * 24 * time.Hour, DiscardedJobRetentionPeriod: 7 * 24 * time.Hour,
		Queues: map[string]river.QueueConfig{queueFold: {MaxWorkers: 4}, queueSend: {MaxWorkers: 3}, queueRead: {MaxWorkers: 6}, queueTell: {MaxWorkers: 2}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the worker: %w", err)
	}
	return w, nil
}

// Start starts the worker; ctx bounds the start only. A second Start is an error.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		return errors.New("start the worker: it was started before")
	}
	ctx, stop := context.WithTimeout(ctx, startTime)
	defer stop()
	if err := w.cfg.Biller.CheckDatabase(ctx); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if err := w.client.Start(run); err != nil {
		cancel()
		return fmt.Errorf("start the worker: %w", err)
	}
	w.started, w.cancel = true, cancel
	notices := make(chan struct{}, 1)
	w.done.Go(func() { w.listen(run, notices) })
	w.done.Go(func() { w.tick(run, notices) })
	w.done.Go(func() { w.reap(run) })
	return nil
}

// Stop ends the loops and waits for the running jobs, until ctx ends; then it interrupts them. It is idempotent.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel == nil {
		return nil
	}
	err := w.client.Stop(ctx)
	if err != nil {
		hard, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		err = w.client.StopAndCancel(hard)
	}
	w.cancel()
	w.done.Wait()
	w.cancel = nil
	if err != nil {
		return fmt.Errorf("stop the worker: %w", err)
	}
	return nil
}

// tick inserts jobs for what is due, each second and, for the fold, when rows arrive.
func (w *Worker) tick(ctx context.Context, notices <-chan struct{}) {
	every := time.NewTicker(tickEach)
	defer every.Stop()
	var retired, folded time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-notices:
			if time.Since(folded) >= noticePause {
				folded = time.Now()
				err = w.insert(ctx, []river.JobArgs{usage.FlushArgs{}})
			}
		case <-every.C:
			var due []river.JobArgs
			if due, err = w.due(ctx); err == nil {
				if time.Since(retired) >= retireEach {
					retired = time.Now()
					due = append(due, usage.RetireArgs{}, billing.ReconcileArgs{})
				}
				err = w.insert(ctx, due)
			}
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("the worker could not look for due work; it tries again in a second", "error", err)
		}
	}
}

// due reads which kinds of work are due.
func (w *Worker) due(ctx context.Context) ([]river.JobArgs, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	var jobs []river.JobArgs
	inbox, err := usage.Pending(ctx, w.cfg.DB)
	if err != nil {
		return nil, err
	}
	d, err := w.cfg.Biller.Due(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		is   bool
		args river.JobArgs
	}{
		{inbox, usage.FlushArgs{}},
		{d.Close, billing.CloseArgs{}},
		{d.Report, billing.ReportArgs{}},
		{d.Invoice, billing.InvoiceArgs{}},
		{d.Sync, billing.SyncArgs{}},
		{d.Late, billing.LateArgs{}},
		{d.Resolve, billing.ReconcileArgs{}},
		{d.Sweep, billing.SweepArgs{}},
		{d.Errors, billing.MeterErrorArgs{}},
	} {
		if one.is {
			jobs = append(jobs, one.args)
		}
	}
	return w.warnDue(ctx, jobs)
}

// insert inserts jobs, unless enough of their kind wait already.
func (w *Worker) insert(ctx context.Context, all []river.JobArgs) error {
	if len(all) == 0 {
		return nil
	}
	kinds := make([]string, len(all))
	for i, a := range all {
		kinds[i] = a.Kind()
	}
	waiting, err := w.client.JobList(ctx, river.NewJobListParams().Kinds(kinds...).States(rivertype.JobStateAvailable).First(100))
	if err != nil {
		return fmt.Errorf("look for waiting jobs: %w", err)
	}
	count := map[string]int{}
	for _, j := range waiting.Jobs {
		count[j.Kind]++
	}
	var params []river.InsertManyParams
	for _, a := range all {
		if count[a.Kind()]++; count[a.Kind()] <= mostWaiting {
			params = append(params, river.InsertManyParams{Args: a, InsertOpts: &river.InsertOpts{Queue: queueOf(a.Kind())}})
		}
	}
	if len(params) == 0 {
		return nil
	}
	if _, err := w.client.InsertMany(ctx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}
