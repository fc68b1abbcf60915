package books

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// NodeList is the nodes that are not over, with what they hold.
type NodeList struct {
	LeaseTime time.Duration
	Nodes     []usage.NodeSheet
	Leases    []usage.Lease // of the one node that was asked for
}

// ReadNodes reads the nodes in one snapshot: first those that are gone, then the most silent; at most most.
func ReadNodes(ctx context.Context, db usage.DB, now time.Time, most int) (NodeList, error) {
	return readNodes(ctx, db, func(tx pgx.Tx, l *NodeList) (err error) {
		l.Nodes, err = usage.NodeSheets(ctx, tx, now, most, OverviewCount)
		return err
	})
}

// ReadNode reads one node and at most most of its leases; an error that wraps usage.ErrNotFound when there is no such
// node.
func ReadNode(ctx context.Context, db usage.DB, id int64, now time.Time, most int) (NodeList, error) {
	return readNodes(ctx, db, func(tx pgx.Tx, l *NodeList) error {
		n, err := usage.ReadNode(ctx, tx, id, now, NodeCount)
		if err != nil {
			return err
		}
		l.Nodes = []usage.NodeSheet{n}
		l.Leases, err = usage.NodeLeases(ctx, tx, id, now, most)
		return err
	})
}

func readNodes(ctx context.Context, db usage.DB, read func(pgx.Tx, *NodeList) error) (NodeList, error) {
	var l NodeList
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		inst, err := usage.ReadInstallation(ctx, tx)
		if err != nil {
			return err
		}
		l.LeaseTime = inst.LeaseTime
		return read(tx, &l)
	})
	if err != nil {
		return l, fmt.Errorf("read nodes: %w", err)
	}
	return l, nil
}
