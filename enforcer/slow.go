package enforcer

import (
	"context"
	"time"

	"github.com/weirhq/weir/usage"
)

const pollEvery = 20 * time.Millisecond // while units are out at other nodes

// request is what a call needs, and what becomes of it: need units must be there, of which spend are counted and hold
// are set aside. A peek needs one and does neither.
type request struct{ need, spend, hold int64 }

func consumes(n int64) request {
	return request{need: max(n, 1), spend: n}
}

// slow answers a call that the word could not: roll over, look at what is remembered, ask, wait for other nodes. It
// returns the counter that the call was answered under, or nil.
func (e *Enforcer) slow(ctx context.Context, s *slot, r request) (*counter, Decision, error) {
	deadline := time.NewTimer(e.cfg.MaxWait)
	defer deadline.Stop()
	for {
		c, d := e.current(ctx, s, deadline.C)
		if c == nil {
			return nil, d, nil
		}
		if r.spend > 0 && (r.need >= maxLeft || c.view.Load().strict) {
			d, err := e.strict(ctx, s, r.spend, "", deadline.C)
			return c, d, err
		}
		if x := c.refused(r.need, e.clock.mono.Load()); x != nil && c.leftNow() < r.need {
			return c, e.refuse(c, r, x), nil
		}
		d, again := e.try(ctx, c, r, deadline.C)
		if !again {
			return c, d, nil
		}
		if !e.running.Load() {
			return c, e.unavailable(c), nil // every counter is sealed, and no other comes
		}
	}
}

// try takes the operation lock and asks until the call is decided. again is set when the counter's period has ended,
// or its key is gone.
func (e *Enforcer) try(ctx context.Context, c *counter, r request, stop <-chan time.Time) (d Decision, again bool) {
	c.join(r.need)
	defer c.leave(r.need)
	for {
		wake := c.waker()
		if !c.lock(stop, ctx.Done()) {
			return e.late(c, r), false
		}
		if d, done, again := e.look(c, r); done || again {
			c.unlock()
			return d, again
		}
		ex := c.operation(r, e.want(c), false)
		e.exchanges.submit(ex)
		if !ex.wait(stop, ctx.Done()) {
			return e.late(c, r), false
		}
		if ex.err != nil {
			return e.away(c, r), false
		}
		switch ex.answer.Status {
		case usage.LeaseOK:
		case usage.LeaseAdopt:
			continue
		case usage.LeaseUnknown:
			e.drop(c)
			return Decision{}, true
		case usage.LeaseRejoin:
			e.kick()
			return e.away(c, r), false
		case usage.LeaseEnded:
			return e.unavailable(c), false
		}
		if ex.answer.Got > 0 {
			if !ex.paid {
				continue // the period ended, or the fence cut, before the credit
			}
			return c.view.Load().decide(c.total()), false
		}
		if !ex.answer.Others || ex.answer.Silent {
			if x := c.refusal.Load(); x != nil {
				return e.refuse(c, r, x), false
			}
			continue // something changed since
		}
		timer := time.NewTimer(pollEvery)
		select {
		case <-wake:
		case <-timer.C:
		case <-stop:
			timer.Stop()
			e.stats.timeouts.Add(1)
			return e.unavailable(c), false
		case <-ctx.Done():
			timer.Stop()
			return e.unavailable(c), false
		}
		timer.Stop()
	}
}

// look decides under the operation lock what needs no question.
func (e *Enforcer) look(c *counter, r request) (d Decision, done, again bool) {
	if e.clock.now() >= c.end.Load() || c.isSealed() {
		return d, false, true
	}
	if c.serve(e, r) {
		return c.view.Load().decide(c.total()), true, false
	}
	if x := c.refused(r.need, e.clock.mono.Load()); x != nil {
		return e.refuse(c, r, x), true, false
	}
	if e.isAway() {
		return e.away(c, r), true, false
	}
	return d, false, false
}

// late answers a call whose time ran out while the database had not answered.
func (e *Enforcer) late(c *counter, r request) Decision {
	e.stats.timeouts.Add(1)
	if e.silentFor() <= 3*heartbeatEvery/2 {
		return e.unavailable(c) // slow is not away: to go on would pass a ceiling that is being kept
	}
	e.noteAway(errNoAnswer)
	return e.away(c, r)
}

// away answers by the plan's policy for a database that does not.
func (e *Enforcer) away(c *counter, r request) Decision {
	v := c.view.Load()
	if (!v.proceed && !v.terms.Shadow) || !v.inPlan {
		return e.unavailable(c)
	}
	if r.need >= maxLeft || !c.fill(e, r) {
		return e.unavailable(c)
	}
	e.stats.filled.Add(r.spend + r.hold)
	return v.decide(c.total())
}

func (e *Enforcer) unavailable(c *counter) Decision {
	e.stats.unavailable.Add(1)
	d := c.view.Load().decide(c.total())
	d.Allowed, d.Reason, d.RetryAfter = false, Unavailable, time.Second
	return d
}

// refuse answers from a remembered refusal. In shadow the call passes all the same, and is counted.
func (e *Enforcer) refuse(c *counter, r request, x *refusal) Decision {
	v := c.view.Load()
	d := v.decide(c.total())
	d.Allowed, d.Reason = false, x.reason
	if x.reason == Unavailable {
		e.stats.unavailable.Add(1)
		d.RetryAfter = time.Second
		return d
	}
	e.stats.refused.Add(1)
	d.Used = max(d.Used, x.used+v.adjusted)
	if !d.Unlimited {
		// What the database said, or less where more was counted since: a smaller call may have passed.
		d.Remaining = min(x.bound, d.Remaining)
		if v.terms.BillsAbove {
			d.Remaining = 0 // included units; what is left below the maximum is none of them
		}
	}
	if v.terms.Shadow && r.need < maxLeft && c.fill(e, r) {
		d.Allowed = true
	}
	return d
}

// want is how much a lease should hold: ten seconds of this node's own rate, or a hundredth of the ceiling.
func (e *Enforcer) want(c *counter) int64 {
	v, rate := c.view.Load(), int64(c.rate.Load())
	if v.ceiling >= usage.Boundless {
		return max(rate*60, openLease)
	}
	return max(rate*10, v.ceiling/100, minLease)
}

func (c *counter) isSealed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sealed
}
