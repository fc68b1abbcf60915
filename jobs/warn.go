package jobs

import (
	"context"

	"github.com/riverqueue/river"

	"github.com/weirhq/weir/usage"
)

// Warner delivers warnings; a *warnings.Courier is one. It claims in rows: a job that is doubled delivers nothing twice.
type Warner interface {
	Due(ctx context.Context) (bool, error)
	Deliver(ctx context.Context) error
}

// queueTell is for what waits on other people's servers: it holds up nothing else.
const queueTell = "tell"

// warn delivers the warnings that are due. What failed is an error of the job, for those who look at jobs; its row says
// when it is tried again.
func (w *Worker) warn(ctx context.Context, _ usage.WarnArgs) error {
	if w.cfg.Warnings == nil {
		return nil
	}
	return w.cfg.Warnings.Deliver(ctx)
}

// warnDue adds the job when warnings are due.
func (w *Worker) warnDue(ctx context.Context, due []river.JobArgs) ([]river.JobArgs, error) {
	if w.cfg.Warnings == nil {
		return due, nil
	}
	is, err := w.cfg.Warnings.Due(ctx)
	if err != nil || !is {
		return due, err
	}
	return append(due, usage.WarnArgs{}), nil
}
