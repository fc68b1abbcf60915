package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// restored stops all reports because actor says that the database was restored from a backup: it may have forgotten
// what was sent. A restore into the same server leaves no trace that CheckDatabase could see. Reports go on by
// themselves once every open window was compared with its summary, or after ResumeReports.
func (b *Biller) restored(ctx context.Context, actor string) error {
	// A restore that is said again moves since: comparisons from before it prove nothing.
	if _, err := b.db.Exec(ctx, `INSERT INTO weir.stops (cause, since, message) VALUES ('restored', $1, $2)
		ON CONFLICT (cause) DO UPDATE SET since = excluded.since`, b.now(), "restored, says "+actor); err != nil {
		return fmt.Errorf("stop sending after a restore: %w", err)
	}
	return b.stop(ctx, "restored", actor+" says that the database was restored: reports wait until every open window was compared with its summary")
}

// Stop is a cause that holds up all reports.
type Stop struct {
	Cause   string
	Since   time.Time
	Message string
}

// Stops lists what holds up reports, the longest standing first; usually nothing does.
func (b *Biller) Stops(ctx context.Context) ([]Stop, error) {
	rows, err := b.db.Query(ctx, "SELECT cause, since, message FROM weir.stops ORDER BY since, cause")
	if err != nil {
		return nil, fmt.Errorf("list what stops reports: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Stop])
	if err != nil {
		return nil, fmt.Errorf("list what stops reports: %w", err)
	}
	return all, nil
}
