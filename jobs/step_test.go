package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// The reaper's decision needs no database: what it saw, and when.
func TestOnlyANodeThatWasWatchedStandingStillIsReaped(t *testing.T) {
	t.Parallel()
	const lease = 120 * time.Second
	began := time.Now()
	node := func(beat int64, state string) []usage.NodeRow {
		return []usage.NodeRow{{ID: 1, State: state, Heartbeat: beat}}
	}
	// run reads once a second, beats as told by second, with a pause of the reader at one second.
	run := func(seconds int, beat func(int) int64, pauseAt int, pause time.Duration) (at int) {
		seen := map[int64]watch{}
		var last, now time.Time
		now = began
		for s := range seconds {
			now = now.Add(time.Second)
			if s == pauseAt {
				now = now.Add(pause)
			}
			if len(step(seen, node(beat(s), "live"), now, last, lease)) > 0 {
				return s
			}
			last = now
		}
		return -1
	}
	still := func(int) int64 { return 5 }
	require.Equal(t, 120, run(200, still, -1, 0), "it stood still for the lease time")
	require.Equal(t, -1, run(200, func(s int) int64 { return int64(s / 100) }, -1, 0), "it beats, if slowly")
	require.Equal(t, 220, run(400, still, 100, 10*time.Minute), "after a gap in the reads the watch begins anew")
	require.Equal(t, -1, run(110, still, 100, 3*time.Second), "a short pause proves nothing by itself")

	seen := map[int64]watch{}
	require.Len(t, step(seen, node(1, "reaping"), began, began, lease), 1, "a reaping that was broken off is taken up again")
	require.Len(t, step(seen, []usage.NodeRow{{ID: 1, State: "reaped", Late: true}}, began, began, lease), 1, "rows came after it was reaped")
	for _, state := range []string{"reaped", "stopped", "recovered", "retiring"} {
		seen[1] = watch{beat: 1, since: began.Add(-time.Hour)}
		require.Empty(t, step(seen, node(1, state), began, began, lease), state)
		require.Empty(t, seen)
	}
}
