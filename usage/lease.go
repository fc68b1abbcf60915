package usage

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// LeaseStatus says how an ask or a give ended for one key.
type LeaseStatus string

// The outcomes of an ask or a give.
const (
	LeaseOK      LeaseStatus = "ok"
	LeaseAdopt   LeaseStatus = "adopt"   // the version differed: nothing was done, the stored state is returned
	LeaseEnded   LeaseStatus = "ended"   // the period is being closed: nothing more is granted
	LeaseRejoin  LeaseStatus = "rejoin"  // the node is not live: nothing was done
	LeaseUnknown LeaseStatus = "unknown" // the key is gone: load the account again
)

// LeaseCall is one key of an ask or a give; docs/leases.md has the protocol. Counts are units.
type LeaseCall struct {
	Key     int64
	Ver     int64 // the version that the node holds
	Back    int64 // cut from the counter, handed back
	Over    int64 // counted beyond the lease since the last stored answer
	Units   int64 // asked for; 0 extends
	Want    int64 // the most to grant where room allows
	Waiting int64 // asked for by all callers that wait at this node; 0: what is granted is not spent at once
}

// LeaseAnswer is the database's answer for one key.
type LeaseAnswer struct {
	Key    int64
	Status LeaseStatus
	Ver    *int64
	Lim    *int64 // cumulative units ever allowed to this node under the key
	Tight  *bool
	Got    int64
	Others bool   // refused for now: units are out at other nodes and were called back
	Silent bool   // what would suffice lies with a node that has missed its heartbeats
	Bound  *int64 // refused: a call for more than this cannot pass until something changes
	Used   *int64 // stored by all nodes, when refused
}

// Ask applies asks and extends for distinct keys in one round trip. Answers come in the calls' order.
func Ask(ctx context.Context, db DB, node int64, judge bool, calls []LeaseCall) ([]LeaseAnswer, error) {
	return lease(ctx, db, node, judge, false, calls)
}

// Give hands back what the calls cut, and leaves the leases tight: the node holds nothing under the keys that is
// neither spent nor stored.
func Give(ctx context.Context, db DB, node int64, calls []LeaseCall) ([]LeaseAnswer, error) {
	return lease(ctx, db, node, false, true, calls)
}

func lease(ctx context.Context, db DB, node int64, judge, give bool, calls []LeaseCall) ([]LeaseAnswer, error) {
	n := len(calls)
	cols := make([][]int64, 7)
	flat := make([]int64, 7*n)
	for i := range cols {
		cols[i] = flat[i*n : (i+1)*n : (i+1)*n]
	}
	for i, c := range calls {
		cols[0][i], cols[1][i], cols[2][i], cols[3][i] = c.Key, c.Ver, c.Back, c.Over
		cols[4][i], cols[5][i], cols[6][i] = c.Units, c.Want, c.Waiting
	}
	rows, err := db.Query(ctx, "SELECT * FROM weir.lease($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		node, judge, give, cols[0], cols[1], cols[2], cols[3], cols[4], cols[5], cols[6])
	if err != nil {
		return nil, wrap("lease", err)
	}
	answers, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LeaseAnswer])
	return answers, wrap("lease", err)
}
