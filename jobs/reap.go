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

// reapingWait is how long a reaping that somebody else began may stand still: the recovery of a journal is one too, and
// moves the number with each part.
const reapingWait = 30 * time.Second

// watch is how long a node's heartbeat number was seen to stand still, and in which state.
type watch struct {
	beat  int64
	state string
	since time.Time // monotonic
}

// watches is what one worker has seen of all nodes.
type watches struct {
	seen  map[int64]watch
	begun map[int64]int64 // reapings of this worker, until they are over, with the number that it watched
	last  time.Time       // of the last read
}

func newWatches() *watches { return &watches{seen: map[int64]watch{}, begun: map[int64]int64{}} }

// reap is the loop that takes the leases of silent nodes. It trusts nothing but what it has itself watched: a node is
// reaped when its heartbeat number stood still for the lease time over reads without a gap. After a database outage, or
// a pause of this process, every watch begins anew.
func (w *Worker) reap(ctx context.Context) {
	every := time.NewTicker(watchEach)
	defer every.Stop()
	x := newWatches()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if err := w.watchOnce(ctx, x); err != nil && ctx.Err() == nil {
			clear(x.seen)
			w.log.Warn("the worker could not watch the nodes; every watch begins anew", "error", err)
		}
	}
}

func (w *Worker) watchOnce(ctx context.Context, x *watches) error {
	reading, stop := context.WithTimeout(ctx, watchGap)
	defer stop()
	inst, err := usage.ReadInstallation(reading, w.cfg.DB)
	if err != nil {
		return err
	}
	nodes, err := usage.Nodes(reading, w.cfg.DB)
	if err != nil {
		return err
	}
	for _, n := range x.step(nodes, time.Now(), inst.LeaseTime) {
		x.begun[n.ID] = n.Heartbeat
		// One that hangs keeps none of the others, and ends no watch.
		if err := w.takeBack(ctx, n); err != nil && ctx.Err() == nil {
			w.log.Warn("a silent node's leases could not be taken back; it is tried again", "node", n.ID, "name", n.Name, "error", err)
		}
	}
	x.last = time.Now() // what that took is no pause
	return nil
}

func (w *Worker) takeBack(ctx context.Context, n usage.NodeRow) error {
	ctx, stop := context.WithTimeout(ctx, watchGap)
	defer stop()
	taken, err := usage.Reap(ctx, w.cfg.DB, n.ID, n.Heartbeat)
	if taken {
		w.log.Warn("a silent node's leases were taken back; its journal is still waited for", "node", n.ID, "name", n.Name)
	}
	return err
}

// step moves the watches by one read and returns the nodes to reap: live ones that stood still for the lease time, and
// those whose reaping was broken off or is to be done again for rows that came later. A reaping that this worker began it
// takes up at once, unless a recovery has moved the number since, another's after a while: what a journal holds is stored
// before its leases go back.
func (x *watches) step(nodes []usage.NodeRow, now time.Time, leaseTime time.Duration) []usage.NodeRow {
	if x.last.IsZero() || now.Sub(x.last) > watchGap {
		clear(x.seen)
	}
	x.last = now
	there := make(map[int64]bool, len(nodes))
	var silent []usage.NodeRow
	for _, n := range nodes {
		there[n.ID] = true
		beat, begun := x.begun[n.ID]
		switch {
		case n.State == "reaping" && begun && n.Heartbeat == beat:
			silent = append(silent, n)
		case n.State == "live" || n.State == "reaping":
			delete(x.begun, n.ID)
			patience := leaseTime
			if n.State == "reaping" {
				patience = min(patience, reapingWait)
			}
			s, ok := x.seen[n.ID]
			if !ok || s.beat != n.Heartbeat || s.state != n.State {
				x.seen[n.ID] = watch{beat: n.Heartbeat, state: n.State, since: now}
			} else if now.Sub(s.since) >= patience {
				silent = append(silent, n)
			}
		default:
			delete(x.seen, n.ID)
			delete(x.begun, n.ID)
			if n.State == "reaped" && n.Late {
				silent = append(silent, n)
			}
		}
	}
	for id := range x.seen {
		if !there[id] {
			delete(x.seen, id)
		}
	}
	for id := range x.begun {
		if !there[id] {
			delete(x.begun, id)
		}
	}
	return silent
}
