package clock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/clock"
)

func TestAFollowedClockIsMovedNoFurtherThanAReadingAsksFor(t *testing.T) {
	t.Parallel()
	var f clock.Followed
	at := time.Date(2027, 1, 31, 23, 59, 50, 0, time.UTC)
	shows := func(elapsed time.Duration) time.Duration { return time.Duration(f.At(elapsed) - at.UnixNano()) }
	f.Set(at.Add(time.Hour), 0)
	require.Equal(t, time.Hour+time.Second, shows(time.Second))
	f.Learn(at, 0, 2*time.Millisecond)
	require.Zero(t, shows(2*time.Millisecond), "rather behind than ahead")
	f.Learn(at.Add(5*time.Second), time.Second, 6*time.Second)
	require.Equal(t, 6*time.Second-2*time.Millisecond, shows(6*time.Second), "a slow answer tells nothing new")
	f.Learn(at.Add(7*time.Second), 7*time.Second, 7*time.Second+time.Millisecond)
	require.Equal(t, 7*time.Second-time.Millisecond, shows(7*time.Second), "a quick one narrows it")
	f.Learn(at.Add(8*time.Second-time.Minute), 8*time.Second, 9*time.Second)
	require.Equal(t, 8*time.Second-time.Minute, shows(8*time.Second), "the other clock was set back")
	f.Learn(at.Add(time.Hour), 10*time.Second, 11*time.Second)
	require.Equal(t, time.Hour, shows(11*time.Second), "and forward")
}
