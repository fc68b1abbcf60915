package ratelimit_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

// together runs the work in so many goroutines that start at one moment, and returns the sum of what they return.
func together(workers int, work func(worker int) int64) int64 {
	var sum atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range workers {
		wg.Go(func() {
			<-start
			sum.Add(work(i))
		})
	}
	close(start)
	wg.Wait()
	return sum.Load()
}

func allowedUnits(l *ratelimit.Limiter, rule *ratelimit.Rule, n, now int64) int64 {
	if l.Allow("account", "key", rule, n, now).Allowed {
		return n
	}
	return 0
}

func TestExactlyTheLimitPassesConcurrently(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			rule := newRule(t, ratelimit.Limit{Units: 50, Window: time.Second, Algorithm: algorithm})
			for range 100 { // a new key each time: its creation is part of the race
				limiter := ratelimit.New(1)
				require.EqualValues(t, 50, together(100, func(int) int64 { return allowedUnits(limiter, rule, 1, 0) }))
			}
		})
	}
}

func TestExactlyTheLimitPassesInEveryWindow(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(1)
			rule := newRule(t, ratelimit.Limit{Units: 20, Window: time.Second, Algorithm: algorithm})
			for round := range int64(200) {
				now := round * 2 * at(time.Second) // one window is left out: the limit is whole again
				require.EqualValues(t, 20, together(30, func(int) int64 { return allowedUnits(limiter, rule, 1, now) }))
			}
		})
	}
}

// One unit is left, some ask for a hundred and some for one: the big calls are refused and disturb nobody.
func TestBigCallsThatAreRefusedDisturbNoSmallOnes(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			rule := newRule(t, ratelimit.Limit{Units: 150, Window: time.Second, Algorithm: algorithm})
			for range 100 {
				limiter := ratelimit.New(1)
				require.True(t, limiter.Allow("account", "key", rule, 100, 0).Allowed)
				require.EqualValues(t, 50, together(60, func(i int) int64 {
					if i%6 == 0 {
						return allowedUnits(limiter, rule, 100, 0)
					}
					return allowedUnits(limiter, rule, 1, 0)
				}))
			}
		})
	}
}

// Goroutines go over window edges at their own pace, by one clock; some calls are overtaken. Afterwards no window has
// admitted more than the limit, and as the callers want more than there is, none less.
func TestNoWindowAdmitsMoreWhileTimeRuns(t *testing.T) {
	t.Parallel()
	const (
		limit, edges = 40, 300
		step         = int64(time.Second) / 8
	)
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter, clock := ratelimit.New(1), new(atomic.Int64)
			rule := newRule(t, ratelimit.Limit{Units: limit, Window: time.Second, Algorithm: algorithm})
			total := together(6, func(int) int64 {
				passed := int64(0)
				for {
					now := clock.Load()
					if now >= edges*int64(time.Second) {
						return passed
					}
					got := allowedUnits(limiter, rule, 1, now)
					passed += got
					if got == 0 { // this instant is used up
						clock.CompareAndSwap(now, now+step)
					}
				}
			})
			switch algorithm {
			case ratelimit.FixedWindow:
				require.EqualValues(t, limit*edges, total)
			case ratelimit.TokenBucket:
				require.EqualValues(t, limit+(edges*8-1)*limit/8, total)
			default: // the same calls by one goroutine
				alone, want := ratelimit.New(1), int64(0)
				for now := int64(0); now < edges*int64(time.Second); now += step {
					for allowedUnits(alone, rule, 1, now) > 0 {
						want++
					}
				}
				require.Equal(t, want, total)
			}
		})
	}
}

// The shape of a key changes under the calls, again and again: nothing is minted, nothing lost.
func TestExactlyTheLimitPassesWhileTheRuleChanges(t *testing.T) {
	t.Parallel()
	var rules []*ratelimit.Rule
	for _, algorithm := range algorithms {
		for _, window := range []time.Duration{time.Second, time.Minute} {
			rules = append(rules, newRule(t, ratelimit.Limit{Units: 100, Window: window, Algorithm: algorithm}))
		}
	}
	for range 50 {
		limiter := ratelimit.New(1)
		require.EqualValues(t, 100, together(8, func(i int) int64 {
			passed := int64(0)
			for call := range 100 {
				passed += allowedUnits(limiter, rules[(i+call)%len(rules)], 1, 0)
			}
			return passed
		}))
	}
}

// Keys are forgotten and come back while they are called.
func TestExactlyTheLimitPassesWhileKeysAreForgotten(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			const keys, limit = 200, 5
			limiter := ratelimit.New(0)
			rule := newRule(t, ratelimit.Limit{Units: limit, Window: time.Second, Algorithm: algorithm})
			names := make([]string, keys)
			for i := range names {
				names[i] = fmt.Sprint("key", i)
			}
			for round := range int64(20) {
				now := round * at(10*time.Second) // everything is idle when a round begins
				forgotten := new(atomic.Int64)
				passed := together(4, func(worker int) int64 {
					passed := int64(0)
					for i := range keys * limit * 2 {
						if worker == 0 && i%8 == 0 {
							forgotten.Add(int64(limiter.Sweep(now)))
						}
						if limiter.Allow("account", names[(i+worker*7)%keys], rule, 1, now).Allowed {
							passed++
						}
					}
					return passed
				})
				require.EqualValues(t, keys*limit, passed)
				require.Equal(t, keys, limiter.Keys())
			}
		})
	}
}

func TestAKnownKeyAllocatesNothing(t *testing.T) { // not parallel: it counts allocations
	for _, algorithm := range algorithms {
		limiter := ratelimit.New(0)
		rule := newRule(t, ratelimit.Limit{Units: 50, Window: time.Second, Algorithm: algorithm})
		limiter.SetNodes(2)
		limiter.Allow("account", "key", rule, 1, 0)
		now := int64(0)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			now += at(10 * time.Millisecond) // admitted, refused, and over edges
			limiter.Allow("account", "key", rule, 1, now)
			limiter.Allow("account", "key", rule, 0, now)
			limiter.Allow("account", "key", rule, 100, now)
		}), algorithm)
	}
}
