package enforcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// boundary is the end of a month that comes by itself: the database's clock is set to shortly before, and goes on.
var boundary = time.Date(2027, time.February, 1, 0, 0, 0, 0, time.UTC)

// startBefore starts enforcers with cells everywhere an hour before the boundary, on a plan with a cap.
func startBefore(t *testing.T, cap int64, nodes int) (*pgxpool.Pool, []*Enforcer) {
	t.Helper()
	pool := schematest.Pool(t)
	catalog, err := plans.Parse(fmt.Appendf(nil, "currency: usd\ndefault_plan: free\nfeatures: {events: {}}\nplans: {free: {quota: {events: %d}, on_exceeded: block}}\n", cap))
	require.NoError(t, err)
	require.NoError(t, usage.SimulateClock(t.Context(), pool, boundary.Add(-time.Hour)))
	_, _, err = usage.Publish(t.Context(), pool, catalog, "test", boundary.Add(-2*time.Hour))
	require.NoError(t, err)
	var all []*Enforcer
	for range nodes {
		e, err := New(pool, &Config{JournalDir: t.TempDir(), MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		e.CellsEverywhere()
		require.NoError(t, e.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
		all = append(all, e)
	}
	return pool, all
}

// approach lets the month end for everybody in a moment.
func approach(ctx context.Context, pool *pgxpool.Pool, nodes []*Enforcer) error {
	err := usage.SimulateClock(ctx, pool, boundary.Add(-300*time.Millisecond))
	for _, e := range nodes {
		err = errors.Join(err, e.Flush(ctx))
	}
	return err
}

func (e *Enforcer) isPast(t time.Time) bool { return e.clock.now() > t.UnixNano() }

// months is what is stored of an account before the boundary and after it, once everything is folded.
func months(t *testing.T, pool *pgxpool.Pool, nodes []*Enforcer) (out [2]usage.Total) {
	t.Helper()
	for _, e := range nodes {
		require.NoError(t, e.Flush(t.Context()))
	}
	_, err := usage.Fold(t.Context(), pool, 100_000)
	require.NoError(t, err)
	totals, err := usage.Totals(t.Context(), pool, "acme", time.Time{})
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(totals), 2)
	require.True(t, totals[0].Ends.Equal(boundary) && totals[1].Starts.Equal(boundary))
	return [2]usage.Total(totals[:2])
}

// crossing is what callers were told around the boundary.
type crossing struct {
	told  [2]atomic.Int64 // admitted, by the month that the decision names
	taken atomic.Int64    // admitted, of callers who hear no more than yes
	full  [2]atomic.Bool  // a single unit was refused
}

func (x *crossing) sum() int64 { return x.told[0].Load() + x.told[1].Load() + x.taken.Load() }

// call spends in one of the two ways, and reports whether its caller goes on.
func (x *crossing) call(t *testing.T, m *Meter, n int64, particulars bool) bool {
	if !particulars {
		if m.Take(n) {
			x.taken.Add(n)
		} else if n == 1 && x.full[1].Load() {
			return false
		}
		return true
	}
	d, err := m.Consume(t.Context(), n)
	if err != nil || d.Reason != OK && d.Reason != QuotaExceeded {
		t.Errorf("%+v, %v", d, err)
		return false
	}
	month := 0
	if d.Terms.StartsAt.Equal(boundary) {
		month = 1
	}
	if d.Allowed {
		x.told[month].Add(n)
	} else if n == 1 {
		x.full[month].Store(true)
	}
	return !x.full[1].Load()
}

// Callers on several cores spend from the cells of two nodes while a month ends. Whether the cap was reached before or
// not: each admitted unit is counted once, in the month that its decision names, and no month has one beyond its cap.
func TestCallersOnManyCoresCrossAMonthsEndExactly(t *testing.T) {
	t.Parallel()
	const endless = 1 << 40
	for cap, before := range map[int64]int64{20_000: 20_000, 400_000: 100_000, endless: 500_000} { // units until the end comes
		pool, nodes := startBefore(t, cap, 2)
		x := &crossing{}
		var callers sync.WaitGroup
		for _, e := range nodes {
			for g := range 4 {
				callers.Go(func() {
					m := e.Meter("acme", "events")
					for i := int64(0); x.call(t, m, 1+i%3, g%2 == 0); i++ {
						if cap == endless && e.isPast(boundary.Add(300*time.Millisecond)) {
							return
						}
					}
				})
			}
		}
		require.Eventually(t, func() bool { return x.sum() >= before }, 30*time.Second, time.Millisecond)
		require.NoError(t, approach(t.Context(), pool, nodes))
		callers.Wait()
		used := false
		for _, e := range nodes {
			used = used || e.slotOf("acme", "events").cur.Load().cells().total() > 0
		}
		require.True(t, used || cap != endless, "cells were spent from") // small leases may be spent without them
		all := months(t, pool, nodes)
		require.Equal(t, x.sum(), all[0].Used+all[1].Used)
		for i := range all {
			require.Positive(t, x.told[i].Load())
			require.LessOrEqual(t, x.told[i].Load(), all[i].Used)
			require.LessOrEqual(t, all[i].Granted, cap)
		}
		switch cap {
		case 20_000:
			require.Equal(t, cap, all[0].Used)
			fallthrough
		case 400_000:
			require.Equal(t, cap, all[1].Used, "a new allowance, up to the unit")
		}
	}
}

// A month ends while units of it are reserved, at two nodes and beside callers who spend from cells. What was reserved is
// counted in it when it is settled, what was not used goes back, a refund makes room in it and nowhere else, and a stop
// returns what is left: in both months what is granted is what was used.
func TestReservationsRefundsAndReturnsAreExactOverAMonthsEnd(t *testing.T) {
	t.Parallel()
	const units, reserved, refunded = 40_000, 500, 70
	pool, nodes := startBefore(t, units, 2)
	x := &crossing{}
	var held []*Reservation
	for _, e := range nodes {
		for range 3 {
			r, err := e.Reserve(t.Context(), "acme", "events", reserved)
			require.NoError(t, err)
			held = append(held, r)
		}
	}
	var callers sync.WaitGroup
	for _, e := range nodes {
		for g := range 4 {
			callers.Go(func() {
				m := e.Meter("acme", "events")
				for i := int64(0); x.call(t, m, 1+i%3, g%2 == 0); i++ {
				}
			})
		}
	}
	require.Eventually(t, func() bool { return x.full[0].Load() }, 30*time.Second, time.Millisecond)
	early, err := held[0].Settle(t.Context(), 100) // before the end: the rest is spent by the callers
	require.NoError(t, err)
	require.True(t, early.Terms.ResetsAt.Equal(boundary))
	require.Eventually(t, func() bool { return x.sum() == units-5*reserved-100 }, 30*time.Second, time.Millisecond)
	require.NoError(t, approach(t.Context(), pool, nodes))
	require.Eventually(t, func() bool { return x.told[1].Load() > 0 && nodes[0].isPast(boundary) && nodes[1].isPast(boundary) }, 30*time.Second, time.Millisecond)
	for i, r := range held[1:] { // beside the callers of the month after
		d, err := r.Settle(t.Context(), []int64{0, reserved, 1, 499, 250}[i])
		require.NoError(t, err)
		require.True(t, d.Terms.ResetsAt.Equal(boundary), "it is of the month in which it was reserved")
	}
	callers.Wait()
	all := months(t, pool, nodes)
	require.EqualValues(t, units-5*reserved+reserved+1+499+250, all[0].Used)
	require.EqualValues(t, units, all[1].Used)
	a, err := usage.Adjust(t.Context(), pool, all[0].Key, -refunded, "test", "test", boundary)
	require.NoError(t, err)
	require.EqualValues(t, -refunded, a.Free)
	all = months(t, pool, nodes)
	require.EqualValues(t, []int64{units + refunded, units}, []int64{all[0].Ceiling, all[1].Ceiling})
	d, err := nodes[0].Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.Equal(t, QuotaExceeded, d.Reason, "the room is the ended month's")
	_, err = usage.Adjust(t.Context(), pool, all[1].Key, -refunded, "test", "test", boundary)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the nodes hear of it
		d, err := nodes[1].Consume(t.Context(), "acme", "events", refunded)
		return err == nil && d.Allowed
	}, 30*time.Second, time.Millisecond)
	for _, e := range nodes {
		d, err := e.Consume(t.Context(), "acme", "events", 1)
		require.NoError(t, err)
		require.Equal(t, QuotaExceeded, d.Reason)
		require.NoError(t, e.Stop(t.Context()))
	}
	totals, err := usage.Totals(t.Context(), pool, "acme", time.Time{})
	require.NoError(t, err)
	for i, want := range []int64{units - 5*reserved + reserved + 1 + 499 + 250, units + refunded} {
		require.Equal(t, []int64{want, want}, []int64{totals[i].Used, totals[i].Granted}, "month %d", i)
	}
}
