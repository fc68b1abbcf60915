package enforcer

import (
	"context"
	"fmt"
)

// Consume spends units of a feature for an account, all or none. units = 0 asks whether one unit would pass and
// counts nothing.
//
// A refusal is a Decision; so is Unavailable, where Weir can't tell and the plan says not to go on. Errors:
// ErrInvalidUnits, ErrInvalidAccount, ErrUnknownFeature; ErrUnavailable before Start and after Stop. A call may wait
// for the database or for other nodes at most Config.MaxWait, and not past ctx.
func (e *Enforcer) Consume(ctx context.Context, account, feature string, units int64) (Decision, error) {
	a, ok := e.accounts.Load(account)
	i := e.features.Load().index(feature)
	if !ok || i < 0 || units < 0 {
		var err error
		if a, i, err = e.check(account, feature, units); err != nil {
			return Decision{}, err
		}
	}
	return e.consume(ctx, a.slotAt(i, feature), units)
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
	e       *Enforcer
	account string
	feature string
	slot    *slot
	err     error
}

// Meter returns the meter of an account and a feature. What is wrong with either is told by Consume, and Take refuses.
func (e *Enforcer) Meter(account, feature string) *Meter {
	m := &Meter{e: e, account: account, feature: feature}
	a, i, err := e.check(account, feature, 0)
	if err != nil {
		m.err = err
		return m
	}
	m.slot = a.slotAt(i, feature)
	return m
}

// Take spends units and reports whether it could: Consume without the particulars, and the cheapest call there is.
// Negative units are refused.
func (m *Meter) Take(units int64) bool {
	if m.slot == nil {
		return false
	}
	c := m.slot.cur.Load()
	if c != nil && uint64(units-1) < maxLeft-1 && m.e.clock.now() < c.end.Load() && !c.view.Load().strict {
		if c.take(m.e, units) {
			return true
		}
		if c.refused(units, m.e.clock.mono.Load()) != nil {
			return c.view.Load().terms.Shadow && c.fill(m.e, consumes(units))
		}
	}
	d, err := m.e.consume(context.Background(), m.slot, units)
	return err == nil && d.Allowed
}

// Consume is Enforcer.Consume for the meter's account and feature.
func (m *Meter) Consume(ctx context.Context, units int64) (Decision, error) {
	if m.slot == nil {
		return Decision{}, m.err
	}
	return m.e.consume(ctx, m.slot, units)
}
