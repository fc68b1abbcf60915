package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// NodeSheet is a node with what it holds and how far it is.
type NodeSheet struct {
	NodeRow
	Silent  time.Duration // wall time since its last heartbeat
	Behind  time.Duration // business time since the instant that it has sealed through
	Pending int64         // change numbers that it has not applied
	Leases  int64         // keys that it holds leases of, as far as they were counted
	Holds   int64         // ended periods that wait for its mark, as far as they were counted
}

// Lost reports whether the node is gone and was not recovered, or has been silent for longer than the lease time.
func (n *NodeSheet) Lost(leaseTime time.Duration) bool {
	return n.State == "reaping" || n.State == "reaped" || n.State == "live" && n.Silent > leaseTime
}

const nodeSheets = `SELECT n.id, n.state, n.name, n.version, n.heartbeat, n.sealed, n.applied, n.started_at,
		greatest(0, extract(epoch FROM clock_timestamp() - n.heartbeat_at))::double precision,
		CASE WHEN isfinite(n.sealed) THEN greatest(0, extract(epoch FROM $1::timestamptz - n.sealed)) ELSE 0 END::double precision,
		greatest(0, (SELECT c.number FROM weir.changes c) - n.applied),
		(SELECT count(*) FROM (SELECT FROM weir.leases l WHERE l.node = n.id LIMIT $2) x),
		CASE WHEN n.state IN ('live', 'reaping', 'reaped') THEN (SELECT count(*) FROM (SELECT FROM weir.periods p
			WHERE p.state IN ('open', 'closing') AND p.ends > n.sealed AND p.ends <= $1 AND coalesce(p.cut, p.ends) <= $1 LIMIT $2) x) ELSE 0 END
	FROM weir.nodes n `

// NodeSheets reads the nodes that are not over: first those that are gone, then the most silent; at most most. What
// each holds is counted up to counted.
func NodeSheets(ctx context.Context, db DB, now time.Time, most, counted int) ([]NodeSheet, error) {
	rows, err := db.Query(ctx, nodeSheets+`WHERE n.state NOT IN ('retired', 'given_up', 'internal')
		ORDER BY CASE n.state WHEN 'reaped' THEN 0 WHEN 'reaping' THEN 1 WHEN 'live' THEN 2 ELSE 3 END, n.heartbeat_at, n.id LIMIT $3`, now, counted, most)
	if err != nil {
		return nil, wrap("read the nodes", err)
	}
	all, err := pgx.CollectRows(rows, scanSheet)
	return all, wrap("read the nodes", err)
}

// ReadNode reads one node, whatever its state; ErrNotFound when there is no such node.
func ReadNode(ctx context.Context, db DB, id int64, now time.Time, counted int) (NodeSheet, error) {
	rows, err := db.Query(ctx, nodeSheets+"WHERE n.id = $3 AND n.state <> 'internal'", now, counted, id)
	if err != nil {
		return NodeSheet{}, wrap("read the node", err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, scanSheet)
	return n, wrap("read the node", err)
}

func scanSheet(row pgx.CollectableRow) (NodeSheet, error) {
	var n NodeSheet
	var silent, behind float64
	err := row.Scan(&n.ID, &n.State, &n.Name, &n.Version, &n.Heartbeat, &n.Sealed, &n.Applied, &n.StartedAt, &silent, &behind, &n.Pending, &n.Leases, &n.Holds)
	n.Silent, n.Behind = seconds(&silent), seconds(&behind)
	return n, err
}

// Lease is what a node was ever allowed under a key.
type Lease struct {
	Account string
	Feature string
	Key     int64
	Ends    time.Time
	Limit   int64 // cumulative
	Used    int64 // of it, as folded
	Tight   bool  // nothing of it is loose
}

// NodeLeases reads a node's leases of periods that have not ended, at most most, by key.
func NodeLeases(ctx context.Context, db DB, node int64, now time.Time, most int) ([]Lease, error) {
	rows, err := db.Query(ctx, `SELECT a.account, f.name, l.key, coalesce(p.cut, p.ends), l.lim, coalesce(d.used, 0), l.tight
		FROM (SELECT x.* FROM weir.leases x WHERE x.node = $1 ORDER BY x.key DESC LIMIT 10 * $3::integer) l
		JOIN weir.keys k ON k.key = l.key JOIN weir.periods p ON p.id = k.period_id AND coalesce(p.cut, p.ends) > $2
		JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		LEFT JOIN weir.done d ON d.key = l.key AND d.node = l.node
		ORDER BY l.lim - coalesce(d.used, 0) DESC, l.key LIMIT $3`, node, now, most)
	if err != nil {
		return nil, wrap("read a node's leases", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Lease])
	return all, wrap("read a node's leases", err)
}

// ParkedRow is a row of usage that could not be folded.
type ParkedRow struct {
	ID       int64
	Node     int64
	Key      int64
	Upto     int64
	At       time.Time
	Reason   string
	ParkedAt time.Time // wall
	Account  string    // of the key; empty: there is no such key
}

// ParkedRows reads the newest rows that could not be folded, at most most.
func ParkedRows(ctx context.Context, db DB, most int) ([]ParkedRow, error) {
	rows, err := db.Query(ctx, `SELECT x.id, x.node, x.key, x.upto, x.at, x.reason, x.parked_at, coalesce(a.account, '')
		FROM (SELECT * FROM weir.inbox_parked ORDER BY id DESC LIMIT $1) x
		LEFT JOIN weir.keys k ON k.key = x.key LEFT JOIN weir.accounts a ON a.id = k.account_id ORDER BY x.id DESC`, most)
	if err != nil {
		return nil, wrap("read parked rows", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ParkedRow])
	return all, wrap("read parked rows", err)
}
