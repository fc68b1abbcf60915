package enforcer_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
)

// long chooses the long form of an endurance test: make chaos.
func long(short, full int) int {
	if os.Getenv("WEIR_CHAOS") != "" {
		return full
	}
	return short
}

func TestProcessesFillTheCeilingExactly(t *testing.T) {
	t.Parallel()
	const ceiling = 100_000
	for _, kind := range []struct {
		name string
		spec func(i int) nodeSpec
	}{
		{"even", func(int) nodeSpec { return nodeSpec{Callers: 8, Most: 50} }},
		{"uneven", func(i int) nodeSpec {
			return nodeSpec{Callers: 1 + 5*i, Most: 50, Think: time.Duration(i%2) * 200 * time.Microsecond}
		}},
		{"one asks 4000 at once", func(i int) nodeSpec {
			s := nodeSpec{Callers: 8, Most: 50}
			if i == 0 {
				s.Big = 4000
			}
			return s
		}},
		{"cells", func(i int) nodeSpec { return nodeSpec{Callers: 8, Most: 50, Cells: true} }},
		{"cells at some, ones only", func(i int) nodeSpec { return nodeSpec{Callers: 8, Most: 1, Cells: i%2 == 0} }},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			pool := pgtest.Pool(t, url)
			publish(t, pool, ceiling)
			b := &book{}
			var nodes []*process
			for i := range 4 {
				spec := kind.spec(i)
				spec.URL, spec.Dir, spec.Seed, spec.MaxWait = url, t.TempDir(), rand.Uint64(), 5*time.Second
				nodes = append(nodes, startProcess(t, b, spec))
			}
			for _, p := range nodes {
				require.NoError(t, p.await("ready", time.Minute))
			}
			var took []time.Duration
			for round := range long(5, 20) {
				account := fmt.Sprintf("%s %d", kind.name, round)
				began := time.Now()
				for _, p := range nodes {
					require.NoError(t, p.use(account))
				}
				for _, p := range nodes {
					require.NoError(t, p.await("done", time.Minute))
				}
				took = append(took, time.Since(began))
				require.Eventually(t, func() bool { return stored(t, pool, account) >= ceiling }, 20*time.Second, 20*time.Millisecond)
				x := tallyOf(b.take())
				require.EqualValues(t, ceiling, x.Units, "%+v", x)
				require.Zero(t, x.False, "%+v", x)
				require.Zero(t, x.Other, "%+v", x)
				require.EqualValues(t, ceiling, stored(t, pool, account))
			}
			slices.Sort(took)
			t.Logf("%d rounds exact, 0 false refusals, p50 %s, max %s", len(took), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond))
			for _, p := range nodes {
				require.NoError(t, p.stop())
			}
		})
	}
}

func TestKilledProcessesLoseNothingAndTheCeilingIsFilledToTheUnit(t *testing.T) {
	t.Parallel()
	const callers, most = 4, 50
	kills := long(50, 200)
	ceiling := int64(kills) * 4_000
	url := schematest.URL(t)
	pool := pgtest.Pool(t, url)
	publish(t, pool, ceiling)
	b := &book{}
	dir := t.TempDir() // one folder: the next process recovers a killed one's file
	spec := nodeSpec{URL: url, Dir: dir, Callers: callers, Most: most, Think: time.Millisecond, MaxWait: 2 * time.Second}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	fresh := func() *process {
		spec.Seed = rng.Uint64()
		spec.Cells = !spec.Cells
		return startProcess(t, b, spec)
	}
	nodes := []*process{fresh(), fresh(), fresh(), fresh()}
	for _, p := range nodes {
		require.NoError(t, p.await("ready", time.Minute))
		require.NoError(t, p.use("acme"))
	}
	for k := range kills {
		i := k % len(nodes)
		time.Sleep(time.Duration(10+rng.IntN(50)) * time.Millisecond) // the moment of the kill is what is random
		nodes[i].kill()
		nodes[i] = fresh()
		require.NoError(t, nodes[i].await("ready", time.Minute))
		require.NoError(t, nodes[i].use("acme"))
	}
	for _, p := range nodes {
		require.NoError(t, p.await("done", 2*time.Minute))
	}
	inFlight := int64(kills) * callers * most
	x := tallyOf(b.take())
	require.Eventually(t, func() bool { return stored(t, pool, "acme") >= ceiling }, 20*time.Second, 20*time.Millisecond)
	total := stored(t, pool, "acme")
	t.Logf("%d kills: answered %d, stored %d, ceiling %d; in flight at kills at most %d; %d false refusals of %d units; %d calls unavailable",
		kills, x.Units, total, ceiling, inFlight, x.False, x.FalseUnits, x.Unavailable)
	require.LessOrEqual(t, x.Units, total, "nothing that was answered is lost")
	require.EqualValues(t, ceiling, total, "nothing beyond the ceiling, and filled to the unit")
	require.LessOrEqual(t, total-x.Units, inFlight)
	require.LessOrEqual(t, x.FalseUnits, inFlight)
	for _, p := range nodes {
		require.NoError(t, p.stop())
	}
}

// recoverAll starts and stops an enforcer in the folder: it recovers what dead processes left there.
func recoverAll(t *testing.T, pool *pgxpool.Pool, dir string) error {
	t.Helper()
	e, err := enforcer.New(pool, &enforcer.Config{JournalDir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := e.Start(t.Context()); err != nil {
		return err
	}
	return e.Stop(context.Background())
}

// Half of the lanes spend from cells: what lies in one when the process is killed is not counted, what was spent from it is.
func TestSmallKillsLoseNothingAndDoubleNothing(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	pool := pgtest.Pool(t, url)
	publish(t, pool, 1<<40)
	b := &book{}
	kills := long(48, 1000)
	const lanes = 4
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			dir := t.TempDir()
			rng := rand.New(rand.NewPCG(uint64(lane), 7))
			for k := range kills / lanes {
				p := startProcess(t, b, nodeSpec{URL: url, Dir: dir, Callers: 1, Most: 9, Seed: uint64(lane*10000 + k), MaxWait: 5 * time.Second, Cells: lane%2 == 0})
				if err := p.await("ready", time.Minute); err != nil {
					t.Error(err)
					return
				}
				if err := p.use("acme"); err != nil {
					t.Error(err)
					return
				}
				<-p.told
				time.Sleep(time.Duration(rng.IntN(15000)) * time.Microsecond) // the moment of the kill is what is random
				p.kill()
			}
			if err := recoverAll(t, pool, dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	x := tallyOf(b.take())
	total := stored(t, pool, "acme")
	t.Logf("%d kills: answered %d, stored %d, in flight at kills at most %d", kills, x.Units, total, kills*9)
	require.LessOrEqual(t, x.Units, total, "nothing is lost")
	require.LessOrEqual(t, total-x.Units, int64(kills*9), "nothing is counted twice")
	require.Positive(t, x.Units)
}
