package jobs

import (
	"context"
	"time"

	"github.com/weirhq/weir/usage"
)

const (
	watchEach = time.Second
	watchGap  = 5 * time.Second // a longer pause between two reads begins every watch anew
)

// watch is how long a node's heartbeat number was seen to stand still.
type watch struct {
	beat  int64
	since time.Time // monotonic
}

// reap is the loop that takes the leases of silent nodes. It trusts nothing but what it has itself watched: a node is
// reaped when its heartbeat number stood still for the lease time over reads without a gap. After a database outage, or
// a pause of this process, every watch begins anew.
func (w *Worker) reap(ctx context.Context) {
	every := time.NewTicker(watchEach)
	defer every.Stop()
	seen := map[int64]watch{}
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if err := w.watchOnce(ctx, seen, &last); err != nil && ctx.Err() == nil {
			clear(seen)
			w.log.Warn("the worker could not watch the nodes; every watch begins anew", "error", err)
		}
	}
}

func (w *Worker) watchOnce(ctx context.Context, seen map[int64]watch, last *time.Time) error {
	ctx, stop := context.WithTimeout(ctx, watchGap)
	defer stop()
	inst, err := usage.ReadInstallation(ctx, w.cfg.DB)
	if err != nil {
		return err
	}
	nodes, err := usage.Nodes(ctx, w.cfg.DB)
	if err != nil {
		return err
	}
	now := time.Now()
	silent := step(seen, nodes, now, *last, inst.LeaseTime)
	*last = now
	for _, n := range silent {
		taken, err := usage.Reap(ctx, w.cfg.DB, n.ID, n.Heartbeat)
		if err != nil {
			return err
		}
		if taken {
			w.log.Warn("a silent node's leases were taken back; its journal is still waited for", "node", n.ID, "name", n.Name)
		}
	}
	return nil
}

// step moves the watches by one read and returns the nodes to reap: live ones that stood still for the lease time, and
// those whose reaping was broken off or is to be done again for rows that came later.
func step(seen map[int64]watch, nodes []usage.NodeRow, now, last time.Time, leaseTime time.Duration) []usage.NodeRow {
	if last.IsZero() || now.Sub(last) > watchGap {
		clear(seen)
	}
	there := make(map[int64]bool, len(nodes))
	var silent []usage.NodeRow
	for _, n := range nodes {
		there[n.ID] = true
		switch n.State {
		case "reaping":
			silent = append(silent, n)
		case "live":
			s, ok := seen[n.ID]
			if !ok || s.beat != n.Heartbeat {
				seen[n.ID] = watch{beat: n.Heartbeat, since: now}
			} else if now.Sub(s.since) >= leaseTime {
				silent = append(silent, n)
			}
		default:
			delete(seen, n.ID)
			if n.State == "reaped" && n.Late {
				silent = append(silent, n)
			}
		}
	}
	for id := range seen {
		if !there[id] {
			delete(seen, id)
		}
	}
	return silent
}
