package enforcer

import "sync/atomic"

// rare is what few counters need at a time: those that several cores spend from, and those that callers wait for or
// reserve from. It is read without the counter's mu: one that was dropped meanwhile has no cells, as the counter had none.
type rare struct {
	cells atomic.Pointer[cells] // set once

	// guarded by the counter's mu
	crowd    crowd
	held     int64 // reserved
	promised int32 // reservations that somebody can still settle, expired ones included
}

// cells are the counter's second level, nil for all but the hottest.
func (c *counter) cells() *cells {
	if x := c.rare.Load(); x != nil {
		return x.cells.Load()
	}
	return nil
}

// unusual is the counter's rare part, made where there is none. The caller holds mu.
func (c *counter) unusual() *rare {
	x := c.rare.Load()
	if x == nil {
		x = &rare{}
		c.rare.Store(x)
	}
	return x
}

// held is how much is reserved. The caller holds mu.
func (c *counter) held() int64 {
	if x := c.rare.Load(); x != nil {
		return x.held
	}
	return 0
}

// hold moves what is reserved. The caller holds mu.
func (c *counter) hold(n int64) {
	if n != 0 {
		c.unusual().held += n
		c.disperse()
	}
}

// promise notes a reservation that may be settled while somebody refers to it, late ones too: the counter stays, since
// what is counted under a dropped one would be lost beside the counter that took its place.
func (c *counter) promise(n int64) {
	c.mu.Lock()
	c.unusual().promised += int32(n)
	c.disperse()
	c.mu.Unlock()
}

// promised is how many reservations somebody can still settle. The caller holds mu.
func (c *counter) promised() int32 {
	if x := c.rare.Load(); x != nil {
		return x.promised
	}
	return 0
}

// disperse drops the rare part once nothing of it is in use. The caller holds mu.
func (c *counter) disperse() {
	if x := c.rare.Load(); x != nil && x.isIdle() {
		c.rare.Store(nil)
	}
}

func (x *rare) isIdle() bool {
	return x.cells.Load() == nil && x.held == 0 && x.promised == 0 && x.crowd.calls == 0 && len(x.crowd.queue) == 0
}
