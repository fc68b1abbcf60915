package enforcer

import (
	"context"
	"fmt"
	"runtime"
)

// Consume spends units of a feature for an account, all or none. units = 0 asks whether one unit would pass and
// counts nothing.
//
// A refusal is a Decision; so is Unavailable, where Weir can't tell and the plan says not to go on. Errors:
// ErrInvalidUnits, ErrInvalidAccount, ErrUnknownFeature; ErrUnavailable before Start and after Stop. A call may wait
// for the database or for other nodes at most Config.MaxWait, and not past ctx.
func (e *Enforcer) Consume(ctx context.Context, account, feature string, units int64) (d Decision, err error) {
	if a, ok := e.accounts.Load(account); ok {
		if s := a.at(e.features.Load().index(feature)); s != nil {
			if e.quick(s, units, &d) {
				return d, nil
			}
			return e.consume(ctx, s, units)
		}
	}
	a, i, err := e.check(account, feature, units)
	if err != nil {
		return Decision{}, err
	}
	return e.consume(ctx, a.slotAt(i, feature), units)
}

// quick is the whole of a call that a lease answers. d is the zero Decision, and stays so when it reports false.
func (e *Enforcer) quick(s *slot, units int64, d *Decision) bool {
	c := s.cur.Load()
	if c == nil || uint64(units-1) >= maxLeft-1 || e.clock.business.Load() >= c.until.Load() {
		return false
	}
	v, base := c.view.Load(), c.line.Base().Load()
	after, ok := spend(c.line.Word(), uint64(units))
	if !ok {
		return false
	}
	if left(after) < uint64(c.low.Load()) || !c.dirty.Load() {
		c.noted(e, after)
	}
	v.into(d, totalOf(after, base))
	runtime.KeepAlive(c)
	return true
}

func (e *Enforcer) consume(ctx context.Context, s *slot, units int64) (Decision, error) {
	c := s.cur.Load()
	if c != nil && units > 0 && units < maxLeft && e.clock.now() < c.end.Load() {
		v := c.view.Load()
		if !v.strict && c.take(e, units) {
			return v.decide(c.total()), nil
		}
		if x := c.refused(units, e.clock.mono.Load()); x != nil && v.inPlan && !v.strict && e.running.Load() {
			return e.refuse(c, consumes(units), x), nil
		}
	}
	if units < 0 {
		return Decision{}, ErrInvalidUnits
	}
	if !e.running.Load() {
		return Decision{}, ErrUnavailable
	}
	_, d, err := e.slow(ctx, s, consumes(units))
	return d, err
}

// check is the edge: what is wrong with a call's arguments, or the records of a new account.
func (e *Enforcer) check(account, feature string, units int64) (*account, int, error) {
	if !e.running.Load() {
		return nil, 0, ErrUnavailable
	}
	if units < 0 {
		return nil, 0, fmt.Errorf("%w: %d", ErrInvalidUnits, units)
	}
	if !validAccount(account) {
		return nil, 0, ErrInvalidAccount
	}
	i := e.features.Load().index(feature)
	if i < 0 {
		return nil, 0, fmt.Errorf("%w: %.64q", ErrUnknownFeature, feature)
	}
	return e.accountOf(account), i, nil
}

// Meter spends units of one feature for one account. It is resolved once and follows plan and period changes. Safe
// for concurrent use.
type Meter struct {
	e     *Enforcer
	clock *coarse
	slot  *slot // one that is never filled, where err is set
	err   error
}

// Meter returns the meter of an account and a feature. What is wrong with either is told by Consume, and Take refuses.
func (e *Enforcer) Meter(account, feature string) *Meter {
	m := &Meter{e: e, clock: e.clock}
	a, i, err := e.check(account, feature, 0)
	if err != nil {
		m.err, m.slot = err, &slot{}
		return m
	}
	m.slot = a.slotAt(i, feature)
	return m
}

// Take spends units and reports whether it could: Consume without the particulars, and the cheapest call there is.
// Negative units are refused.
func (m *Meter) Take(units int64) bool {
	c := m.slot.cur.Load()
	if c == nil || uint64(units-1) >= maxLeft-1 || m.clock.business.Load() >= c.until.Load() {
		return m.takeSlow(units)
	}
	word := c.line.Word()
	for {
		w := word.Load()
		if uint64(units) > left(w) {
			break
		}
		after := w + uint64(units)<<32 - uint64(units)
		if !word.CompareAndSwap(w, after) {
			continue
		}
		if left(after) < uint64(c.low.Load()) || !c.dirty.Load() {
			c.noted(m.e, after)
		}
		runtime.KeepAlive(c)
		return true
	}
	if r := c.refusal.Load(); r != nil && units > r.bound && m.clock.mono.Load() < r.until {
		return c.view.Load().terms.Shadow && c.fill(m.e, consumes(units))
	}
	return m.takeSlow(units)
}

func (m *Meter) takeSlow(units int64) bool {
	if m.err != nil {
		return false
	}
	d, err := m.e.consume(context.Background(), m.slot, units)
	return err == nil && d.Allowed
}

// Consume is Enforcer.Consume for the meter's account and feature.
func (m *Meter) Consume(ctx context.Context, units int64) (d Decision, err error) {
	if m.e.quick(m.slot, units, &d) {
		return d, nil
	}
	if m.err != nil {
		return Decision{}, m.err
	}
	return m.e.consume(ctx, m.slot, units)
}
