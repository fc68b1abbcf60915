package ratelimit_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/ratelimit"
)

// A model keeps every admitted call and decides by adding them up in fractions. It is as slow as it is plain.
type model interface {
	passes(n, t int64) bool
	admit(n, t int64)
}

type call struct{ n, t int64 }

type windows struct {
	limit, window int64
	sliding       bool
	calls         []call
}

func (m *windows) admit(n, t int64) { m.calls = append(m.calls, call{n, t}) }

func (m *windows) passes(n, t int64) bool {
	k, into := t/m.window, t%m.window
	sum := new(big.Rat).SetInt64(n)
	for _, c := range m.calls {
		switch k - c.t/m.window {
		case 0:
			sum.Add(sum, new(big.Rat).SetInt64(c.n))
		case 1:
			if m.sliding {
				left := big.NewRat(m.window-into, m.window)
				sum.Add(sum, left.Mul(left, new(big.Rat).SetInt64(c.n)))
			}
		}
	}
	return sum.Cmp(new(big.Rat).SetInt64(m.limit)) <= 0
}

// leaky is the token bucket as its textbook has it: tokens, refilled continuously.
type leaky struct {
	rate, burst, tokens *big.Rat
	last                int64
}

func newLeaky(limit, window, burst int64) *leaky {
	b := new(big.Rat).SetInt64(burst)
	return &leaky{rate: big.NewRat(limit, window), burst: b, tokens: b}
}

func (m *leaky) at(t int64) *big.Rat {
	sum := new(big.Rat).SetInt64(t - m.last)
	sum.Mul(sum, m.rate).Add(sum, m.tokens)
	if sum.Cmp(m.burst) > 0 {
		return m.burst
	}
	return sum
}

func (m *leaky) passes(n, t int64) bool { return m.at(t).Cmp(new(big.Rat).SetInt64(n)) >= 0 }

func (m *leaky) admit(n, t int64) {
	m.tokens = new(big.Rat).Sub(m.at(t), new(big.Rat).SetInt64(n))
	m.last = t
}

func drawLimit(t *rapid.T, algorithm ratelimit.Algorithm) ratelimit.Limit {
	limit := ratelimit.Limit{Algorithm: algorithm}
	limit.Window = rapid.OneOf(
		rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute, 24 * time.Hour}),
		rapid.Map(rapid.Int64Range(1e6, 864e11), func(d int64) time.Duration { return time.Duration(d) }),
	).Draw(t, "window")
	limit.Units = rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1e9)).Draw(t, "units")
	return limit
}

// drawStep moves time: not at all, a little, by up to three windows, or to just before, onto or after an edge or the
// instant that the last refusal named.
func drawStep(t *rapid.T, now, window int64, wait time.Duration) int64 {
	edge := (now/window + 1) * window
	switch rapid.SampledFrom([]string{"stay", "creep", "jump", "edge", "retry"}).Draw(t, "step") {
	case "creep":
		return now + rapid.Int64Range(0, window/50+1).Draw(t, "by")
	case "jump":
		return now + rapid.Int64Range(0, 3*window).Draw(t, "by")
	case "retry":
		edge = now + int64(wait)
		fallthrough
	case "edge":
		return max(now, edge+rapid.Int64Range(-1, 1).Draw(t, "off"))
	default:
		return now
	}
}

func checkAgainst(t *rapid.T, limit ratelimit.Limit, most int64, m model) {
	rule, err := ratelimit.NewRule(limit)
	require.NoError(t, err)
	limiter := ratelimit.New(10)
	now, wait := rapid.Int64Range(0, 1e18).Draw(t, "start"), time.Duration(0)
	for range rapid.IntRange(1, 40).Draw(t, "calls") {
		now = drawStep(t, now, int64(limit.Window), wait)
		n := rapid.OneOf(rapid.Int64Range(1, min(most, 3)), rapid.Int64Range(1, most)).Draw(t, "n")
		result := limiter.Allow("account", "key", rule, n, now)
		require.Equal(t, m.passes(n, now), result.Allowed, "%d at %d: %+v", n, now, result)
		require.Equal(t, most, result.Limit)
		wait = result.RetryAfter
		if result.Allowed {
			m.admit(n, now)
			require.Zero(t, result.RetryAfter)
		} else {
			require.Positive(t, result.RetryAfter)
			require.False(t, m.passes(n, now+int64(wait)-1), "passes before %s", wait)
			require.True(t, m.passes(n, now+int64(wait)), "does not pass after %s", wait)
		}
		require.False(t, m.passes(result.Remaining+1, now), "remaining is too low")
		require.True(t, result.Remaining == 0 || m.passes(result.Remaining, now), "remaining is too high")
		require.True(t, m.passes(most, now+int64(result.Reset)), "not whole after %s", result.Reset)
	}
}

func TestFixedWindowDecidesLikeTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, ratelimit.FixedWindow)
		checkAgainst(t, limit, limit.Units, &windows{limit: limit.Units, window: int64(limit.Window)})
	})
}

func TestSlidingWindowDecidesLikeTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, ratelimit.SlidingWindow)
		checkAgainst(t, limit, limit.Units, &windows{limit: limit.Units, window: int64(limit.Window), sliding: true})
	})
}

// Where units and window have a simple ratio, positions are exact: the bucket decides as the textbook's does.
func TestTokenBucketDecidesLikeTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, ratelimit.TokenBucket)
		limit.Window = limit.Window.Round(time.Millisecond)
		limit.Units = rapid.SampledFrom([]int64{1, 2, 3, 7, 10, 60, 100, 128, 600, 3000, 1_000_000}).Draw(t, "units")
		limit.Burst = rapid.Int64Range(1, 2000).Draw(t, "burst")
		if limit.Units > 128 { // so that units and window share the factor
			limit.Window = max(limit.Window.Round(time.Second), time.Second)
		}
		checkAgainst(t, limit, limit.Burst, newLeaky(limit.Units, int64(limit.Window), limit.Burst))
	})
}

// With any ratio the clock of the bucket is rounded down, by less than a nanosecond for a bucket that refills within
// its window. So any span admits what it should if it were a nanosecond longer, and nothing is refused that the
// textbook would have admitted a nanosecond before.
func TestTokenBucketIsWithinANanosecondOfTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, ratelimit.TokenBucket)
		limit.Burst = rapid.Int64Range(1, limit.Units).Draw(t, "burst")
		rule, err := ratelimit.NewRule(limit)
		require.NoError(t, err)
		limiter, exact := ratelimit.New(10), newLeaky(limit.Units, int64(limit.Window), limit.Burst)
		now, wait := rapid.Int64Range(0, 1e18).Draw(t, "start"), time.Duration(0)
		var calls []call
		for range rapid.IntRange(1, 40).Draw(t, "calls") {
			now = drawStep(t, now, int64(limit.Window), wait)
			n := rapid.OneOf(rapid.Int64Range(1, min(limit.Burst, 3)), rapid.Int64Range(1, limit.Burst)).Draw(t, "n")
			result := limiter.Allow("account", "key", rule, n, now)
			wait = result.RetryAfter
			if !result.Allowed {
				require.False(t, exact.passes(n, now-1), "%d refused at %d: %+v", n, now, result)
				continue
			}
			exact.admit(n, now)
			calls = append(calls, call{n, now})
			requireSpans(t, calls, limit)
		}
	})
}

// requireSpans checks the promise for every span that ends with the last call.
func requireSpans(t *rapid.T, calls []call, limit ratelimit.Limit) {
	sum, last := int64(0), calls[len(calls)-1].t
	for i := len(calls) - 1; i >= 0; i-- {
		sum += calls[i].n
		most := new(big.Int).Mul(big.NewInt(last-calls[i].t+1), big.NewInt(limit.Units))
		most.Div(most, big.NewInt(int64(limit.Window))).Add(most, big.NewInt(limit.Burst))
		require.LessOrEqual(t, big.NewInt(sum).Cmp(most), 0, "%d units within %d ns", sum, last-calls[i].t)
	}
}

func TestTokenBucketRetryIsExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, ratelimit.TokenBucket)
		limit.Burst = rapid.Int64Range(1, 1e9).Draw(t, "burst")
		rule, err := ratelimit.NewRule(limit)
		require.NoError(t, err)
		now := rapid.Int64Range(0, 1e17).Draw(t, "now")
		first := rapid.Int64Range(1, limit.Burst).Draw(t, "first")
		second := rapid.Int64Range(1, limit.Burst).Draw(t, "second")
		try := func(wait time.Duration) ratelimit.Result {
			limiter := ratelimit.New(10)
			require.True(t, limiter.Allow("account", "key", rule, first, now).Allowed)
			return limiter.Allow("account", "key", rule, second, now+int64(wait))
		}
		result := try(0)
		require.Equal(t, first+second <= limit.Burst, result.Allowed)
		if !result.Allowed && result.RetryAfter < 1e18 {
			require.False(t, try(result.RetryAfter-1).Allowed)
			require.True(t, try(result.RetryAfter).Allowed)
		}
	})
}
