package usage

import (
	"context"
	"time"
)

// Adjustment is a signed correction of a key's usage as it was stored.
type Adjustment struct {
	ID      int64
	Units   int64
	Free    int64 // what it did to the included units
	Overage int64 // what it did to the overage
}

// Adjust adds units to a key, or refunds them when negative: from overage first, then from included units. A refund
// makes room by as much. More than is counted in the period is ErrRefund, a key that does not exist ErrNotFound.
func Adjust(ctx context.Context, db DB, key, units int64, reason, actor string, now time.Time) (Adjustment, error) {
	var a Adjustment
	err := db.QueryRow(ctx, "SELECT id, units, free, overage FROM weir.adjust($1, $2, $3, $4, $5)", key, units, reason, actor, now).
		Scan(&a.ID, &a.Units, &a.Free, &a.Overage)
	return a, wrap("adjust usage", err)
}
