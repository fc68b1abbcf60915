package enforcer

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// A remembered refusal answers while nothing is left, and no longer: units that a background grant brought are spent by
// every kind of call, with cells and without.
func TestARememberedRefusalStandsBehindWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Enforcer, *counter) bool{
		"take":         func(e *Enforcer, c *counter) bool { return (&Meter{e: e, clock: e.clock, slot: c.slot}).Take(1) },
		"take several": func(e *Enforcer, c *counter) bool { return (&Meter{e: e, clock: e.clock, slot: c.slot}).Take(3) },
		"consume": func(e *Enforcer, c *counter) bool {
			d, err := e.consume(context.Background(), c.slot, 1)
			return err == nil && d.Allowed
		},
		"quick": func(e *Enforcer, c *counter) bool { v, _ := e.quick(c.slot, 1); return v != nil },
	} {
		for _, cells := range []bool{false, true} {
			e, c := bare(t, usualCells, 0)
			e.running.Store(true)
			c.mu.Lock()
			if !cells {
				c.rare.Store(nil)
			}
			c.remember(&refusal{until: 1 << 62, reason: QuotaExceeded})
			c.mu.Unlock()
			require.True(t, c.isShut())
			require.False(t, call(e, c), "%s, cells %t: nothing is left", name, cells)

			ver, lim, tight := int64(2), int64(100_000), false
			ex := &exchange{c: c, extend: true, epoch: c.epoch}
			c.mu.Lock()
			ex.apply(e, usage.LeaseAnswer{Ver: &ver, Lim: &lim, Tight: &tight, Got: 100_000})
			c.mu.Unlock()
			require.True(t, call(e, c), "%s, cells %t: 100,000 units are left", name, cells)
			if cells {
				e.promote(c)
				require.True(t, call(e, c), "%s, from a cell", name)
			}
		}
	}
}

// What was returned while an answer was on its way makes the answer old: it is not remembered.
func TestARefusalThatIsOlderThanAReturnIsNotRemembered(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	a, b := startHere(t, pool, thousand), startHere(t, pool, thousand)
	r, err := a.Reserve(t.Context(), "acme", "events", 1000)
	require.NoError(t, err)
	d, err := b.Consume(t.Context(), "acme", "events", 0)
	require.NoError(t, err)
	require.False(t, d.Allowed, "everything is reserved elsewhere")
	c := b.slotOf("acme", "events").cur.Load()
	c.forget()
	// The return comes after the database has answered and before the answer is looked at.
	returned := make(chan struct{})
	b.exchanges.fail = func() error {
		select {
		case <-returned:
			return nil
		default:
		}
		close(returned)
		if err := r.Cancel(context.Background()); err != nil {
			return err
		}
		ca := a.slotOf("acme", "events").cur.Load()
		a.give(ca, func() bool { return true })
		b.notice(usage.ChannelReturned, "")
		b.forgetRefusals()
		return nil
	}
	d, err = b.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	require.True(t, d.Allowed, "%+v", d)
}

// A call that waits while the enforcer stops is answered.
func TestACallThatWaitsIsAnsweredByAStop(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), thousand)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	s := e.slotOf("acme", "events")
	e.running.Store(false) // as Stop begins
	s.cur.Load().seal()
	answered := make(chan Decision, 1)
	go func() {
		_, d, _ := e.slow(context.Background(), s, consumes(1))
		answered <- d
	}()
	select {
	case d := <-answered:
		require.Equal(t, Unavailable, d.Reason)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for ever")
	}
}

// A counter that gets its cells back is one that calls of either kind are seen at.
func TestCellsComeBackToCallsOfEitherKind(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Enforcer, *counter) bool{
		"take":    func(e *Enforcer, c *counter) bool { return (&Meter{e: e, clock: e.clock, slot: c.slot}).Take(1) },
		"consume": func(e *Enforcer, c *counter) bool { v, _ := e.quick(c.slot, 1); return v != nil },
	} {
		e, c := bare(t, usualCells, 1<<30)
		c.mu.Lock()
		c.gather()
		c.mu.Unlock()
		require.False(t, c.cells().active.Load())
		x := &e.sightings.seen[uint64(c.key())%uint64(len(e.sightings.seen))]
		for range 3 << 10 {
			require.True(t, call(e, c))
		}
		require.Equal(t, c.key(), x.key, "%s: no call was sampled", name)
	}
}

// Near the end a peek takes nothing from others: what it was shown goes back.
func TestAPeekHoldsNothingThatOthersAreRefused(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	a, b := startHere(t, pool, thousand), startHere(t, pool, thousand)
	d, err := a.ConsumeOnce(t.Context(), "acme", "events", 999, "key")
	require.NoError(t, err)
	require.True(t, d.Allowed)
	for _, e := range []*Enforcer{a, b} {
		d, err = e.Consume(t.Context(), "acme", "events", 0)
		require.NoError(t, err)
		require.True(t, d.Allowed, "one is left: %+v", d)
	}
	d, err = a.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Allowed, "one is left: %+v", d)
}

// An account that was never reached is unavailable, also where it is read again.
func TestARateNeedsAPlanThatIsKnown(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), thousand)
	a := e.accountOf("acme")
	a.mu.Lock()
	a.id = 1 // as after a load that did not reach the present
	a.mu.Unlock()
	e.seen.Store(1 << 40) // whatever is read is behind
	d, err := e.Allow(t.Context(), "acme", "")
	require.NoError(t, err)
	require.Equal(t, Unavailable, d.Reason)
}

// What lies in a word whose plan has changed is spent by nobody: the plan lacks the feature, or leaves it to the database.
func TestUnitsUnderTermsWithoutALeaseAreNotSpent(t *testing.T) {
	t.Parallel()
	for _, other := range []conditions{{terms: &Terms{}, inPlan: false}, {terms: &Terms{}, inPlan: true, strict: true}} {
		for _, cells := range []bool{false, true} {
			e, c := bare(t, usualCells, 1<<30)
			m := &Meter{e: e, clock: e.clock, slot: c.slot}
			if !cells {
				c.mu.Lock()
				c.rare.Store(nil)
				c.gate()
				c.mu.Unlock()
			}
			require.True(t, m.Take(1))
			c.view.Store(&view{conditions: &other})
			c.forget()
			require.False(t, m.Take(1))
			require.False(t, m.Take(2))
			v, _ := e.quick(c.slot, 1)
			require.Nil(t, v)
			_, err := e.consume(t.Context(), c.slot, 1)
			require.ErrorIs(t, err, ErrUnavailable, "the long way, which a stopped enforcer has not")
			require.EqualValues(t, 1, c.total())
		}
	}
}
