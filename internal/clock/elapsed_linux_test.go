package clock

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The kernel's uptime counts suspensions.
func TestElapsedCountsSuspensions(t *testing.T) {
	t.Parallel()
	uptime := func() time.Duration {
		b, err := os.ReadFile("/proc/uptime")
		require.NoError(t, err)
		seconds, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
		require.NoError(t, err)
		return time.Duration(seconds * float64(time.Second))
	}
	before := uptime()
	now := sinceBoot()
	require.GreaterOrEqual(t, now, before)
	require.LessOrEqual(t, now, uptime()+10*time.Millisecond)

	var awake, slept time.Duration
	elapsed := furthest(func() time.Duration { return awake }, func() time.Duration { return now + awake + slept })
	awake = time.Second
	require.Equal(t, time.Second, elapsed())
	slept = time.Hour
	require.Equal(t, time.Hour+time.Second, elapsed())
	now = -slept // the system tells no more
	require.Equal(t, time.Second, elapsed())
	here := Elapsed()
	first := here()
	require.Eventually(t, func() bool { return here() > first }, time.Second, time.Millisecond)
}
