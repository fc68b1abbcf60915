package enforcer_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/usage"
)

// Four processes use a ceiling up while something happens to their database; the numbers must be the same.
func TestDatabaseFaultsChangeNoNumber(t *testing.T) {
	t.Parallel()
	stall := time.Duration(long(5, 30)) * time.Second
	for _, fault := range []struct {
		name   string
		during func(t *testing.T, s databaseUnderFault)
	}{
		{"restarted", func(t *testing.T, s databaseUnderFault) {
			for range long(2, 5) {
				require.NoError(t, s.Restart(context.WithoutCancel(t.Context())))
				time.Sleep(time.Second)
			}
		}},
		{"stalled", func(t *testing.T, s databaseUnderFault) {
			require.NoError(t, s.Pause())
			time.Sleep(stall)
			require.NoError(t, s.Resume())
		}},
		{"answers lost after the commit", func(t *testing.T, s databaseUnderFault) {
			for range long(100, 600) {
				s.cut.lose.Store(1)
				time.Sleep(20 * time.Millisecond)
			}
			s.cut.lose.Store(0)
			require.Positive(t, s.cut.lost.Load())
			t.Logf("%d answers lost", s.cut.lost.Load())
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			const ceiling = 300_000
			server, pool := ownServer(t)
			publish(t, pool, ceiling)
			cut := newCutter(t, server.URL("postgres"))
			b := &book{}
			var nodes []*process
			for range 4 {
				nodes = append(nodes, startProcess(t, b, nodeSpec{
					URL: cut.url, Dir: t.TempDir(), Callers: 4, Most: 50, Think: 2 * time.Millisecond, Seed: rand.Uint64(), MaxWait: 2 * time.Second,
				}))
			}
			for _, p := range nodes {
				require.NoError(t, p.await("ready", time.Minute))
				require.NoError(t, p.use("acme"))
			}
			for _, p := range nodes {
				<-p.told
			}
			fault.during(t, databaseUnderFault{server, cut})
			for _, p := range nodes {
				require.NoError(t, p.await("done", 3*time.Minute))
			}
			require.Eventually(t, func() bool { return stored(t, pool, "acme") >= ceiling }, 30*time.Second, 20*time.Millisecond)
			x := tallyOf(b.take())
			t.Logf("%+v", x)
			require.EqualValues(t, ceiling, x.Units)
			require.EqualValues(t, ceiling, stored(t, pool, "acme"))
			require.Zero(t, x.False)
			require.Zero(t, x.Other)
			for _, p := range nodes {
				require.NoError(t, p.stop())
			}
		})
	}
}

type databaseUnderFault struct {
	faultable
	cut *cutter
}

type faultable interface {
	Restart(context.Context) error
	Pause() error
	Resume() error
}

// Case 30 of docs/cases: the database stalls, and calls inside a lease do not notice.
func TestCase30CallsInsideALeaseKeepTheirPaceWhileTheDatabaseStalls(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t)
	publish(t, pool, 1<<40)
	e := start(t, pool, enforcer.Config{})
	m := e.Meter("acme", "events")
	require.Eventually(t, func() bool { return m.Take(1) }, 20*time.Second, 10*time.Millisecond)
	measure := func(d time.Duration) (p99, most time.Duration, calls int) {
		var took []time.Duration
		for began := time.Now(); time.Since(began) < d; {
			t0 := time.Now()
			for range 100 {
				if !m.Take(1) {
					t.Fatal("a call inside the lease was refused")
				}
			}
			took = append(took, time.Since(t0))
			time.Sleep(4 * time.Millisecond) // as calls come: 30 s of them are less than the first lease, 1,000,000 units
		}
		slices.Sort(took)
		return took[len(took)*99/100], took[len(took)-1], len(took) * 100
	}
	before, _, _ := measure(500 * time.Millisecond)
	require.NoError(t, server.Pause())
	t.Cleanup(func() { _ = server.Resume() })
	during, most, calls := measure(time.Duration(long(5, 30)) * time.Second)
	require.NoError(t, server.Resume())
	after, _, _ := measure(500 * time.Millisecond)
	t.Logf("p99 of 100 calls: before %s, during %s (at most %s, %d calls), after %s", before, during, most, calls, after)
	// Far above the noise of a shared machine, and far below any wait for a database.
	require.Less(t, most, time.Second)
	require.NoError(t, e.Flush(t.Context()))
	require.GreaterOrEqual(t, stored(t, pool, "acme"), int64(calls))
}

func TestAReapedNodeThatWakesUpRejoinsWithEverythingItCounted(t *testing.T) {
	t.Parallel()
	_, pool := ownServer(t)
	publish(t, pool, 1000)
	a := start(t, pool, enforcer.Config{})
	require.True(t, consume(t, a, "acme", "events", 100).Allowed)
	require.NoError(t, a.Flush(t.Context()))
	require.True(t, consume(t, a, "acme", "events", 20).Allowed, "not flushed when it is taken for dead")
	reap(t, pool, a.Stats().Node)
	b := start(t, pool, enforcer.Config{})
	require.True(t, consume(t, b, "acme", "events", 850).Allowed, "what the dead node held")
	require.Eventually(t, func() bool { return nodeState(t, pool, a.Stats().Node) == "live" }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		d := consume(t, a, "acme", "events", 1)
		return d.Allowed || d.Reason == enforcer.QuotaExceeded
	}, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, a.Flush(t.Context()))
	require.NoError(t, b.Flush(t.Context()))
	fold(t, pool)
	x := totals(t, pool, "acme")[0]
	require.GreaterOrEqual(t, x.Used, int64(970))
	require.LessOrEqual(t, x.Used, int64(1000))
}

func nodeState(t *testing.T, pool *pgxpool.Pool, node int64) string {
	t.Helper()
	state, err := usage.NodeState(t.Context(), pool, node)
	require.NoError(t, err)
	return state
}

// reap does what a worker does that has watched a node's heartbeat stand still. A live node's heartbeat moves, so it is
// read and used in a loop.
func reap(t *testing.T, pool *pgxpool.Pool, node int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		nodes, err := usage.Nodes(t.Context(), pool)
		require.NoError(t, err)
		for _, n := range nodes {
			if n.ID == node {
				done, err := usage.Reap(t.Context(), pool, node, n.Heartbeat)
				require.NoError(t, err)
				return done
			}
		}
		return false
	}, 20*time.Second, time.Millisecond)
}
