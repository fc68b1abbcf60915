package enforcer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// A machine whose clock is ahead of the database's begins no period early, and does not wait for the database to catch up.
func TestAMachineWhoseClockIsAheadCountsByTheDatabases(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2020, time.March, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, usage.SimulateClock(t.Context(), pool, end.Add(-time.Hour)))
	e := startHere(t, pool, idlePlans)
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Terms.ResetsAt.Equal(end), "%s", d.Terms.ResetsAt)
	require.NoError(t, e.Flush(t.Context()))
	var sealed time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sealed FROM weir.nodes WHERE id = $1", e.node).Scan(&sealed))
	require.True(t, sealed.Before(end))
}

// Between two answers business time goes on by what has elapsed here, and an answer that took long moves it no further
// than it must: what is sealed stays sealed.
func TestBusinessTimeGoesOnByWhatHasElapsed(t *testing.T) {
	t.Parallel()
	at := time.Date(2020, time.March, 1, 0, 0, 0, 0, time.UTC)
	var elapsed time.Duration
	c := newCoarse(nil)
	c.elapsed = func() time.Duration { return elapsed }
	c.begin(at, 0, 0)
	elapsed = time.Hour
	c.tick()
	require.Equal(t, at.Add(time.Hour), c.time())
	elapsed += 5 * time.Second
	c.learn(at.Add(time.Hour+5*time.Second), time.Hour, elapsed)
	require.Equal(t, at.Add(time.Hour+5*time.Second), c.time())
}

// A machine that was suspended for longer than the lease time spends nothing of leases that are others' by now.
func TestASuspendedNodeSetsItsLeasesAside(t *testing.T) {
	t.Parallel()
	catalog, err := plans.Parse([]byte(idlePlans))
	require.NoError(t, err)
	e, err := New(schematest.Pool(t), &Config{Plans: catalog, NoJournal: true, MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	var suspended atomic.Int64
	running := e.clock.elapsed
	e.clock.elapsed = func() time.Duration { return running() + time.Duration(suspended.Load()) }
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	c := e.slotOf("acme", "events").cur.Load()
	e.flushing <- struct{}{} // no heartbeat ends the fence
	suspended.Store(int64(e.leaseTime))
	require.Eventually(t, func() bool { return e.fenced.Load() && c.leftNow() == 0 }, 10*time.Second, time.Millisecond)
	require.False(t, e.Meter("acme", "events").Take(1))
	<-e.flushing
	require.NoError(t, e.Flush(t.Context()))
	require.True(t, e.Meter("acme", "events").Take(1))
}
