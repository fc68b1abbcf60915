package enforcer

import (
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/clock"
)

// Clock tells business time. Config.Clock replaces the database's clock in tests and simulations; it is then read at
// every call. Its Now must be safe for concurrent use.
type Clock interface{ Now() time.Time }

// coarse holds the instants that hot paths compare with: words that a ticker moves, since reading a clock costs as
// much as ten counters.
type coarse struct {
	business atomic.Int64         // unix nanoseconds
	mono     atomic.Int64         // nanoseconds since the start of the process's enforcer, also while the machine was suspended
	custom   Clock                // nil: the database's clock
	elapsed  func() time.Duration // what mono is a reading of
	database clock.Followed
}

// tickEvery is how far a coarse word may lag.
const tickEvery = time.Millisecond

func newCoarse(custom Clock) *coarse {
	c := &coarse{custom: custom, elapsed: clock.Elapsed()}
	c.database.Set(time.Now(), c.elapsed())
	c.tick()
	return c
}

// tick moves the words.
func (c *coarse) tick() {
	now := c.elapsed()
	c.mono.Store(int64(now))
	if c.custom != nil {
		c.reach(c.custom.Now().UnixNano())
	} else {
		c.reach(c.database.At(now))
	}
}

// reach moves business time, which never steps back: a period that was sealed stays sealed.
func (c *coarse) reach(now int64) {
	for was := c.business.Load(); now > was && !c.business.CompareAndSwap(was, now); was = c.business.Load() {
	}
}

// learn takes the database's business time, read between two moments of what has elapsed here.
func (c *coarse) learn(at time.Time, sent, received time.Duration) {
	if c.custom == nil && !at.IsZero() {
		c.database.Learn(at, sent, received)
		c.tick()
	}
}

// begin sets business time, back too where this machine's clock is ahead of the database's: nothing is decided yet.
func (c *coarse) begin(at time.Time, sent, received time.Duration) {
	if c.custom == nil {
		c.database.Set(at, received)
		c.business.Store(at.UnixNano())
		c.learn(at, sent, received)
	}
}

// now is business time. With a custom clock it is exact, else at most tickEvery old.
func (c *coarse) now() int64 {
	if c.custom != nil {
		c.reach(c.custom.Now().UnixNano())
	}
	return c.business.Load()
}

func (c *coarse) time() time.Time { return time.Unix(0, c.now()).UTC() }
