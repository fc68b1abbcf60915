package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

// admitted counts how many of n single calls pass at an instant.
func admitted(l *ratelimit.Limiter, rule *ratelimit.Rule, n int, now int64) int {
	passed := 0
	for range n {
		if l.Allow("account", "key", rule, 1, now).Allowed {
			passed++
		}
	}
	return passed
}

func TestTenAtTheEdgeOfASecond(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		algorithm           ratelimit.Algorithm
		before, edge, after int // of 10 calls each at 0.999 s, 1.000 s and 1.500 s
	}{
		{ratelimit.FixedWindow, 10, 10, 0},
		{ratelimit.SlidingWindow, 10, 0, 5},
		{ratelimit.TokenBucket, 10, 0, 5},
	} {
		t.Run(string(c.algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Second, Algorithm: c.algorithm})
			require.Equal(t, c.before, admitted(limiter, rule, 10, at(999*time.Millisecond)))
			require.Equal(t, c.edge, admitted(limiter, rule, 10, at(1000*time.Millisecond)))
			require.Equal(t, c.after, admitted(limiter, rule, 10, at(1500*time.Millisecond)))
		})
	}
}

func TestAnswersOfEachAlgorithm(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	type answer = ratelimit.Result
	for _, c := range []struct {
		algorithm ratelimit.Algorithm
		first     answer // 7 of 10 per second at 0.4 s
		second    answer // 7 more at 0.5 s
		third     answer // 2 at 1.2 s
	}{
		{
			ratelimit.FixedWindow,
			answer{Allowed: true, Limit: 10, Remaining: 3, Reset: 600 * ms},
			answer{Limit: 10, Remaining: 3, RetryAfter: 500 * ms, Reset: 500 * ms},
			answer{Allowed: true, Limit: 10, Remaining: 8, Reset: 800 * ms},
		},
		{
			ratelimit.SlidingWindow,
			answer{Allowed: true, Limit: 10, Remaining: 3, Reset: 1600 * ms},
			// 7 fade to 3 in the next window when 3/7 of it is left.
			answer{Limit: 10, Remaining: 3, RetryAfter: 1500*ms - 428571428, Reset: 1500 * ms},
			answer{Allowed: true, Limit: 10, Remaining: 2, Reset: 1800 * ms}, // 10 − 2 − ⌈7 × 0.8⌉
		},
		{
			ratelimit.TokenBucket,
			answer{Allowed: true, Limit: 10, Remaining: 3, Reset: 700 * ms},
			answer{Limit: 10, Remaining: 4, RetryAfter: 300 * ms, Reset: 600 * ms},
			answer{Allowed: true, Limit: 10, Remaining: 8, Reset: 200 * ms},
		},
	} {
		t.Run(string(c.algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Second, Algorithm: c.algorithm})
			require.Equal(t, c.first, limiter.Allow("account", "key", rule, 7, at(400*ms)))
			require.Equal(t, c.second, limiter.Allow("account", "key", rule, 7, at(500*ms)))
			require.Equal(t, c.third, limiter.Allow("account", "key", rule, 2, at(1200*ms)))
		})
	}
}

func TestCallsThatNeverPass(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Minute, Algorithm: algorithm})
			require.True(t, limiter.Allow("account", "key", rule, 4, 0).Allowed)
			for _, n := range []int64{11, math.MaxInt64, -1, math.MinInt64} {
				for _, key := range []string{"key", "unknown"} {
					result := limiter.Allow("account", key, rule, n, 0)
					require.False(t, result.Allowed)
					require.True(t, result.Never)
					require.Equal(t, time.Minute, result.RetryAfter)
				}
				require.EqualValues(t, 6, limiter.Allow("account", "key", rule, n, 0).Remaining)
			}
			require.Equal(t, 1, limiter.Keys(), "a call that can't pass leaves no state")
			require.EqualValues(t, 0, limiter.Allow("account", "key", rule, 6, 0).Remaining, "nor counts")

			none := newRule(t, ratelimit.Limit{Units: 0, Window: time.Second, Algorithm: algorithm})
			for _, n := range []int64{-1, 0, 1} {
				result := limiter.Allow("account", "key", none, n, 0)
				require.Equal(t, ratelimit.Result{Never: true, RetryAfter: time.Second}, result)
			}
		})
	}
}

func TestZeroUnitsIsAPeek(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 2, Window: time.Second, Algorithm: algorithm})
			require.Equal(t, ratelimit.Result{Allowed: true, Limit: 2, Remaining: 2}, limiter.Allow("a", "k", rule, 0, 0))
			require.Zero(t, limiter.Keys())
			for left := int64(2); left > 0; left-- {
				peek := limiter.Allow("a", "k", rule, 0, 0)
				require.True(t, peek.Allowed)
				require.Equal(t, left, peek.Remaining)
				require.True(t, limiter.Allow("a", "k", rule, 1, 0).Allowed)
			}
			peek := limiter.Allow("a", "k", rule, 0, 0)
			require.Equal(t, limiter.Allow("a", "k", rule, 1, 0), peek)
			require.False(t, peek.Allowed)
			require.Positive(t, peek.RetryAfter)
		})
	}
}

func TestKeysAreApart(t *testing.T) {
	t.Parallel()
	limiter := ratelimit.New(10)
	rule := newRule(t, ratelimit.Limit{Units: 1, Window: time.Second})
	for _, pair := range [][2]string{{"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"c", "ab"}, {"a\x00b", "c"}, {"a", "\x00bc"}} {
		require.True(t, limiter.Allow(pair[0], pair[1], rule, 1, 0).Allowed, "%q", pair)
		require.False(t, limiter.Allow(pair[0], pair[1], rule, 1, 0).Allowed, "%q", pair)
	}
	require.Equal(t, 7, limiter.Keys())
}

func TestRetryAfterSeconds(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int{
		math.MinInt64: 1, -time.Hour: 1, 0: 1, 1: 1, time.Millisecond: 1, 999 * time.Millisecond: 1, time.Second: 1,
		time.Second + 1: 2, 1001 * time.Millisecond: 2, 2 * time.Second: 2, time.Hour: 3600, math.MaxInt64: 9223372037,
	} {
		require.Equal(t, want, ratelimit.RetryAfterSeconds(d), d)
	}
}

func TestNewRuleNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := ratelimit.NewRule(ratelimit.Limit{Units: -1, Window: time.Microsecond, Algorithm: "leaky", Burst: 5})
	require.ErrorContains(t, err, "-1 units")
	require.ErrorContains(t, err, "1µs")
	require.ErrorContains(t, err, `"leaky"`)
	require.ErrorContains(t, err, "burst of 5 units: only token_bucket")
	for _, limit := range []ratelimit.Limit{
		{Units: 1e9 + 1, Window: time.Second},
		{Units: 1, Window: 24*time.Hour + 1},
		{Units: 1},
		{Units: 1, Window: time.Second, Algorithm: ratelimit.TokenBucket, Burst: 1e9 + 1},
		{Units: 1, Window: time.Second, Algorithm: ratelimit.TokenBucket, Burst: -1},
	} {
		_, err := ratelimit.NewRule(limit)
		require.Error(t, err, "%+v", limit)
	}
	for _, algorithm := range algorithms {
		for _, window := range []time.Duration{time.Millisecond, 24 * time.Hour} {
			for _, units := range []int64{0, 1, 1e9} {
				rule := newRule(t, ratelimit.Limit{Units: units, Window: window, Algorithm: algorithm})
				limiter := ratelimit.New(1)
				require.Equal(t, units > 0, limiter.Allow("a", "k", rule, max(units, 1), math.MaxInt64).Allowed)
				require.False(t, limiter.Allow("a", "k", rule, 1, math.MaxInt64).Allowed)
			}
		}
	}
}
