package enforcer

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

const turmoilPlans = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans:
  free: {quota: {events: 100_000}, on_exceeded: block}
  strict: {quota: {events: {included: 100_000, enforce: strict}}, on_exceeded: block}
  open: {quota: {events: unlimited}, on_exceeded: block}
  none: {quota: {tokens: 5}, on_exceeded: block}
`

// Callers of every kind go on while the counter under them is recalled, cut, ended, opened again, dropped, fenced, given
// cells and other terms. In the end the database has what they were told, to the unit, and so has the journal.
func TestWhateverHappensToACounterItsCallsAreCountedOnce(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]cellRule{"usual": usualCells, "cells everywhere": attack} {
		pool := schematest.Pool(t)
		e := startHere(t, pool, turmoilPlans)
		e.cellRule = rule
		_, err := e.Consume(t.Context(), "acme", "events", 1)
		require.NoError(t, err)
		s := e.slotOf("acme", "events")
		a := s.account
		began := e.clock.time().Add(-time.Hour)
		plan := func(name string, starts, ends time.Time) {
			state := usage.PlanState{Plan: name, Anchor: starts, Starts: starts, Ends: ends}
			if _, err := usage.ApplyPlan(t.Context(), pool, a.loadedID(), state, e.clock.time()); err != nil {
				t.Error(err)
			}
		}
		var admitted atomic.Int64
		admitted.Add(1)
		done := make(chan struct{})
		var callers, others sync.WaitGroup
		for g := range 4 {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 1))
				m := e.Meter("acme", "events")
				for {
					select {
					case <-done:
						return
					default:
					}
					n := int64(1)
					if rng.IntN(4) == 0 {
						n += rng.Int64N(20)
					}
					var ok bool
					switch rng.IntN(50) {
					case 0:
						r, err := e.Reserve(t.Context(), "acme", "events", n)
						if err != nil {
							continue
						}
						if rng.IntN(4) == 0 {
							r.expire()
						}
						n = rng.Int64N(n + 2)
						if _, err := r.Settle(t.Context(), n); err != nil {
							t.Error(err)
						}
						ok = true
					case 1, 2, 3, 4, 5, 6:
						d, err := m.Consume(t.Context(), n)
						ok = err == nil && d.Allowed
					default:
						ok = m.Take(n)
					}
					if ok {
						admitted.Add(n)
					}
				}
			})
		}
		others.Go(func() {
			rng := rand.New(rand.NewPCG(7, 7))
			defer close(done)
			for range 120 {
				c := s.cur.Load()
				if c == nil {
					plan("free", began, began.AddDate(0, 1, 0))
				}
				for ; c == nil; c = s.cur.Load() {
					runtime.Gosched() // until a caller, or the change, has loaded it
				}
				switch rng.IntN(12) {
				case 0:
					e.recalled(c.key())
				case 1:
					e.promote(c)
				case 2:
					e.forgetRefusals()
				case 3: // the period is cut, and later opened again
					now := e.clock.time()
					plan("free", now, now.AddDate(0, 1, 0))
					if rng.IntN(2) == 0 {
						_ = e.Flush(t.Context())
					}
					plan("free", began, began.AddDate(0, 1, 0))
				case 4:
					e.fence()
					_ = e.Flush(t.Context())
				case 5:
					included := admitted.Load() + rng.Int64N([]int64{1_000, 1_000_000}[rng.IntN(2)])
					o := usage.Override{Included: &included, Reason: "test", Actor: "test"}
					if err := usage.SetOverride(t.Context(), pool, a.loadedID(), "events", o, e.clock.time()); err != nil {
						t.Error(err)
					}
				case 6: // what ten idle minutes do
					e.give(c, func() bool { return true })
					_ = e.Flush(t.Context())
					c.mu.Lock()
					c.usedAt = e.clock.mono.Load() - int64(forgetAfter) - 1
					c.mu.Unlock()
					e.returnIdle()
				case 7, 8:
					plan([]string{"free", "free", "strict", "open", "none"}[rng.IntN(5)], began, began.AddDate(0, 1, 0))
				case 9:
					_ = e.Flush(t.Context())
				default:
					e.extendSoon(c)
				}
			}
		})
		others.Wait()
		callers.Wait()

		require.NoError(t, e.Flush(t.Context()))
		var stored int64
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(sum(weir.stored(key)), 0) FROM weir.keys").Scan(&stored))
		require.Equal(t, admitted.Load(), stored, name)
		var own int64
		e.byKey.each(func(c *counter) { own += c.total() })
		require.EqualValues(t, own, e.leftByAKill(t, pool), name)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		require.NoError(t, e.Stop(ctx), name)
		cancel()
		t.Logf("%s: %d units, %+v", name, stored, e.Stats())
		var wrong int
		require.NoError(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM weir.quotas q
			WHERE q.granted <> coalesce((SELECT sum(l.lim) FROM weir.leases l WHERE l.key = q.key), 0) OR q.granted <> weir.stored(q.key)`).Scan(&wrong))
		require.Zero(t, wrong, "%s: what a stopped node held is given back", name)
	}
}
