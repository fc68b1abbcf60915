package enforcer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// ErrReservationsFull is returned when as many reservations are open as an enforcer keeps.
var ErrReservationsFull = errors.New("too many reservations are open")

const (
	reservationTime = 10 * time.Minute // until a forgotten reservation expires
	maxReservations = 100_000
)

// Reservation is units set aside for work whose cost is not known yet. Settle or Cancel it; a forgotten one expires
// after ten minutes, which is a cancel. A process that is killed gives its reservations back by itself. Safe for
// concurrent use; the first of Settle and Cancel counts.
type Reservation struct {
	e        *Enforcer
	c        *counter
	units    int64
	decision Decision
	timer    *time.Timer
	kept     runtime.Cleanup // ends the promise of a reservation that nobody closes

	mu      sync.Mutex
	open    bool
	expired bool
	settled Decision
}

// Decision is the answer to the Reserve call.
func (r *Reservation) Decision() Decision { return r.decision }

// Units is how many units are set aside.
func (r *Reservation) Units() int64 { return r.units }

// Reserve sets units aside. It waits as Consume does. A call that is refused returns no reservation and a
// *RefusedError; other errors are those of Consume, and ErrReservationsFull. units must be positive and below 2^31.
func (e *Enforcer) Reserve(ctx context.Context, account, feature string, units int64) (*Reservation, error) {
	a, i, err := e.check(account, feature, units)
	if err != nil {
		return nil, err
	}
	if units == 0 || units >= maxLeft {
		return nil, fmt.Errorf("reserve %d units: use 1 to %d: %w", units, int64(maxLeft-1), ErrInvalidUnits)
	}
	if e.reserved.Add(1) > maxReservations {
		e.reserved.Add(-1)
		return nil, ErrReservationsFull
	}
	c, d := e.hold(ctx, a.slotAt(i), units)
	if !d.Allowed {
		e.released()
		return nil, d.Err()
	}
	r := &Reservation{e: e, c: c, units: units, decision: d, open: true}
	c.promise(1)
	r.kept = runtime.AddCleanup(r, func(c *counter) { c.promise(-1) }, c)
	r.mu.Lock()
	r.timer = time.AfterFunc(reservationTime, r.expire)
	r.mu.Unlock()
	return r, nil
}

func (e *Enforcer) hold(ctx context.Context, s *slot, units int64) (*counter, Decision) {
	if c := s.cur.Load(); c != nil && e.clock.now() < c.end.Load() && c.view.Load().inPlan && c.reserve(units) {
		return c, c.view.Load().decide(c.total())
	}
	c, d, _ := e.slow(ctx, s, request{need: units, hold: units}) // errors are of strict calls alone
	return c, d
}

// reserve moves n from what is left to what is held, without counting it.
func (c *counter) reserve(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return false
	}
	for {
		w := c.word().Load()
		if uint64(n) > left(w) {
			if c.gather() {
				continue
			}
			return false
		}
		if c.word().CompareAndSwap(w, w-uint64(n)) {
			c.hold(n)
			return true
		}
	}
}

// Settle counts what was used in the period of the reservation: less than reserved, and the rest goes back; more, and
// the rest is taken from the account's quota. What the quota no longer has is counted all the same, since the work is
// done, and so is everything of a reservation that had expired: an overrun. A reservation that is closed already keeps
// its first outcome, which is returned again. Errors: ErrInvalidUnits.
func (r *Reservation) Settle(ctx context.Context, units int64) (Decision, error) {
	if units < 0 || units >= maxLeft {
		return Decision{}, fmt.Errorf("settle %d units: use 0 to %d: %w", units, int64(maxLeft-1), ErrInvalidUnits)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open && !r.expired {
		return r.settled, nil
	}
	late := r.expired
	r.open, r.expired = false, false
	r.timer.Stop()
	overrun := int64(0)
	switch {
	case late:
		overrun = units
	case units > r.units:
		overrun = units - r.units - r.more(ctx, units-r.units)
	}
	if overrun > 0 {
		r.c.overrun(r.e, overrun)
		r.e.stats.overruns.Add(overrun)
	}
	if !late {
		r.c.release(r.e, r.units, min(units, r.units)) // last: what is held keeps its period from being closed
		r.e.released()
	}
	r.close()
	return r.settled, nil
}

// close keeps the outcome. Nothing is counted afterwards. The caller holds mu.
func (r *Reservation) close() {
	r.settled = r.c.view.Load().decide(r.c.total())
	r.kept.Stop()
	r.c.promise(-1)
}

// more takes further units from the reservation's own key and returns how many it got: all or none.
func (r *Reservation) more(ctx context.Context, n int64) int64 {
	if r.e.clock.now() >= r.c.end.Load() || r.c.isSealed() {
		return 0
	}
	stop := time.NewTimer(r.e.cfg.MaxWait)
	defer stop.Stop()
	if d, again := r.e.try(ctx, r.c, consumes(n), stop.C); !again && d.Allowed {
		return n
	}
	return 0
}

// Cancel gives everything back. A reservation that is closed already stays as it is.
func (r *Reservation) Cancel(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open && !r.expired {
		return nil
	}
	if r.open {
		r.timer.Stop()
		r.c.release(r.e, r.units, 0)
		r.e.released()
	}
	r.open, r.expired = false, false
	r.close()
	return nil
}

func (r *Reservation) expire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open {
		r.open, r.expired = false, true
		r.c.release(r.e, r.units, 0)
		r.e.released()
		r.e.stats.expired.Add(1)
	}
}

// release ends a hold of n units of which spent were used. What is not used goes back to what is left, or straight to
// the database where the lease is tight, in operation, or cut: nobody calls a tight lease back.
func (c *counter) release(e *Enforcer, n, spent int64) {
	c.mu.Lock()
	c.hold(-n)
	rest := n - spent
	if c.tight || c.busy || c.sealed || e.isAway() || c.left()+rest >= maxLeft {
		credit(c.word(), uint64(spent), 0)
		c.back += rest
	} else {
		credit(c.word(), uint64(spent), uint64(rest))
		rest = 0
	}
	c.checkpoint()
	ended := c.sealed
	c.mu.Unlock()
	if spent > 0 || ended {
		e.markDirty(c)
	}
	if rest > 0 {
		e.giveSoon(c)
	}
	if n > spent {
		c.forget() // what was refused may pass now
	}
}

// overrun counts units that no lease covers and no ceiling has, also after the period's end: close waits for the
// reservation they belong to.
func (c *counter) overrun(e *Enforcer, n int64) {
	c.mu.Lock()
	c.over += n
	credit(c.word(), uint64(n), 0)
	c.checkpoint()
	c.mu.Unlock()
	e.markDirty(c)
}

// released notes that a reservation has ended; Stop waits for the last one.
func (e *Enforcer) released() {
	if e.reserved.Add(-1) == 0 {
		select {
		case e.idle <- struct{}{}:
		default:
		}
	}
}
