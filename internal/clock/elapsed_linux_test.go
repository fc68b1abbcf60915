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
	elapsed := Elapsed()
	first := elapsed()
	require.GreaterOrEqual(t, first, time.Duration(0))
	require.GreaterOrEqual(t, elapsed(), first)
}
