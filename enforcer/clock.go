package enforcer

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock tells business time. Config.Clock replaces the database's clock in tests and simulations; it is then read at
// every call. Its Now must be safe for concurrent use.
type Clock interface{ Now() time.Time }

// coarse holds the instants that hot paths compare with: words that a ticker moves, since reading a clock costs as
// much as ten counters.
type coarse struct {
	business atomic.Int64 // unix nanoseconds
	mono     atomic.Int64 // nanoseconds since the start of the process's enforcer
	custom   Clock        // nil: the database's clock
	start    time.Time

	mu     sync.Mutex
	offset time.Duration // of business time to this machine's clock
}

// tickEvery is how far a coarse word may lag.
const tickEvery = time.Millisecond

func newCoarse(custom Clock) *coarse {
	c := &coarse{custom: custom, start: time.Now()}
	c.tick()
	return c
}

// tick moves the words. Business time never steps back: a period that was sealed stays sealed.
func (c *coarse) tick() {
	c.mono.Store(int64(time.Since(c.start)))
	var now int64
	if c.custom != nil {
		now = c.custom.Now().UnixNano()
	} else {
		c.mu.Lock()
		now = time.Now().Add(c.offset).UnixNano()
		c.mu.Unlock()
	}
	for {
		was := c.business.Load()
		if now <= was || c.business.CompareAndSwap(was, now) {
			return
		}
	}
}

// learn sets the offset from the database's business time, read between two instants of this machine.
func (c *coarse) learn(at time.Time, sent, received time.Time) {
	if c.custom != nil || at.IsZero() {
		return
	}
	middle := sent.Add(received.Sub(sent) / 2)
	c.mu.Lock()
	c.offset = at.Sub(middle.Round(0))
	c.mu.Unlock()
	c.tick()
}

// begin sets business time, back too where this machine's clock is ahead of the database's: nothing is decided yet.
func (c *coarse) begin(at time.Time, sent, received time.Time) {
	if c.custom == nil {
		c.business.Store(at.UnixNano())
		c.learn(at, sent, received)
	}
}

// now is business time. With a custom clock it is exact, else at most tickEvery old.
func (c *coarse) now() int64 {
	if c.custom != nil {
		c.tick()
	}
	return c.business.Load()
}

func (c *coarse) time() time.Time { return time.Unix(0, c.now()).UTC() }
