package usage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Installation describes the database that a program talks to.
type Installation struct {
	ID        [16]byte // random, made with the schema
	LeaseTime time.Duration
	Simulated bool // business time is simulated: a demo or a test
}

// ReadInstallation reads it.
func ReadInstallation(ctx context.Context, db DB) (Installation, error) {
	var i Installation
	err := db.QueryRow(ctx, "SELECT id, lease_time, simulated_at IS NOT NULL FROM weir.installation").Scan(&i.ID, &i.LeaseTime, &i.Simulated)
	return i, wrap("read the installation", err)
}

// Node is a registration: one running enforcer. Its id is never used again.
type Node struct {
	ID     int64
	Change int64     // the change number at registration
	Clock  time.Time // business time at registration; the node starts sealed through it
}

// Register makes a new node. at is its business time, or zero for the database's. An error beside an id says that it is
// not known whether the node is registered.
func Register(ctx context.Context, db DB, name, version string, at time.Time) (Node, error) {
	var n Node
	for {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { // the id comes before the commit, whose answer may be lost
			return tx.QueryRow(ctx, `
				INSERT INTO weir.nodes (state, name, version, sealed, applied, started_at)
				SELECT 'live', $1, $2, t.at, c.number, t.at
				FROM weir.changes c, (SELECT coalesce($3, weir.clock()) AS at) t
				ON CONFLICT (id) DO NOTHING
				RETURNING id, applied, sealed`, name, version, orNull(at)).Scan(&n.ID, &n.Change, &n.Clock)
		})
		if errors.Is(err, pgx.ErrNoRows) {
			continue // another node of the same millisecond drew this id
		}
		return n, wrap("register node", err)
	}
}

// Settle stores a node's cumulative usage under keys and returns what its leases hold beyond it, in transactions of at
// most MaxSettleKeys keys. cause names the overshoot that is counted where more was used than leased. It serves a
// clean stop, the recovery of a dead node's journal, and a rejoin; repeating it changes nothing.
func Settle(ctx context.Context, db DB, node int64, keys, upto []int64, at time.Time, cause string) error {
	for len(keys) > 0 {
		n := min(len(keys), MaxSettleKeys)
		if _, err := db.Exec(ctx, "SELECT weir.settle_node($1, $2, $3, $4, $5)", node, keys[:n], upto[:n], at, cause); err != nil {
			return wrap(fmt.Sprintf("settle node %d", node), err)
		}
		keys, upto = keys[n:], upto[n:]
	}
	return nil
}

// ReturnLeases gives back everything that a node's leases hold beyond what is stored of it, a chunk a transaction.
func ReturnLeases(ctx context.Context, db DB, node int64, cause string) error {
	return returnLeases(ctx, db, node, cause, nil)
}

// returnLeases is ReturnLeases, which ends once the node's number is another one than the given.
func returnLeases(ctx context.Context, db DB, node int64, cause string, heartbeat *int64) error {
	after := int64(0)
	for {
		var last *int64
		if err := db.QueryRow(ctx, "SELECT weir.settle_chunk($1, $2, $3, $4, $5)", node, after, MaxSettleKeys, cause, heartbeat).Scan(&last); err != nil {
			return wrap(fmt.Sprintf("return leases of node %d", node), err)
		}
		if last == nil {
			return nil
		}
		after = *last
	}
}

// MoveNode moves a node from one state to another and reports whether it was in the first one. It waits for the node's
// asks that are under way: none that was decided while the node was live can commit afterwards. A node that hangs in
// an open transaction is an error after 5 s.
func MoveNode(ctx context.Context, db DB, node int64, from, to string) (bool, error) {
	return move(ctx, db, node, []string{from}, to, nil)
}

func move(ctx context.Context, db DB, node int64, from []string, to string, heartbeat *int64) (moved bool, err error) {
	err = db.QueryRow(ctx, "SELECT weir.move_node($1, $2, $3, $4)", node, from, to, heartbeat).Scan(&moved)
	return moved, wrap(fmt.Sprintf("move node %d to %s", node, to), err)
}

// NodeState is the state of a node; ErrNotFound when there is no such node.
func NodeState(ctx context.Context, db DB, node int64) (string, error) {
	var s string
	err := db.QueryRow(ctx, "SELECT state FROM weir.nodes WHERE id = $1", node).Scan(&s)
	return s, wrap(fmt.Sprintf("read node %d", node), err)
}

// Retire moves what a stopped or recovered node used to node −1 and forgets the node's rows, a chunk a transaction.
// It reports false while the node's inbox rows wait for the fold.
func Retire(ctx context.Context, db DB, node int64) (bool, error) {
	for {
		var step string
		if err := db.QueryRow(ctx, "SELECT weir.retire_chunk($1, $2)", node, MaxSettleKeys).Scan(&step); err != nil {
			return false, wrap(fmt.Sprintf("retire node %d", node), err)
		}
		if step != "more" {
			return step == "done", nil
		}
	}
}
