//go:build !race

// Costs under the race detector are the detector's.

package enforcer_test

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
	"github.com/weirhq/weir/internal/schematest"
)

// What make bench shows in full (docs/performance.md), as far as a shared machine can hold it: a row fails when it is
// over one and a half times its target in three measurements of three.
const (
	perfTries  = 3
	perfMargin = 1.5
)

const perfPlans = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans: {free: {quota: {events: unlimited, tokens: 10}, on_exceeded: block}}
`

// hotPaths are the calls that the targets are about, over one account that has a lease and one quota used up.
func hotPaths(t testing.TB) (works map[string]measure.Work, e *enforcer.Enforcer) {
	t.Helper()
	e = start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, perfPlans), MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	ctx := t.Context()
	m, spent := e.Meter("acme", "events"), e.Meter("acme", "tokens")
	require.Eventually(t, func() bool { return m.Take(1) }, 20*time.Second, time.Millisecond)
	for spent.Take(1) {
	}
	var word, swapped atomic.Uint64
	works = make(map[string]measure.Work)
	for _, w := range []measure.Work{
		{Name: "atomic add", Do: func(n int) {
			for range n {
				word.Add(1)
			}
		}},
		{Name: "compare-and-swap", Do: func(n int) {
			swapped.Store(0)
			for range n {
				for w := swapped.Load(); !swapped.CompareAndSwap(w, w+1<<32-1); w = swapped.Load() {
				}
			}
		}},
		{Name: "take", Do: func(n int) {
			for range n {
				if !m.Take(1) {
					panic("refused")
				}
			}
		}},
		{Name: "take, refused", Do: func(n int) {
			for range n {
				if spent.Take(1) {
					panic("admitted")
				}
			}
		}},
		{Name: "meter consume", Do: func(n int) {
			for range n {
				if d, err := m.Consume(ctx, 1); err != nil || !d.Allowed {
					panic("refused")
				}
			}
		}},
		{Name: "consume by names", Do: func(n int) {
			for range n {
				if d, err := e.Consume(ctx, "acme", "events", 1); err != nil || !d.Allowed {
					panic("refused")
				}
			}
		}},
	} {
		works[w.Name] = w
	}
	return works, e
}

// A call that must not go below zero can't be cheaper than the loop that guarantees it, which costs 1.8 atomic adds
// where a load waits for the locked store before it: Take's reference is that loop. Not parallel: what runs beside it
// is measured too.
func TestPerfHotPathsAgainstBareAtomics(t *testing.T) {
	works, _ := hotPaths(t)
	for _, row := range []struct {
		name, reference string
		target          float64
	}{
		{"take", "compare-and-swap", 1.25},
		{"take, refused", "atomic add", 0.5},
		{"meter consume", "atomic add", 3},
		{"consume by names", "atomic add", 4.5},
	} {
		w := works[row.name]
		require.Zero(t, testing.AllocsPerRun(1000, func() { w.Do(1) }), "%s allocates", row.name)
		withinBound(t, row.name, row.target, func() float64 {
			r, err := measure.Compare(measure.Options{Patience: 2 * time.Minute}, works[row.reference], w)
			require.NoError(t, err)
			t.Logf("%s: %.1f ns, %s %.1f ns", row.name, r[1].NS, row.reference, r[0].NS)
			return r[1].Over(r[0])
		})
	}
}

// withinBound measures until a ratio is within the bound, at most three times.
func withinBound(t *testing.T, name string, target float64, ratio func() float64) {
	t.Helper()
	var last float64
	for range perfTries {
		last = ratio()
		t.Logf("%s: %.2f, target %.2f", name, last, target)
		if last <= perfMargin*target {
			return
		}
	}
	require.LessOrEqual(t, last, perfMargin*target, "%s, in %d measurements of %d", name, perfTries, perfTries)
}

// A round is one undisturbed slice of calls here, so that the tail is seen: the 99th percentile of slices.
func TestPerfCallsInsideALeaseWhileTheDatabaseStalls(t *testing.T) {
	server, pool := ownServer(t)
	publish(t, pool, 1<<40)
	e := start(t, pool, enforcer.Config{Logger: slog.New(slog.DiscardHandler)})
	m := e.Meter("acme", "events")
	require.Eventually(t, func() bool { return m.Take(1) }, 20*time.Second, time.Millisecond)
	p99 := func() float64 {
		r, err := measure.Compare(measure.Options{Rounds: 500, Slices: 1, Slice: 100 * time.Microsecond, Patience: 2 * time.Minute}, measure.Work{Name: "take", Do: func(n int) {
			for range n {
				if !m.Take(1) {
					panic("a call inside the lease was refused")
				}
			}
		}})
		require.NoError(t, err)
		slices.Sort(r[0].Rounds)
		return r[0].Rounds[len(r[0].Rounds)*99/100]
	}
	withinBound(t, "p99 while the database stalls", 1.2, func() float64 {
		before := p99()
		require.NoError(t, server.Pause())
		during := p99()
		require.NoError(t, server.Resume())
		return during / before
	})
}
