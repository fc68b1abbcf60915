package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// NodeRow is a node that is not over: neither retired nor given up.
type NodeRow struct {
	ID        int64
	State     string // live, reaping, reaped, stopped, recovered or retiring
	Name      string
	Version   string
	Heartbeat int64     // counts up; a reaper watches it stand still
	Sealed    time.Time // the mark
	Applied   int64     // the mark
	StartedAt time.Time
	Late      bool // rows of it came after it was reaped: Reap takes them into its leases
}

// Nodes lists the nodes that are not over, oldest first.
func Nodes(ctx context.Context, db DB) ([]NodeRow, error) {
	rows, err := db.Query(ctx, `SELECT id, state, name, version, heartbeat, sealed, applied, started_at, late FROM weir.nodes
		WHERE state NOT IN ('retired', 'given_up', 'internal') ORDER BY id`)
	if err != nil {
		return nil, wrap("list nodes", err)
	}
	nodes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[NodeRow])
	return nodes, wrap("list nodes", err)
}

// Reap takes the leases of a node that the caller has watched: only while its heartbeat still is the number that stood
// still for the lease time. Asks of the node are answered rejoin from then on; what it holds beyond what is stored goes
// back; last its state is reaped. A reaping that was broken off is taken up again, and so is a reaped node of which rows
// came later: what it used beyond its lease is granted to it, and counted. It reports false for a node that has come
// back, is being recovered, or is reaped or ended already.
func Reap(ctx context.Context, db DB, node, heartbeat int64) (bool, error) {
	if _, err := move(ctx, db, node, []string{"live"}, "reaping", &heartbeat); err != nil {
		return false, err
	}
	var state string
	var late bool
	var beat int64
	if err := db.QueryRow(ctx, "SELECT state, late, heartbeat FROM weir.nodes WHERE id = $1", node).Scan(&state, &late, &beat); err != nil {
		return false, wrap(fmt.Sprintf("read node %d", node), err)
	}
	if beat != heartbeat {
		return false, nil
	}
	if state == "reaped" && late {
		if _, err := move(ctx, db, node, []string{"reaped"}, "reaping", &heartbeat); err != nil {
			return false, err
		}
	} else if state != "reaping" {
		return false, nil
	}
	if err := returnLeases(ctx, db, node, "reaped while it was still counting", &heartbeat); err != nil {
		return false, err
	}
	return move(ctx, db, node, []string{"reaping"}, "reaped", &heartbeat)
}

// GiveUp gives a reaped node up whose journal will not come back. What it flushed is folded; what comes of it later is
// parked. It reports false for a node that is not reaped. Retire then moves what it used.
func GiveUp(ctx context.Context, db DB, node int64) (given bool, err error) {
	err = db.QueryRow(ctx, "SELECT weir.give_up_node($1)", node).Scan(&given)
	return given, wrap(fmt.Sprintf("give up node %d", node), err)
}

// Prune forgets what has served its time: answers of idempotency keys after 24 h, recalls after a minute, change
// numbers further back than 100,000, parked rows and ended nodes after 90 days, overshoots after 7 years. It works in short transactions of at
// most MaxPruneRows rows of a kind, and returns how many rows went.
func Prune(ctx context.Context, db DB, now time.Time) (int64, error) {
	var all int64
	for {
		var n int64
		if err := db.QueryRow(ctx, "SELECT weir.prune($1, $2)", now, MaxPruneRows).Scan(&n); err != nil {
			return all, wrap("prune", err)
		}
		all += n
		if n < MaxPruneRows {
			return all, nil
		}
	}
}
