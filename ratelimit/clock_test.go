package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

func TestClockSetBackRefillsNobodyAndLocksNobodyOut(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		for back, still := range map[time.Duration]time.Duration{
			2 * time.Second: 2 * time.Second, // waited out: after one second it is no more than a late call
			time.Minute:     time.Second,
			time.Hour:       time.Second,
		} {
			t.Run(string(algorithm)+"/"+back.String(), func(t *testing.T) {
				t.Parallel()
				limiter := ratelimit.New(10)
				rule := newRule(t, ratelimit.Limit{Units: 10, Window: 10 * time.Second, Algorithm: algorithm})
				now := at(2*time.Hour + time.Second)
				require.Equal(t, 10, admitted(limiter, rule, 20, now))
				require.True(t, limiter.Allow("account", "half", rule, 5, now).Allowed)
				now -= at(back)
				require.Zero(t, admitted(limiter, rule, 20, now), "refilled")
				require.EqualValues(t, 5, limiter.Allow("account", "half", rule, 0, now).Remaining)
				require.True(t, limiter.Allow("account", "half", rule, 1, now).Allowed, "locked out")
				require.True(t, limiter.Allow("account", "new", rule, 1, now).Allowed, "locked out")

				// From here on time goes on as for those whose clock just stood still for a moment.
				other, start, step := ratelimit.New(10), now+at(back), at(100*time.Millisecond)
				admitted(other, rule, 20, start)
				passed := 0
				for elapsed := step; elapsed <= at(30*time.Second); elapsed += step {
					got := admitted(limiter, rule, 1, now+elapsed)
					require.Equal(t, admitted(other, rule, 1, start+max(0, elapsed-at(still))), got, elapsed)
					passed += got
				}
				require.Greater(t, passed, 10)
			})
		}
	}
}

func TestClockThatStepsBackAgainAndAgainMintsNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 10, Window: time.Minute, Algorithm: algorithm})
			start := at(100 * time.Hour)
			passed := admitted(limiter, rule, 20, start)
			for i := range 5000 { // 50 s in all, during which the clock is set back every two seconds
				passed += admitted(limiter, rule, 1, start-at(time.Hour)*int64(i/200)+at(10*time.Millisecond)*int64(i))
			}
			require.LessOrEqual(t, passed, 20)
			require.GreaterOrEqual(t, passed, 10)
		})
	}
}

// A call that was overtaken between reading the clock and counting is no step of the clock.
func TestALateCallChangesNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		for _, late := range []time.Duration{1, time.Millisecond, 900 * time.Millisecond, 5 * time.Second, time.Hour} {
			t.Run(string(algorithm)+"/"+late.String(), func(t *testing.T) {
				t.Parallel()
				limiter := ratelimit.New(10)
				rule := newRule(t, ratelimit.Limit{Units: 100, Window: time.Second, Algorithm: algorithm})
				edge := at(3 * time.Hour)
				passed := admitted(limiter, rule, 200, edge)
				require.Equal(t, 100, passed)
				for range 200 { // late and punctual calls in turn, at one instant
					passed += admitted(limiter, rule, 1, edge-at(late))
					passed += admitted(limiter, rule, 1, edge)
				}
				require.Equal(t, 100, passed)
				require.Equal(t, 100, admitted(limiter, rule, 200, edge+at(3*time.Second)))
			})
		}
	}
}

// A call that counts in the window of those that overtook it leaves that window as it is.
func TestALateCallCountsWhereTheOthersAre(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 100, Window: time.Second, Algorithm: algorithm})
			edge := at(3 * time.Hour)
			require.Equal(t, 50, admitted(limiter, rule, 50, edge))
			require.Equal(t, 20, admitted(limiter, rule, 20, edge-at(time.Millisecond)))
			require.Equal(t, 30, admitted(limiter, rule, 100, edge))
			refused := limiter.Allow("account", "key", rule, 1, edge-at(time.Millisecond))
			require.False(t, refused.Allowed)
			require.True(t, limiter.Allow("account", "key", rule, 1, edge-at(time.Millisecond)+int64(refused.RetryAfter)).Allowed)
		})
	}
}

// Calls that come late all the time are no step either, as long as others are punctual.
func TestManyLateCallsAreNoStep(t *testing.T) {
	t.Parallel()
	limiter := ratelimit.New(10)
	rule := newRule(t, ratelimit.Limit{Units: 10, Window: 10 * time.Minute, Algorithm: ratelimit.TokenBucket})
	now := at(3 * time.Hour)
	require.Equal(t, 10, admitted(limiter, rule, 10, now))
	for range 500 {
		now += at(100 * time.Millisecond)
		require.Zero(t, admitted(limiter, rule, 1, now-at(time.Hour)))
		require.Zero(t, admitted(limiter, rule, 1, now))
	}
}
