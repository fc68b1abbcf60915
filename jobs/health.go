package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Load is the work of one kind that is not done.
type Load struct {
	Kind  string
	State string        // available, running, retryable, scheduled or discarded
	Jobs  int64         // counted up to 10,000 of all
	Age   time.Duration // wall time since the oldest of them was to run; 0: in the future
}

// Loads reads the jobs that are not done, by kind and state.
func Loads(ctx context.Context, db *pgxpool.Pool) ([]Load, error) {
	rows, err := db.Query(ctx, `SELECT kind, state::text, count(*), greatest(0, extract(epoch FROM clock_timestamp() - min(scheduled_at)))::double precision
		FROM (SELECT kind, state, scheduled_at FROM weir.river_job
		      WHERE state IN ('available', 'running', 'retryable', 'scheduled', 'discarded') LIMIT 10000) x GROUP BY 1, 2 ORDER BY 1, 2`)
	if err != nil {
		return nil, fmt.Errorf("read the jobs: %w", err)
	}
	var all []Load
	var l Load
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&l.Kind, &l.State, &l.Jobs, &age}, func() error {
		l.Age = time.Duration(age * float64(time.Second))
		all = append(all, l)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the jobs: %w", err)
	}
	return all, nil
}
