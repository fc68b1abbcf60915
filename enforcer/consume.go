package enforcer

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/weirhq/weir/internal/journal"
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
			if v, own := e.quick(s, units); v != nil {
				v.into(&d, own)
				return
			}
			return e.consume(ctx, s, units)
		}
	}
	a, i, err := e.check(account, feature, units)
	if err != nil {
		return Decision{}, err
	}
	return e.consume(ctx, a.slotAt(i), units)
}

// quick is a call that a lease answers: what its decision needs, or nil. The decision is made afterwards: an atomic step
// waits for all that was written before it.
func (e *Enforcer) quick(s *slot, units int64) (v *view, own int64) {
	c := s.cur.Load()
	if c == nil || uint64(units-1) >= maxLeft-1 {
		return nil, 0
	}
	line := c.line
	if now := e.clock.business.Load(); now >= line.Until().Load() {
		if h := c.cells(); h != nil && now < h.until.Load() {
			return e.quickCells(c, h, units)
		}
		return nil, 0
	}
	base := line.Base().Load()
	v = c.view.Load()
	var after uint64
	if units == 1 {
		after = line.Word().Add(one)
	} else {
		var ok bool
		if after, ok = spend(line.Word(), uint64(units)); !ok {
			return nil, 0
		}
	}
	if int64(int32(after)) < int64(line.Alarm().Load()) || after&sampled == 0 {
		if !e.alarmed(c, after) {
			return nil, 0
		}
	}
	runtime.KeepAlive(c)
	return v, totalOf(after, base)
}

// quickCells is quick for a counter that has cells: its total is a sum.
func (e *Enforcer) quickCells(c *counter, h *cells, units int64) (*view, int64) {
	if !(h.active.Load() && c.spendCell(e, h, units)) && !c.take(e, units) {
		return nil, 0
	}
	return c.view.Load(), c.total()
}

// alarmed looks at a call whose word says that there is more to do, and reports whether the call was admitted.
func (e *Enforcer) alarmed(c *counter, after uint64) bool {
	if empty(after) {
		level(c.word())
		runtime.KeepAlive(c)
		return false
	}
	c.noted(e, after)
	return true
}

// consume is a call that quick did not answer: from what is left wherever it lies, from what is remembered, or the long
// way.
func (e *Enforcer) consume(ctx context.Context, s *slot, units int64) (Decision, error) {
	c := s.cur.Load()
	if c != nil && units > 0 && units < maxLeft && e.clock.now() < c.end.Load() {
		if v := c.view.Load(); v.leased() {
			if c.take(e, units) {
				return v.decide(c.total()), nil
			}
			if x := c.refused(units, e.clock.mono.Load()); x != nil && e.running.Load() {
				c.shut()
				return e.refuse(c, consumes(units), x), nil
			}
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
	slot  *slot  // one that is never filled, where names is set
	names *names // of a meter that could not be resolved yet
}

// names are an account and a feature that were not known when a meter was made of them.
type names struct {
	account, feature string
	known            atomic.Pointer[Meter]
}

// Meter returns the meter of an account and a feature. One that is made before Start, or of a feature that no plan knows
// yet, begins to work with either. What is wrong with the names is told by Consume, and Take refuses.
func (e *Enforcer) Meter(account, feature string) *Meter {
	m, err := e.meter(account, feature)
	if err != nil {
		return &Meter{e: e, clock: e.clock, slot: &slot{}, names: &names{account: account, feature: feature}}
	}
	return m
}

func (e *Enforcer) meter(account, feature string) (*Meter, error) {
	a, i, err := e.check(account, feature, 0)
	if err != nil {
		return nil, err
	}
	return &Meter{e: e, clock: e.clock, slot: a.slotAt(i)}, nil
}

// resolve looks the names up again, until they are known.
func (n *names) resolve(e *Enforcer) (*Meter, error) {
	if m := n.known.Load(); m != nil {
		return m, nil
	}
	m, err := e.meter(n.account, n.feature)
	if err == nil {
		n.known.Store(m)
	}
	return m, err
}

// Take spends units and reports whether it could: Consume without the particulars, and the cheapest call there is.
// Negative units are refused.
func (m *Meter) Take(units int64) bool {
	c := m.slot.cur.Load()
	if c == nil {
		return m.takeSlow(units)
	}
	line := c.line
	if now := m.clock.business.Load(); now >= line.Until().Load() {
		// Shut: a cell answers, or where it is shut too what is remembered, or the long way.
		if h := c.cells(); h != nil && now < h.until.Load() {
			return m.takeCell(c, h, units)
		}
		if r := c.refusal.Load(); r != nil && r.firm && units > r.bound && m.clock.mono.Load() < r.until && now < c.end.Load() {
			return false
		}
		return m.takeSlow(units)
	}
	if units != 1 {
		return m.takeMany(c, units)
	}
	after := line.Word().Add(one)
	if int64(int32(after)) < int64(line.Alarm().Load()) || after&sampled == 0 {
		return m.alarmed(c, after)
	}
	runtime.KeepAlive(c) // the line is the counter's as long as somebody holds the counter
	return true
}

// takeCell is Take for a counter that has cells.
func (m *Meter) takeCell(c *counter, h *cells, units int64) bool {
	if units != 1 || !h.active.Load() {
		return m.takeMany(c, units)
	}
	line := h.of(here())
	// The alarm is loaded after the add: the counter, and with it its lines, is kept until then.
	if after := line.Word().Add(one); int32(after)|int32(c.alarm().Load()) < 0 {
		return m.cellAlarmed(c, h, line, after)
	}
	return true
}

func (m *Meter) alarmed(c *counter, after uint64) bool {
	return m.e.alarmed(c, after) || m.takeSlow(1)
}

// takeMany is Take for more than one unit, of which an add could take a part, and for any where cells are set aside.
func (m *Meter) takeMany(c *counter, units int64) bool {
	if uint64(units-1) >= maxLeft-1 {
		return m.takeSlow(units)
	}
	if h := c.cells(); h != nil && h.active.Load() && c.spendCell(m.e, h, units) {
		return true
	}
	after, ok := spend(c.word(), uint64(units))
	if !ok {
		return m.takeSlow(units)
	}
	if left(after) < uint64(c.alarm().Load()) || after&sampled == 0 {
		m.e.alarmed(c, after)
	}
	runtime.KeepAlive(c)
	return true
}

// cellAlarmed ends a Take whose cell was empty, or the first one of a batch.
func (m *Meter) cellAlarmed(c *counter, h *cells, line *journal.Slot, after uint64) bool {
	if empty(after) {
		return c.refill(m.e, h, line, 1) || m.takeSlow(1)
	}
	m.e.markDirty(c)
	runtime.KeepAlive(c)
	return true
}

func (m *Meter) takeSlow(units int64) bool {
	if m.names != nil {
		known, err := m.names.resolve(m.e)
		return err == nil && known.Take(units)
	}
	d, err := m.e.consume(context.Background(), m.slot, units)
	return err == nil && d.Allowed
}

// Consume is Enforcer.Consume for the meter's account and feature.
func (m *Meter) Consume(ctx context.Context, units int64) (d Decision, err error) {
	if v, own := m.e.quick(m.slot, units); v != nil {
		v.into(&d, own)
		return
	}
	if m.names != nil {
		known, err := m.names.resolve(m.e)
		if err != nil {
			return Decision{}, err
		}
		return known.Consume(ctx, units)
	}
	return m.e.consume(ctx, m.slot, units)
}
