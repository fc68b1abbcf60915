package enforcer

import "time"

// crowd is who waits for a counter. Guarded by the counter's mu.
type crowd struct {
	queue []chan struct{} // for the operation lock
	wake  chan struct{}   // closed when a waiter should look again
	calls int             // that wait for the database or for other nodes
	units int64           // that they need
}

// join counts a call among those that wait, until it leaves.
func (c *counter) join(units int64) {
	c.mu.Lock()
	x := &c.unusual().crowd
	x.calls++
	x.units += units
	c.mu.Unlock()
}

func (c *counter) leave(units int64) {
	c.mu.Lock()
	x := &c.unusual().crowd
	x.calls--
	x.units -= units
	c.disperse()
	c.mu.Unlock()
}

// waiting is how many units the callers that wait need. The caller holds mu.
func (c *counter) waiting() int64 {
	if x := c.rare.Load(); x != nil {
		return x.crowd.units
	}
	return 0
}

// waker returns the channel that the next wake closes. Take it before asking: no wake-up is lost then. The caller has
// joined the crowd.
func (c *counter) waker() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := &c.unusual().crowd
	if x.wake == nil {
		x.wake = make(chan struct{})
	}
	return x.wake
}

func (c *counter) wakeAll() {
	c.mu.Lock()
	if x := c.rare.Load(); x != nil && x.crowd.wake != nil {
		close(x.crowd.wake)
		x.crowd.wake = nil
	}
	c.mu.Unlock()
}

// lock takes the operation lock: one operation per counter is in flight. It reports false when stop fires first.
// It is never held while waiting for other nodes.
func (c *counter) lock(stop <-chan time.Time, done <-chan struct{}) bool {
	c.mu.Lock()
	if !c.busy {
		c.busy = true
		c.mu.Unlock()
		return true
	}
	turn := make(chan struct{}, 1)
	x := &c.unusual().crowd
	x.queue = append(x.queue, turn)
	c.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-stop:
	case <-done:
	}
	if c.unqueue(turn) {
		return false
	}
	// It was handed over meanwhile: pass it on.
	c.unlock()
	return false
}

// unqueue gives up a turn that has not come.
func (c *counter) unqueue(turn chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.rare.Load()
	if r == nil {
		return false
	}
	x := &r.crowd
	for i, q := range x.queue {
		if q == turn {
			x.queue = append(x.queue[:i], x.queue[i+1:]...)
			c.disperse()
			return true
		}
	}
	return false
}

func (c *counter) tryLock() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy {
		return false
	}
	c.busy = true
	return true
}

func (c *counter) unlock() {
	c.mu.Lock()
	if r := c.rare.Load(); r == nil || len(r.crowd.queue) == 0 {
		c.busy = false
	} else {
		x := &r.crowd
		x.queue[0] <- struct{}{}
		x.queue = x.queue[1:]
		c.disperse()
	}
	c.mu.Unlock()
}
