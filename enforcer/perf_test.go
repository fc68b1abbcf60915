//go:build !race

// Costs under the race detector are the detector's.

package enforcer_test

import (
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
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
	var word atomic.Uint64
	works = make(map[string]measure.Work)
	for _, w := range []measure.Work{
		{Name: "atomic add", Do: func(n int) {
			for range n {
				word.Add(1)
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

// Not parallel: what runs beside it is measured too.
func TestPerfHotPathsAgainstBareAtomics(t *testing.T) {
	works, _ := hotPaths(t)
	for _, row := range []struct {
		name   string
		target float64
	}{
		{"take", 1.25},
		{"take, refused", 0.5},
		{"meter consume", 3},
		{"consume by names", 4.5},
	} {
		w := works[row.name]
		require.Zero(t, testing.AllocsPerRun(1000, func() { w.Do(1) }), "%s allocates", row.name)
		withinBound(t, row.name, row.target, func() float64 {
			r, err := measure.Compare(measure.Options{Patience: 2 * time.Minute}, works["atomic add"], w)
			require.NoError(t, err)
			t.Logf("%s: %.1f ns, atomic add %.1f ns", row.name, r[1].NS, r[0].NS)
			return r[1].Over(r[0])
		})
	}
}

// Each core spends from its own cell. Target: 1.7 times the calls of one core.
func TestPerfOneHotKeyOnTwoCores(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Log("one core: there is nothing to divide")
		return
	}
	works, e := hotPaths(t)
	e.WithCells("acme", "events")
	one, two := works["take"], works["take"]
	two.Cores = 2
	withinBound(t, "two cores' share of one's throughput", 1/1.7, func() float64 {
		r, err := measure.Compare(measure.Options{Patience: 2 * time.Minute}, one, two)
		require.NoError(t, err)
		t.Logf("one core %.1f ns a call, two %.1f ns each", r[0].NS, r[1].NS)
		return r[1].Over(r[0]) / 2
	})
}

// withinBound measures until a ratio is within the bound, at most three times.
func withinBound(t *testing.T, name string, target float64, ratio func() float64) {
	t.Helper()
	margin := perfMargin
	if s := os.Getenv("WEIR_PERF_MARGIN"); s != "" { // on machines that nobody knows
		var err error
		margin, err = strconv.ParseFloat(s, 64)
		require.NoError(t, err)
	}
	var last float64
	for range perfTries {
		last = ratio()
		t.Logf("%s: %.2f, target %.2f", name, last, target)
		if last <= margin*target {
			return
		}
	}
	require.LessOrEqual(t, last, margin*target, "%s, in %d measurements of %d", name, perfTries, perfTries)
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
