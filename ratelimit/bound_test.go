package ratelimit_test

import (
	"fmt"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

func TestAMillionRandomKeysStayUnderTheDocumentedMemory(t *testing.T) { // not parallel: it measures the heap
	const keys, perKey = 1_000_000, 100 // bytes, the map's share included
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	limiter := ratelimit.New(keys)
	rule := newRule(t, ratelimit.Limit{Units: 2, Window: time.Minute, Algorithm: ratelimit.SlidingWindow})
	passed := 0
	for i := range keys + keys/4 { // more than there is room for
		if limiter.Allow("", "2001:db8::"+strconv.Itoa(i), rule, 1, 0).Allowed {
			passed++
		}
	}
	used := heap() - before
	t.Logf("%d bytes per key", used/keys)
	require.Less(t, used, int64(keys*perKey))
	require.Equal(t, keys, limiter.Keys())
	require.EqualValues(t, keys/4, limiter.Crowded())
	require.Equal(t, keys+2*16, passed, "every key with room has its limit, the others share that of 16")

	for range 64 {
		limiter.Sweep(at(time.Hour))
	}
	require.Zero(t, limiter.Keys())
	require.Less(t, heap()-before, int64(keys*perKey/5), "what is swept is given back")
	runtime.KeepAlive(limiter)
}

func TestAFloodResetsNobodyAndStopsNoOtherCaller(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(16_000)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Minute, Algorithm: algorithm})
			require.Equal(t, 10, admitted(limiter, rule, 20, 0))
			require.True(t, limiter.Allow("half", "key", rule, 5, 0).Allowed)
			for i := range 25_000 {
				limiter.Allow("", fmt.Sprint("address", i), rule, 1, 0)
			}
			require.Equal(t, 16_000, limiter.Keys())
			require.Zero(t, admitted(limiter, rule, 20, 0), "reset by the flood")
			require.EqualValues(t, 5, limiter.Allow("half", "key", rule, 0, 0).Remaining)

			// Callers who come during the flood share 250 states, of which the flood has sixteen.
			served := 0
			for i := range 50 {
				if limiter.Allow(fmt.Sprint("newcomer", i), "key", rule, 1, 0).Allowed {
					served++
				}
			}
			require.Greater(t, served, 30)

			// They don't escape the limit when there is room again, and have their own when that time is over.
			late := limiter.Allow("newcomer", "key", rule, 10, at(59*time.Second))
			for range 64 {
				limiter.Sweep(at(59 * time.Second))
			}
			require.False(t, late.Allowed && limiter.Allow("newcomer", "key", rule, 10, at(59*time.Second)).Allowed)
			for range 64 {
				limiter.Sweep(at(time.Hour))
			}
			require.Zero(t, limiter.Keys())
			require.True(t, limiter.Allow("newcomer", "key", rule, 10, at(time.Hour)).Allowed)
			require.Equal(t, 1, limiter.Keys())
		})
	}
}

func TestANewKeyFindsTheRoomOfIdleOnesWithoutASweep(t *testing.T) {
	t.Parallel()
	limiter := ratelimit.New(1000)
	rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Second})
	now := int64(0)
	for i := range 20_000 {
		limiter.Allow("account", strconv.Itoa(i), rule, 1, now)
		now += at(10 * time.Millisecond)
		require.LessOrEqual(t, limiter.Keys(), 1000)
	}
	require.Less(t, limiter.Crowded(), int64(1000), "300 keys are in use at any time: there is room")
}

func TestAKeyThatSharedAStateStartsWithWhatItUsed(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(1)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Hour, Algorithm: algorithm})
			short := newRule(t, ratelimit.Limit{Units: 1, Window: time.Second, Algorithm: algorithm})
			require.True(t, limiter.Allow("first", "key", short, 1, 0).Allowed)
			require.True(t, limiter.Allow("account", "key", rule, 10, 0).Allowed)
			require.EqualValues(t, 1, limiter.Crowded())
			now := at(10 * time.Second)
			for range 64 {
				limiter.Sweep(now)
			}
			require.Zero(t, limiter.Keys())
			require.False(t, limiter.Allow("account", "key", rule, 10, now).Allowed, "a second allowance")
			require.Equal(t, 1, limiter.Keys(), "but now it has its own")
			require.EqualValues(t, 1, limiter.Crowded())
		})
	}
}

func TestSweepLeavesWhatIsInUse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm ratelimit.Algorithm
		idle      time.Duration // when a key used once at 0.5 s is whole again
	}{
		{ratelimit.FixedWindow, 10 * time.Second},
		{ratelimit.SlidingWindow, 20 * time.Second},
		{ratelimit.TokenBucket, 1500 * time.Millisecond},
	} {
		t.Run(string(c.algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(0)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: 10 * time.Second, Algorithm: c.algorithm})
			require.Equal(t, at(c.idle), at(500*time.Millisecond)+int64(limiter.Allow("a", "k", rule, 1, at(500*time.Millisecond)).Reset))
			sweep := func(now time.Duration) (forgotten int) {
				for range 64 {
					forgotten += limiter.Sweep(at(now))
				}
				return forgotten
			}
			const grace = 2 * time.Second // for calls that are still on their way
			require.Zero(t, sweep(c.idle+grace-1))
			require.Equal(t, 1, sweep(c.idle+grace))
		})
	}
}
