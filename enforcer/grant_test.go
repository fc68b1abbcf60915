package enforcer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// granted is the answer that a database with room gives.
func granted(c *counter, got int64) usage.LeaseAnswer {
	ver, lim, tight := c.ver+1, c.lim+got, false
	return usage.LeaseAnswer{Key: c.key(), Status: usage.LeaseOK, Ver: &ver, Lim: &lim, Tight: &tight, Got: got}
}

// While units are called back a grant may be as large as what all callers of a node wait for. A peek waits for none: what
// it is shown is loose.
func TestAGrantForManyLargeCallersFitsAWord(t *testing.T) {
	t.Parallel()
	e, c := bare(t, attack, 0)
	for range 3 {
		c.join(maxLeft - 1)
	}
	require.Zero(t, c.operation(consumes(0), 1, false).call.Waiting)
	ex := c.operation(consumes(1), 1, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	ex.apply(e, granted(c, max(ex.call.Waiting, ex.call.Want)))
	require.EqualValues(t, 1, c.total())
	require.EqualValues(t, ex.call.Waiting-1, c.left())
}

// A period ends, or leases are set aside to be settled, between a caller's look and its question: what it is granted then
// is nobody's. The mark has passed the one, and the settling takes the other back without a word.
func TestAGrantThatWasAskedForAfterACutGoesBack(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*Enforcer, *counter){
		"end": func(_ *Enforcer, c *counter) { c.seal() },
		"rejoin": func(e *Enforcer, c *counter) {
			e.fenced.Store(true)
			c.mu.Lock()
			c.cutAll()
			c.mu.Unlock()
		},
	} {
		e, c := bare(t, attack, 0)
		require.True(t, c.lock(nil, nil))
		_, done, again := e.look(c, consumes(5))
		require.False(t, done || again, name)
		cut(e, c)
		ex := c.operation(consumes(5), 100, false)
		c.mu.Lock()
		owes, _ := ex.apply(e, granted(c, 100))
		require.True(t, owes, name)
		require.False(t, ex.paid, name)
		require.Zero(t, c.total()+c.left(), name)
		require.EqualValues(t, 100, c.back, name)
		c.mu.Unlock()
	}
}

const endlessPlans = `
currency: usd
default_plan: free
features:
  events: {}
plans:
  free: {quota: {events: unlimited}}
`

// Calls that the database decides and calls that a lease answers count for each other at once.
func TestDecisionsCountWhatEitherWayWasSpent(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), endlessPlans)
	used := int64(0)
	for _, n := range []int64{100, 1 << 31, 1, 1 << 32, 1 << 31, 7, 1} {
		d, err := e.Consume(t.Context(), "acme", "events", n)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		used += n
		require.Equal(t, used, d.Used, "after %d", n)
	}
	first, err := e.ConsumeOnce(t.Context(), "acme", "events", 5, "a key")
	require.NoError(t, err)
	require.True(t, first.Allowed)
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.Equal(t, used+6, d.Used)
	again, err := e.ConsumeOnce(t.Context(), "acme", "events", 5, "a key")
	require.NoError(t, err)
	require.Equal(t, first.Used, again.Used, "a repeated call is told what the first one was")
	d, err = e.Consume(t.Context(), "acme", "events", 0)
	require.NoError(t, err)
	require.Equal(t, used+6, d.Used)
}
