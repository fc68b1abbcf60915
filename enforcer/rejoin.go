package enforcer

import (
	"context"
	"errors"

	"github.com/weirhq/weir/usage"
)

// rejoinSoon brings a node back that was taken for dead. A registration that has ended for good can't be: its calls
// are answered by policy until the process is started again.
func (e *Enforcer) rejoinSoon(state string) {
	e.fence()
	switch state {
	case "reaping": // wait until it is over
	case "reaped":
		e.resettle("a node woke up after it was reaped", func(ctx context.Context) error {
			ok, err := usage.MoveNode(ctx, e.db, e.node, "reaped", "live")
			if err == nil && !ok {
				err = errors.New("the node's state moved meanwhile")
			}
			return err
		})
	default:
		if e.warnAway() {
			e.cfg.Logger.Error("weir: this node's registration has ended; restart the process", "node", e.node, "state", state)
		}
	}
}

// noteLoss remembers that the database has lost what it had acknowledged: a failover.
func (e *Enforcer) noteLoss() {
	e.cfg.Logger.Warn("weir: the database has lost heartbeats that it had stored; all usage is stored again", "node", e.node)
	e.stats.failovers.Add(1)
	e.unsettled.Store(true)
}

// resettleSoon stores everything again for a database that has lost commits.
func (e *Enforcer) resettleSoon() {
	e.resettle("a database that lost commits", func(context.Context) error { return nil })
}

// resettle cuts everything, stores all cumulative usage with the leases set to it, and then calls last. The stored
// lease versions are others afterwards: each counter's next operation adopts its lease.
func (e *Enforcer) resettle(cause string, last func(context.Context) error) {
	if !e.rejoining.CompareAndSwap(false, true) {
		return
	}
	_ = e.spawn(func() {
		settled := false
		defer func() {
			e.rejoining.Store(false)
			if settled {
				e.kick() // the heartbeat that ends the fence
			}
		}()
		e.unsettled.Store(false) // a loss from here on asks for it again
		e.fenced.Store(true)     // nothing is granted before the leases are settled: the settling would take it back unseen
		var all []*counter
		var keys, upto []int64
		e.byKey.each(func(c *counter) {
			c.mu.Lock()
			c.cutAll()
			keys, upto, all = append(keys, c.key()), append(upto, c.total()), append(all, c)
			c.mu.Unlock()
		})
		err := usage.Settle(e.life, e.db, e.node, keys, upto, e.clock.time(), cause)
		if err == nil {
			err = last(e.life)
		}
		if err != nil {
			e.unsettled.Store(true) // the next heartbeat tries again
			if e.life.Err() == nil {
				e.cfg.Logger.Warn("weir: usage can't be stored again yet; the heartbeat tries again", "error", err)
			}
			return
		}
		for _, c := range all {
			c.mu.Lock()
			c.ver = -1
			c.mu.Unlock()
		}
		e.cfg.Logger.Warn("weir: all usage of this node was stored again", "node", e.node, "keys", len(all), "cause", cause)
		settled = true
	})
}
