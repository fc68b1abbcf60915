package enforcer_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// Case 29 of docs/cases: a thousand callers of an account that nobody has seen.
func TestCase29AColdStartIsOneQuery(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 1_000_000)
	e := start(t, pool, enforcer.Config{MaxWait: 10 * time.Second})
	before := e.Stats()
	var wg sync.WaitGroup
	ready := make(chan struct{})
	var admitted atomic.Int64
	for range 1000 {
		wg.Go(func() {
			<-ready
			if d, err := e.Consume(t.Context(), "acme", "events", 1); err == nil && d.Allowed {
				admitted.Add(1)
			}
		})
	}
	close(ready)
	wg.Wait()
	after := e.Stats()
	require.EqualValues(t, 1000, admitted.Load())
	require.EqualValues(t, 1, after.Contacts-before.Contacts)
	require.LessOrEqual(t, after.Exchanges-before.Exchanges, int64(1), "a lease that is half spent is extended in the background")
}

func TestRefusalsOfASpentCapCostNoDatabaseCall(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 10)
	e := start(t, pool, enforcer.Config{})
	m := e.Meter("acme", "events")
	for m.Take(1) {
	}
	require.Equal(t, enforcer.QuotaExceeded, consume(t, e, "acme", "events", 1).Reason)
	before, began := e.Stats().Exchanges, time.Now()
	calls := 1_000_000
	if testing.Short() {
		calls = 100_000
	}
	for i := range calls {
		if i%2 == 0 {
			require.False(t, m.Take(1))
			continue
		}
		d, err := e.Consume(t.Context(), "acme", "events", 3)
		require.NoError(t, err)
		require.Equal(t, enforcer.QuotaExceeded, d.Reason)
	}
	took := time.Since(began)
	asks := e.Stats().Exchanges - before
	t.Logf("%d refusals in %s: %d round trips", calls, took.Round(time.Millisecond), asks)
	require.LessOrEqual(t, float64(asks), 2*(took.Seconds()+1))
}

// Case 22 of docs/cases: nothing wraps around.
func TestCase22CapsAndCostsAtTheEdges(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int64{0, 1} {
		pool := schematest.Pool(t)
		publish(t, pool, capacity)
		e := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second})
		require.Equal(t, capacity > 0, consume(t, e, "acme", "events", 0).Allowed, "a peek")
		for _, n := range []int64{2, math.MaxInt64, 1 << 62, 1<<31 - 1, 1 << 31, 1 << 32} {
			d := consume(t, e, "acme", "events", n)
			require.Equal(t, enforcer.QuotaExceeded, d.Reason, "%d of %d", n, capacity)
			require.Equal(t, capacity, d.Remaining)
		}
		for _, n := range []int64{-1, math.MinInt64} {
			_, err := e.Consume(t.Context(), "acme", "events", n)
			require.ErrorIs(t, err, enforcer.ErrInvalidUnits)
			require.False(t, e.Meter("acme", "events").Take(n))
		}
		require.Equal(t, capacity > 0, consume(t, e, "acme", "events", 1).Allowed)
		require.False(t, consume(t, e, "acme", "events", 1).Allowed)
		require.False(t, consume(t, e, "acme", "events", 0).Allowed, "a peek at what is spent")
	}
	pool := schematest.Pool(t)
	e := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second, Plans: catalog(t, openPlans)})
	require.True(t, consume(t, e, "acme", "events", 1<<40).Allowed)
	require.True(t, consume(t, e, "acme", "events", 1<<31-1).Allowed)
	d := consume(t, e, "acme", "events", 1)
	require.True(t, d.Unlimited)
	require.True(t, d.Allowed)
	require.NoError(t, e.Flush(t.Context()))
	fold(t, pool)
	require.EqualValues(t, int64(1<<40+1<<31), stored(t, pool, "acme"))
}

// Case 21 of docs/cases: a big call that does not pass keeps no small one from it.
func TestCase21OneUnitLeftGoesToWhoAsksForOne(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 1)
	e := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second})
	var wg sync.WaitGroup
	var small enforcer.Decision
	wg.Go(func() {
		d, err := e.Consume(t.Context(), "acme", "events", 100)
		if err != nil || d.Reason != enforcer.QuotaExceeded {
			t.Errorf("a call for 100: %v %v", d, err)
		}
	})
	wg.Go(func() { small, _ = e.Consume(t.Context(), "acme", "events", 1) })
	wg.Wait()
	require.True(t, small.Allowed)
}

// Case 23 of docs/cases: refused calls leave no trace.
func TestCase23TenRefusedCallsThenOneMoreUnit(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 5)
	e := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second})
	require.True(t, consume(t, e, "acme", "events", 5).Allowed)
	for range 10 {
		require.False(t, consume(t, e, "acme", "events", 1).Allowed)
	}
	id, err := usage.FindAccount(t.Context(), pool, "acme", false, time.Time{})
	require.NoError(t, err)
	six := int64(6)
	require.NoError(t, usage.SetOverride(t.Context(), pool, id, "events", usage.Override{Included: &six, Reason: "one more", Actor: "test"}, time.Now()))
	require.Eventually(t, func() bool { return consume(t, e, "acme", "events", 1).Allowed }, 5*time.Second, time.Millisecond)
	require.False(t, consume(t, e, "acme", "events", 1).Allowed)
}

func TestHotCallsAllocateNothing(t *testing.T) {
	pool := schematest.Pool(t)
	e := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second, Plans: catalog(t, openPlans)})
	ctx := context.Background()
	m, spent := e.Meter("acme", "events"), e.Meter("acme", "tokens")
	require.True(t, m.Take(1))
	for spent.Take(1) {
	}
	for name, f := range map[string]func(){
		"Take":             func() { m.Take(1) },
		"Take, refused":    func() { spent.Take(1) },
		"Meter.Consume":    func() { _, _ = m.Consume(ctx, 1) },
		"Consume by names": func() { _, _ = e.Consume(ctx, "acme", "events", 1) },
		"Allow, known key": func() { _, _ = e.Allow(ctx, "acme", "") },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, f), name)
	}
}

func TestOnceKeysCountOnce(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 100)
	a, b := start(t, pool, enforcer.Config{MaxWait: 5 * time.Second}), start(t, pool, enforcer.Config{MaxWait: 5 * time.Second})
	require.True(t, consume(t, a, "acme", "events", 10).Allowed)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			e := []*enforcer.Enforcer{a, b}[i%2]
			d, err := e.ConsumeOnce(t.Context(), "acme", "events", 60, "order 17")
			if err != nil || !d.Allowed {
				t.Errorf("%+v %v", d, err)
			}
		})
	}
	wg.Wait()
	_, err := a.ConsumeOnce(t.Context(), "acme", "events", 61, "order 17")
	require.ErrorIs(t, err, enforcer.ErrKeyConflict)
	d, err := b.ConsumeOnce(t.Context(), "acme", "events", 31, "order 18")
	require.NoError(t, err)
	require.Equal(t, enforcer.QuotaExceeded, d.Reason)
	require.EqualValues(t, 30, d.Remaining)
	d, err = b.ConsumeOnce(t.Context(), "acme", "events", 30, "order 18")
	require.NoError(t, err)
	require.True(t, d.Allowed, "a refused call left no key, and the leases beside it were called back")
	require.False(t, consume(t, a, "acme", "events", 1).Allowed)
	for _, key := range []string{"", "a\nb", string(make([]byte, 300))} {
		_, err = a.ConsumeOnce(t.Context(), "acme", "events", 1, key)
		require.ErrorIs(t, err, enforcer.ErrInvalidKey)
	}
	require.NoError(t, a.Flush(t.Context()))
	fold(t, pool)
	require.EqualValues(t, 100, stored(t, pool, "acme"))
}
