package main

import (
	"context"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/weirhq/weir/internal/tracing"
)

// traced shows each job as a span, or nothing where no traces are wanted.
func traced(t *tracing.Tracing) []rivertype.Middleware {
	if t == nil {
		return nil
	}
	// Its metrics are left out: ours are on /metrics. Jobs are inserted each second while something is due; only their
	// work is shown.
	spans := otelriver.NewMiddleware(&otelriver.MiddlewareConfig{
		TracerProvider: t.Provider(), MeterProvider: noop.NewMeterProvider(), EnableWorkSpanJobKindSuffix: true,
	})
	return []rivertype.Middleware{&around{work: func(ctx context.Context, job *rivertype.JobRow, do func(context.Context) error) error {
		var kept error
		err := spans.Work(ctx, job, func(ctx context.Context) error {
			if kept = do(ctx); kept != nil {
				return untold{kept}
			}
			return nil
		})
		if kept != nil {
			return kept
		}
		return err
	}}}
}

// around is a middleware of jobs.
type around struct {
	river.MiddlewareDefaults
	work func(context.Context, *rivertype.JobRow, func(context.Context) error) error
}

// Work implements rivertype.WorkerMiddleware.
func (a *around) Work(ctx context.Context, job *rivertype.JobRow, do func(context.Context) error) error {
	return a.work(ctx, job, do)
}

// untold is an error whose text stays out of a span: it may name an account. River keeps it, and the log has it.
type untold struct{ error }

// Error implements error.
func (untold) Error() string {
	return "the job failed: its row in weir.river_job and the worker's log say how"
}

// Unwrap is for who asks what kind of error it is.
func (u untold) Unwrap() error { return u.error }
