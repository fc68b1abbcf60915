package enforcer

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// beyondLease is by how much a counter could spend more than the database has leased to its node.
func (e *Enforcer) beyondLease(t *testing.T, c *counter) int64 {
	t.Helper()
	var lim int64
	require.NoError(t, e.db.QueryRow(t.Context(), "SELECT lim FROM weir.leases WHERE key = $1 AND node = $2", c.key(), e.node).Scan(&lim))
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total() + c.left() - lim
}

// Leases are set aside while a first contact is answered: what it brought may be another node's before it is spent.
func TestAFirstContactThatWasAnsweredBehindTheFenceIsSetAside(t *testing.T) {
	t.Parallel()
	e, hook := startHooked(t, "weir.contact(")
	e.flushing <- struct{}{} // no heartbeat ends the fence
	fence := e.fence
	hook.run.Store(&fence)
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.Equal(t, Unavailable, d.Reason)
	c := e.slotOf("acme", "events").cur.Load()
	require.Zero(t, c.leftNow()+c.total())
	<-e.flushing
	require.NoError(t, e.Flush(t.Context()))
	d, err = e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.LessOrEqual(t, e.beyondLease(t, c), int64(0))
}

// A lease is returned and its idle counter dropped while rows of before are on their way here: a counter that begins from
// them would spend the lease again.
func TestAnIdleCounterStaysWhileItsAccountIsRead(t *testing.T) {
	t.Parallel()
	e, hook := startHooked(t, "weir.load(")
	_, err := e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	require.NoError(t, e.Flush(t.Context()))
	s := e.slotOf("acme", "events")
	c := s.cur.Load()
	require.Positive(t, c.leftNow())
	meanwhile := func() {
		e.give(c, func() bool { return true })
		c.mu.Lock()
		c.usedAt = e.clock.mono.Load() - int64(forgetAfter) - 1
		c.mu.Unlock()
		e.returnIdle()
	}
	hook.run.Store(&meanwhile)
	require.NoError(t, e.reload(t.Context(), []*account{s.account}))
	require.Nil(t, hook.run.Load())
	require.LessOrEqual(t, e.beyondLease(t, s.cur.Load()), int64(0))
	e.idleFor(t, c) // and goes once nobody reads
}

// A first contact is answered while the enforcer stops: nothing of it is spent once everything is settled.
func TestAFirstContactThatIsAnsweredDuringAStopSpendsNothing(t *testing.T) {
	t.Parallel()
	e, hook := startHooked(t, "weir.contact(")
	stopped := make(chan error, 1)
	stop := func() {
		go func() { stopped <- e.Stop(context.Background()) }()
		<-e.life.Done() // every counter that is known is sealed
	}
	hook.run.Store(&stop)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.NoError(t, <-stopped)
	c := e.slotOf("acme", "events").cur.Load()
	require.NotNil(t, c)
	used := c.total()
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.False(t, d.Allowed)
	require.False(t, e.Meter("acme", "events").Take(1))
	require.Equal(t, used, c.total())
}

// A node that is stopped before it has heard that it was reaped is done with: its journal is gone, and nothing waits for it.
func TestAReapedNodeThatIsStoppedIsDoneWith(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := startHere(t, pool, idlePlans)
	e.flushing <- struct{}{} // it hears nothing
	defer func() { <-e.flushing }()
	_, err := e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	nodes, err := usage.Nodes(t.Context(), pool)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "SELECT weir.move_node($1, '{live}', 'reaping', $2)", e.node, nodes[0].Heartbeat)
	require.NoError(t, err)
	require.ErrorIs(t, e.Stop(t.Context()), errReaping, "a worker is in the middle")
	taken, err := usage.Reap(t.Context(), pool, e.node, nodes[0].Heartbeat)
	require.NoError(t, err)
	require.True(t, taken)
	require.NoError(t, e.Stop(t.Context()))
	state, err := usage.NodeState(t.Context(), pool, e.node)
	require.NoError(t, err)
	require.Equal(t, "stopped", state)
	var used, granted int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(used)::bigint, sum(granted)::bigint FROM weir.totals JOIN weir.quotas USING (key)").Scan(&used, &granted))
	require.Equal(t, []int64{10, 10}, []int64{used, granted})
}

// A worker ends the reaping while the node that stops looks at its own state.
func TestANodeThatIsReapedWhileItIsStoppedIsDoneWith(t *testing.T) {
	t.Parallel()
	e, hook := startHooked(t, "weir.move_node(")
	e.flushing <- struct{}{} // it hears nothing
	defer func() { <-e.flushing }()
	_, err := e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	nodes, err := usage.Nodes(t.Context(), e.pool)
	require.NoError(t, err)
	_, err = e.pool.Exec(t.Context(), "SELECT weir.move_node($1, '{live}', 'reaping', $2)", e.node, nodes[0].Heartbeat)
	require.NoError(t, err)
	reaped := func() {
		taken, err := usage.Reap(context.Background(), e.pool, e.node, nodes[0].Heartbeat)
		require.NoError(t, err)
		require.True(t, taken)
	}
	second := func() { hook.run.Store(&reaped) } // it was not live; is it reaped?
	hook.run.Store(&second)
	require.NoError(t, e.Stop(t.Context()))
	state, err := usage.NodeState(t.Context(), e.pool, e.node)
	require.NoError(t, err)
	require.Equal(t, "stopped", state)
}

// A period begins for a call that had found the enforcer running: it counts nothing that the stop does not store.
func TestAPeriodThatBeginsDuringAStopCountsNothing(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	s := e.slotOf("acme", "events")
	require.NotNil(t, s.upcoming.view)
	begins := s.upcoming.starts()
	require.NoError(t, e.Stop(t.Context()))
	_, rolled := e.rollOver(s, begins)
	require.True(t, rolled)
	require.False(t, s.cur.Load().fill(e, consumes(1)))
}

// A start that runs out of time once the node is registered leaves no node behind that periods would wait for.
func TestAStartThatRunsOutOfTimeLeavesNoNode(t *testing.T) {
	t.Parallel()
	pool, hook := hookedPool(t, "commit")
	catalog, err := plans.Parse([]byte(idlePlans))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), pool, catalog, "test", time.Now())
	require.NoError(t, err)
	e, err := New(pool, &Config{NoJournal: true, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := func() { cancel() }
	hook.run.Store(&late)
	require.ErrorIs(t, e.Start(ctx), context.Canceled)
	var states []string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT array_agg(state) FROM weir.nodes WHERE id > 0").Scan(&states))
	require.Equal(t, []string{"stopped"}, states)
	require.NoError(t, e.Start(t.Context()))
	require.NoError(t, e.Stop(t.Context()))
}
