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
	run := func(state string, seconds int, beat func(int) int64, pauseAt int, pause time.Duration) (at int) {
		x := newWatches()
		now := began
		for s := range seconds {
			now = now.Add(time.Second)
			if s == pauseAt {
				now = now.Add(pause)
			}
			if len(x.step(node(beat(s), state), now, lease)) > 0 {
				return s
			}
		}
		return -1
	}
	still := func(int) int64 { return 5 }
	require.Equal(t, 120, run("live", 200, still, -1, 0), "it stood still for the lease time")
	require.Equal(t, -1, run("live", 200, func(s int) int64 { return int64(s / 100) }, -1, 0), "it beats, if slowly")
	require.Equal(t, 220, run("live", 400, still, 100, 10*time.Minute), "after a gap in the reads the watch begins anew")
	require.Equal(t, -1, run("live", 110, still, 100, 3*time.Second), "a short pause proves nothing by itself")
	require.Equal(t, 30, run("reaping", 200, still, -1, 0), "a reaping that another process broke off is taken up again")
	require.Equal(t, -1, run("reaping", 200, func(s int) int64 { return int64(s / 20) }, -1, 0), "the recovery of a journal goes on")

	x := newWatches()
	require.Empty(t, x.step(node(1, "live"), began, lease))
	at := began.Add(time.Hour)
	x.last, x.seen[1] = at, watch{beat: 1, state: "live", since: began}
	require.Empty(t, x.step(node(1, "reaping"), at, lease), "it was silent for long, and another process has begun just now")
	x.begun[1] = 1
	require.Len(t, x.step(node(1, "reaping"), at, lease), 1, "a reaping of one's own that was broken off is taken up at once")
	clear(x.seen)
	require.Len(t, x.step(node(1, "reaping"), at, lease), 1)
	require.Empty(t, x.step(node(2, "reaping"), at, lease), "a recovery was faster, or came in the middle")
	require.Len(t, x.step([]usage.NodeRow{{ID: 1, State: "reaped", Late: true}}, at, lease), 1, "rows came after it was reaped")
	for _, state := range []string{"reaped", "stopped", "recovered", "retiring"} {
		x.seen[1], x.begun[1] = watch{beat: 1, since: began}, 1
		require.Empty(t, x.step(node(1, state), at, lease), state)
		require.Empty(t, x.seen)
		require.Empty(t, x.begun)
	}
	x.seen[1], x.begun[1] = watch{beat: 1, since: began}, 1
	require.Empty(t, x.step(nil, at, lease))
	require.Empty(t, x.seen)
	require.Empty(t, x.begun)
}
