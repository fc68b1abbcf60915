package api

import (
	"context"
	"time"
)

const drainPoll = 20 * time.Millisecond

// Drain prepares the end: nothing more is spent or reserved (503), and reservations can be settled until the last one
// is, or ctx ends. What is open then goes back: its callers will not find it again.
func (a *API) Drain(ctx context.Context) {
	a.draining.Store(true)
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for a.cfg.Enforcer.Stats().Reserved > 0 {
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		n := a.reservations.cancel(context.WithoutCancel(ctx))
		a.cfg.Logger.Warn("weir: reservations are open at the end and go back", "reservations", n)
		return
	}
}

// cancel gives back what is open, and returns how many reservations that were.
func (rs *reservations) cancel(ctx context.Context) (n int) {
	rs.mu.Lock()
	all := append([]*reservation(nil), rs.order...)
	rs.mu.Unlock()
	for _, r := range all {
		r.mu.Lock()
		if r.state == "open" {
			_ = r.held.Cancel(ctx) // has no error
			r.state = "cancelled"
			n++
		}
		r.mu.Unlock()
	}
	return n
}
