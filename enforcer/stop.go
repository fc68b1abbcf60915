package enforcer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/usage"
)

// Stop ends the enforcer: it refuses new calls, stores what was counted and returns every lease. It is idempotent; a
// Stop that fails because the database is away leaves the journal for the next process, and can be repeated.
func (e *Enforcer) Stop(ctx context.Context) error {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if e.stopped || !e.started.Load() {
		e.stopped = true
		return nil
	}
	e.running.Store(false)
	e.awaitReservations(ctx)
	var keys, upto []int64
	e.byKey.each(func(c *counter) {
		c.seal()
	})
	e.drain() // what is in flight ends, and its grants go back with everything else below
	e.byKey.each(func(c *counter) {
		c.seal() // also what began, or was opened again, while tasks ended
		keys, upto = append(keys, c.key()), append(upto, c.total())
	})
	if err := e.leave(ctx, keys, upto); err != nil {
		return fmt.Errorf("stop enforcer: usage stays in the journal and is recovered by the next process: %w", err)
	}
	e.stopped = true
	e.started.Store(false)
	e.db.Close()
	if err := e.journal.Close(true); err != nil {
		return fmt.Errorf("stop enforcer: %w", err)
	}
	return nil
}

// settleShare is the part of a stop's time that reservations leave for storing what was counted.
const settleShare = 3

// awaitReservations waits until the last reservation is settled, cancelled or expired, for two thirds of ctx's time at
// most. What is still held then goes back, and a later Settle is lost to this process: say so.
func (e *Enforcer) awaitReservations(ctx context.Context) {
	if end, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)*(settleShare-1)/settleShare)
		defer cancel()
	}
	for e.reserved.Load() > 0 {
		select {
		case <-e.idle:
		case <-ctx.Done():
			e.cfg.Logger.Warn("weir: reservations are open at the stop and go back", "reservations", e.reserved.Load())
			return
		}
	}
}

var errReaping = errors.New("the node's leases are being taken back at the moment")

// leave ends the node's registration once everything of it is stored.
func (e *Enforcer) leave(ctx context.Context, keys, upto []int64) error {
	at := e.clock.time()
	if err := usage.Settle(ctx, e.db, e.node, keys, upto, at, "stop"); err != nil {
		return err
	}
	if err := usage.ReturnLeases(ctx, e.db, e.node, "stop"); err != nil {
		return err
	}
	for {
		for _, from := range []string{"live", "reaped"} { // reaped: it had no time to come back
			if moved, err := usage.MoveNode(ctx, e.db, e.node, from, "stopped"); err != nil || moved {
				return err
			}
		}
		state, err := usage.NodeState(ctx, e.db, e.node)
		switch {
		case err == nil && state == "reaped": // since the look before
		case err == nil && state == "reaping":
			return errReaping
		default:
			return err
		}
	}
}
