package usage

import (
	"context"
	"time"
)

// Now reads business time from the database: its own clock, or the simulated one.
func Now(ctx context.Context, db DB) (time.Time, error) {
	var at time.Time
	err := db.QueryRow(ctx, "SELECT weir.clock()").Scan(&at)
	return at.UTC(), wrap("read the clock", err)
}

// SimulateClock makes business time simulated from now on: it shows at now and goes on from there. For demos and
// tests; programs with a live Stripe key refuse such a database.
func SimulateClock(ctx context.Context, db DB, at time.Time) error {
	_, err := db.Exec(ctx, "UPDATE weir.installation SET simulated_at = $1, simulated_wall = clock_timestamp()", at)
	return wrap("simulate the clock", err)
}
