package ratelimit

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxTime = int64(1) << 61 // 73 years after the origin

	// clockGrain keeps the shared high mark from being written by every call.
	clockGrain = int64(time.Millisecond)
	// clockJitter is how far behind a call's time may be and still be a call that was overtaken by others.
	clockJitter = int64(time.Second)
	// clockSettle is how long a clock must run on behind before it counts as set back.
	clockSettle = int64(time.Second)
)

// clock makes of the callers' time one that goes on. A clock that is set back by more than clockJitter would lock out
// whoever spent the allowance of a window that now lies in the future, and forgetting that window would refill it.
// So time stands still at the high mark, and when the callers' clock has run on for clockSettle, time runs on with it
// from there. A single late call is not a step: the next punctual one takes the suspicion back.
type clock struct {
	high   atomic.Int64 // the latest time given out, at most clockGrain behind
	offset atomic.Int64 // from the callers' time to ours
	behind atomic.Int64 // the callers' time at the first call after a step, plus 1; 0: no step suspected
	mu     sync.Mutex   // held to follow a step
}

// read translates the callers' time. The result is at most clockJitter + clockGrain before any earlier one.
func (c *clock) read(now int64) int64 {
	now = min(max(now, 0), maxTime)
	t := min(now+c.offset.Load(), maxTime)
	high := c.high.Load()
	switch {
	case t >= high+clockGrain:
		if c.high.CompareAndSwap(high, t) && c.behind.Load() != 0 {
			c.behind.Store(0)
		}
		return t
	case t >= high-clockJitter:
		return t
	default:
		return c.stepped(now, high)
	}
}

func (c *clock) stepped(now, high int64) int64 {
	first := c.behind.Load()
	if first == 0 || now < first-1 {
		c.behind.CompareAndSwap(first, now+1)
		return high
	}
	if now-(first-1) < clockSettle {
		return high
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	high = c.high.Load()
	if c.behind.CompareAndSwap(first, 0) {
		c.offset.Store(high - now)
	}
	return high
}
