package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/ratelimit"
)

var algorithms = []ratelimit.Algorithm{ratelimit.FixedWindow, ratelimit.SlidingWindow, ratelimit.TokenBucket}

func newRule(t testing.TB, limit ratelimit.Limit) *ratelimit.Rule {
	t.Helper()
	rule, err := ratelimit.NewRule(limit)
	require.NoError(t, err)
	return rule
}

// at gives an instant as Allow takes it.
func at(d time.Duration) int64 { return int64(d) }
