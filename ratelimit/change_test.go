package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/ratelimit"
)

func TestALimitIsSharedByTheNodes(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				units int64
				nodes int
				want  int
			}{{100, 1, 100}, {100, 2, 50}, {100, 3, 34}, {100, 100, 1}, {100, 1000, 1}, {1, 7, 1}, {100, 0, 100}, {100, -5, 100}, {0, 3, 0}} {
				limiter := ratelimit.New(10)
				limiter.SetNodes(c.nodes)
				rule := newRule(t, ratelimit.Limit{Units: c.units, Window: time.Second, Algorithm: algorithm})
				require.Equal(t, c.want, admitted(limiter, rule, 200, 0), "%+v", c)
				each := newRule(t, ratelimit.Limit{Units: c.units, Window: time.Second, Algorithm: algorithm, PerNode: true})
				require.EqualValues(t, c.units, limiter.Allow("account", "other", each, 0, 0).Limit, "%+v", c)
			}
		})
	}
}

// A cluster admits at least the limit and at most one unit per node more.
func TestSharesAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		units := rapid.Int64Range(1, 1e9).Draw(t, "units")
		nodes := rapid.IntRange(1, 1000).Draw(t, "nodes")
		limiter := ratelimit.New(10)
		limiter.SetNodes(nodes)
		rule, err := ratelimit.NewRule(ratelimit.Limit{Units: units, Window: time.Second})
		require.NoError(t, err)
		total := limiter.Allow("a", "k", rule, 0, 0).Limit * int64(nodes)
		require.GreaterOrEqual(t, total, units)
		require.Less(t, total, units+int64(nodes))
	})
}

func TestAChangedNumberOfNodesAppliesAtOnceAndMintsNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 100, Window: time.Hour, Algorithm: algorithm})
			bucket := algorithm == ratelimit.TokenBucket
			require.Equal(t, 30, admitted(limiter, rule, 30, 0))
			limiter.SetNodes(2)
			if bucket {
				require.Equal(t, 35, admitted(limiter, rule, 100, 0), "of 50, as full as before")
			} else {
				require.Equal(t, 20, admitted(limiter, rule, 100, 0), "of 50")
			}
			for _, nodes := range []int{4, 3, 2, 7, 2} {
				limiter.SetNodes(nodes)
				require.Zero(t, admitted(limiter, rule, 100, 0), nodes)
			}
			limiter.SetNodes(1)
			if bucket {
				require.Zero(t, admitted(limiter, rule, 100, 0), "an empty bucket stays empty")
				require.Equal(t, 50, admitted(limiter, rule, 100, at(30*time.Minute)), "but fills at the new rate")
			} else {
				require.Equal(t, 50, admitted(limiter, rule, 100, 0), "of 100")
			}
		})
	}
}

// A number of nodes that flaps neither mints nor eats: a bucket that was half full stays so.
func TestAFlappingNumberOfNodesIsNeutral(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			rule := newRule(t, ratelimit.Limit{Units: 999_983, Window: time.Hour, Algorithm: algorithm})
			want := limiter.Allow("account", "key", rule, 400_000, 0)
			require.True(t, want.Allowed)
			for i := range int64(1000) {
				nodes := 1 + i%7
				limiter.SetNodes(int(nodes))
				refused := limiter.Allow("account", "key", rule, (999_983+nodes-1)/nodes, 0)
				require.False(t, refused.Allowed || refused.Never)
			}
			limiter.SetNodes(1)
			got := limiter.Allow("account", "key", rule, 0, 0).Remaining
			require.Contains(t, []int64{want.Remaining, want.Remaining - 1}, got, "a thousand roundings are less than a unit")
		})
	}
}

func TestAChangedPlanAppliesAtOnceAndMintsNothing(t *testing.T) {
	t.Parallel()
	for _, from := range algorithms {
		for _, to := range algorithms {
			t.Run(string(from)+" to "+string(to), func(t *testing.T) {
				t.Parallel()
				limiter := ratelimit.New(10)
				free := newRule(t, ratelimit.Limit{Units: 60, Window: time.Minute, Algorithm: from})
				pro := newRule(t, ratelimit.Limit{Units: 600, Window: time.Hour, Algorithm: to})
				now := at(24 * time.Hour)
				require.Equal(t, 60, admitted(limiter, free, 100, now))
				want := 540
				if from == ratelimit.TokenBucket || to == ratelimit.TokenBucket {
					want = 0 // what was empty is empty, and fills at the new rate
				}
				require.EqualValues(t, want, limiter.Allow("account", "key", pro, 0, now).Remaining, "a peek changes nothing")
				require.Equal(t, want, admitted(limiter, pro, 1000, now))
				require.Zero(t, admitted(limiter, free, 100, now), "and back")
				require.Zero(t, admitted(limiter, free, 100, now))
				require.Equal(t, 60, admitted(limiter, free, 100, now+at(2*time.Minute)+at(600*time.Minute)), "not for ever")
			})
		}
	}
}

func TestTheSameLimitInAnotherRuleIsTheSame(t *testing.T) {
	t.Parallel()
	for _, algorithm := range algorithms {
		t.Run(string(algorithm), func(t *testing.T) {
			t.Parallel()
			limiter := ratelimit.New(10)
			limit := ratelimit.Limit{Units: 10, Window: time.Second, Algorithm: algorithm}
			one, two := newRule(t, limit), newRule(t, limit)
			for i := range 5 { // in the middle of windows, where a rebuilt state would show
				now := at(time.Duration(i)*1300*time.Millisecond + 77*time.Millisecond)
				a := limiter.Allow("account", "one", one, 3, now)
				require.Equal(t, a, limiter.Allow("account", "two", []*ratelimit.Rule{one, two}[i%2], 3, now))
			}
		})
	}
}
