package ratelimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Internal: these interleavings lie between two instructions, where no test from outside can stand.

const second = int64(time.Second)

func newTestShape(algorithm Algorithm) *shape {
	return newShape(Limit{Units: 10, Window: time.Second, Algorithm: algorithm, Burst: 10}, 1)
}

func TestAWindowThatIsOverCountsNoLateCall(t *testing.T) {
	t.Parallel()
	sh := newTestShape(SlidingWindow)
	s := newState(sh, 4, 6*second)
	late := s.a.Load() // a call has read the count of window 6
	_, ok := s.take(sh, 1, 7*second)
	require.True(t, ok)
	require.False(t, s.a.CompareAndSwap(late, late+1), "its weight in window 7 is decided")
}

func TestAWindowThatIsHalfOpenIsOpenedByWhoeverComes(t *testing.T) {
	t.Parallel()
	sh := newTestShape(SlidingWindow)
	for _, late := range []int64{6 * second, 7 * second} {
		s := newState(sh, 4, 6*second)
		s.a.Or(sealed) // somebody is on the way to window 7
		result, ok := s.take(sh, 6, late)
		require.True(t, ok)
		require.True(t, result.Allowed)
		require.Zero(t, result.Remaining)
		require.Equal(t, word(7, 6), s.b.Load())
	}
}

func TestAStateThatIsUsedMeanwhileIsNotEnded(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket} {
		for _, window := range []int64{6, 7} { // the current word is the one or the other
			sh := newTestShape(algorithm)
			s := newState(sh, 0, window*second)
			a, b := s.a.Load(), s.b.Load()
			_, ok := s.take(sh, 3, window*second)
			require.True(t, ok)
			require.False(t, s.end(a, b), algorithm)
			result, ok := s.take(sh, 7, window*second)
			require.True(t, ok, algorithm)
			require.True(t, result.Allowed)
			require.Zero(t, result.Remaining)
		}
	}
}

func TestAStateThatEndedCountsNothing(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket} {
		sh := newTestShape(algorithm)
		s := newState(sh, 3, 6*second)
		next := s.successor(newTestShape(FixedWindow), 6*second)
		for _, t1 := range []int64{6 * second, 7 * second, 60 * second} {
			_, ok := s.take(sh, 1, t1)
			require.False(t, ok, algorithm)
		}
		result, ok := next.take(next.shape, 7, 6*second)
		require.True(t, ok)
		require.True(t, result.Allowed)
		require.Zero(t, result.Remaining)
	}
}

// Positions wrap around. A key that nobody swept for so long is whole again, not in the future.
func TestAnAncientStateIsWhole(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket} {
		for _, limit := range []Limit{
			{Units: 10, Window: time.Millisecond, Algorithm: algorithm, Burst: 10},
			{Units: maxUnits, Window: time.Millisecond, Algorithm: algorithm, Burst: 10},
		} {
			sh := newShape(limit, 1)
			for days := int64(1); days < 400; days++ {
				s := newState(sh, sh.capacity, 0)
				result, ok := s.take(sh, sh.capacity, days*24*int64(time.Hour))
				require.True(t, ok)
				require.True(t, result.Allowed, "%s after %d days", algorithm, days)
			}
		}
	}
}
