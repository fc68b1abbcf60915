package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

const (
	foldChunk = 5000 // inbox rows in one transaction
	readBatch = 100  // customers or invoices found at once
)

// work adapts a function to a River worker.
type work[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	do func(ctx context.Context, args T) error
}

// Work runs the job.
func (w *work[T]) Work(ctx context.Context, job *river.Job[T]) error {
	return steer(w.do(ctx, job.Args))
}

func add[T river.JobArgs](ws *river.Workers, do func(ctx context.Context, args T) error) error {
	return river.AddWorkerSafely(ws, &work[T]{do: do})
}

// workers registers every kind of job.
func (w *Worker) workers() (*river.Workers, error) {
	ws := river.NewWorkers()
	b := w.cfg.Biller
	err := errors.Join(
		add(ws, func(ctx context.Context, _ usage.FlushArgs) error { return w.fold(ctx) }),
		add(ws, func(ctx context.Context, _ usage.RetireArgs) error { return w.retire(ctx) }),
		add(ws, w.warn),
		add(ws, func(ctx context.Context, _ billing.CloseArgs) error {
			_, err := b.Close(ctx)
			return err
		}),
		add(ws, func(ctx context.Context, _ billing.ReportArgs) error { return b.Report(ctx) }),
		add(ws, func(ctx context.Context, _ billing.LateArgs) error { return b.Late(ctx) }),
		add(ws, func(ctx context.Context, a billing.SyncArgs) error {
			if a.Customer != "" {
				return b.SyncCustomer(ctx, a.Customer, false)
			}
			return drain(ctx, b.SyncDue)
		}),
		add(ws, func(ctx context.Context, a billing.InvoiceArgs) error {
			if a.Invoice != "" {
				return b.ReadInvoice(ctx, a.Invoice)
			}
			return drain(ctx, b.ReadDueInvoices)
		}),
		add(ws, func(ctx context.Context, _ billing.ReconcileArgs) error { return b.Reconcile(ctx) }),
		add(ws, func(ctx context.Context, _ billing.SweepArgs) error { return b.Sweep(ctx) }),
		add(ws, func(ctx context.Context, a billing.MeterErrorArgs) error { return b.ReadMeterErrors(ctx) }),
	)
	if err != nil {
		return nil, fmt.Errorf("register jobs: %w", err)
	}
	return ws, nil
}

// fold folds the inbox chunk by chunk until it is empty, and tidies it when enough has gone.
func (w *Worker) fold(ctx context.Context) error {
	for {
		n, err := usage.Fold(ctx, w.cfg.DB, foldChunk)
		if err != nil {
			return err
		}
		w.tidy.folded(n)
		if n < foldChunk {
			return w.tidy.run(func() error { return usage.TidyInbox(ctx, w.cfg.DB) })
		}
	}
}

// pressEach is how often the pressing accounts are looked for, in all workers together.
const pressEach = 45 * time.Second

// retire forgets nodes that are over, and what has served its time, and looks for the accounts that the admin shows.
func (w *Worker) retire(ctx context.Context) error {
	nodes, err := usage.Nodes(ctx, w.cfg.DB)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		switch n.State {
		case "stopped", "recovered", "retiring":
			if _, err := usage.Retire(ctx, w.cfg.DB, n.ID); err != nil {
				return err
			}
		}
	}
	if _, err := usage.Prune(ctx, w.cfg.DB, w.cfg.Clock.Now()); err != nil {
		return err
	}
	_, err = usage.RefreshPressing(ctx, w.cfg.DB, w.cfg.Clock.Now(), pressEach)
	return err
}

// drain repeats a batch until nothing is due or the job's time is nearly over; the next job goes on.
func drain(ctx context.Context, batch func(ctx context.Context, most int) (int, error)) error {
	until := time.Now().Add(jobTimeout - 10*time.Second)
	for time.Now().Before(until) {
		n, err := batch(ctx, readBatch)
		if err != nil || n == 0 {
			return err
		}
	}
	return nil
}
