package usage

import (
	"context"
	"fmt"
	"time"
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

// Register makes a new node. at is its business time, or zero for the database's.
func Register(ctx context.Context, db DB, name, version string, at time.Time) (Node, error) {
	var n Node
	var given *time.Time
	if !at.IsZero() {
		given = &at
	}
	err := db.QueryRow(ctx, `
		INSERT INTO weir.nodes (state, name, version, sealed, applied, started_at)
		SELECT 'live', $1, $2, t.at, c.number, t.at
		FROM weir.changes c, (SELECT coalesce($3, weir.clock()) AS at) t
		RETURNING id, applied, sealed`, name, version, given).Scan(&n.ID, &n.Change, &n.Clock)
	return n, wrap("register node", err)
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
	for {
		var n int64
		if err := db.QueryRow(ctx, "SELECT weir.settle_chunk($1, $2, $3)", node, MaxSettleKeys, cause).Scan(&n); err != nil {
			return wrap(fmt.Sprintf("return leases of node %d", node), err)
		}
		if n == 0 {
			return nil
		}
	}
}

// MoveNode moves a node from one state to another and reports whether it was in the first one.
func MoveNode(ctx context.Context, db DB, node int64, from, to string) (bool, error) {
	tag, err := db.Exec(ctx, `UPDATE weir.nodes SET state = $3, ended_at = CASE WHEN $3 = 'live' THEN NULL ELSE clock_timestamp() END
		WHERE id = $1 AND state = $2`, node, from, to)
	if err != nil {
		return false, wrap(fmt.Sprintf("move node %d from %s to %s", node, from, to), err)
	}
	return tag.RowsAffected() == 1, nil
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

// Recovered is what a dead node's journal holds under a key.
type Recovered struct {
	Key     int64
	Upto    int64
	Matches func(account, feature string, starts time.Time) bool // the key still means what the journal counted
}

// RecoverNode stores what a dead node had counted, usage first, then returns its leases, and marks it recovered. A node
// that was recovered, retired or given up before is left as it is. It returns how many keys were stored. Entries whose
// key is gone or means something else by now are parked with their reason. Repeating it changes nothing.
func RecoverNode(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time) (int, error) {
	state, err := NodeState(ctx, db, node)
	if err != nil {
		return 0, err
	}
	switch state {
	case "live", "reaping", "reaped", "stopped":
	default:
		return 0, nil
	}
	good, upto, err := matching(ctx, db, node, entries, at)
	if err != nil {
		return 0, err
	}
	if err := Settle(ctx, db, node, good, upto, at, "a journal recovered after its node was reaped"); err != nil {
		return 0, err
	}
	if err := ReturnLeases(ctx, db, node, "recovery"); err != nil {
		return 0, err
	}
	_, err = MoveNode(ctx, db, node, state, "recovered")
	return len(good), err
}

func matching(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time) (keys, upto []int64, err error) {
	ids := make([]int64, len(entries))
	for i, x := range entries {
		ids[i] = x.Key
	}
	rows, err := db.Query(ctx, `SELECT k.key, a.account, f.name, p.starts FROM weir.keys k JOIN weir.accounts a ON a.id = k.account_id
		JOIN weir.features f ON f.id = k.feature_id JOIN weir.periods p ON p.id = k.period_id WHERE k.key = ANY ($1)`, ids)
	if err != nil {
		return nil, nil, wrap("recover node", err)
	}
	defer rows.Close()
	type meaning struct {
		account, feature string
		starts           time.Time
	}
	known := make(map[int64]meaning)
	for rows.Next() {
		var key int64
		var m meaning
		if err := rows.Scan(&key, &m.account, &m.feature, &m.starts); err != nil {
			return nil, nil, wrap("recover node", err)
		}
		known[key] = m
	}
	if err := rows.Err(); err != nil {
		return nil, nil, wrap("recover node", err)
	}
	rows.Close()
	sums := make(map[int64]int64)
	for _, x := range entries {
		m, ok := known[x.Key]
		if !ok || !x.Matches(m.account, m.feature, m.starts) {
			_, err := db.Exec(ctx, `INSERT INTO weir.inbox_parked (id, node, key, upto, at, reason)
				SELECT nextval(pg_get_serial_sequence('weir.inbox', 'id')), $1, $2, $3, $4, 'the journal''s key means something else by now'
				WHERE NOT EXISTS (SELECT FROM weir.inbox_parked p WHERE p.node = $1 AND p.key = $2 AND p.upto = $3)`, node, x.Key, x.Upto, at)
			if err != nil {
				return nil, nil, wrap("park a journal's entry", err)
			}
			continue
		}
		if _, ok := sums[x.Key]; !ok {
			keys = append(keys, x.Key)
		}
		sums[x.Key] += x.Upto
	}
	for _, k := range keys {
		upto = append(upto, sums[k])
	}
	return keys, upto, nil
}
