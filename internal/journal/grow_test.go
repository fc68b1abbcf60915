package journal

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func testHash() Hash { return KeyHash("acme", "events", time.Time{}) }

// bubble runs a journal with four slots to a segment under a false clock.
func bubble(t *testing.T, run func(t *testing.T, j *Journal, log *bytes.Buffer)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "journals")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var j *Journal
		config := Config{Dir: dir, Installation: [16]byte{1}, Node: 1, SegmentSlots: 4}
		// The handler asks for Stats: no line may be written under the mutex.
		config.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { j.Stats(); return a },
		}))
		var err error
		j, err = Open(config)
		require.NoError(t, err)
		run(t, j, &log)
		require.NoError(t, j.Close(false))
	})
}

func TestASlowDiskIsWaitedForOnceAndThenNoMore(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, j *Journal, log *bytes.Buffer) {
		answer := make(chan struct{})
		j.make = func(n int) (*segment, *os.File, *Problem) {
			<-answer
			return j.makeSegment(n)
		}
		start := time.Now()
		for range 4 {
			require.False(t, j.Take(1, testHash(), 0).OnHeap())
		}
		require.Zero(t, time.Since(start), "free slots need no disk")
		require.True(t, j.Take(1, testHash(), 0).OnHeap())
		require.Equal(t, defaultPatience, time.Since(start))
		require.Equal(t, Slow, j.Stats().Problem.Reason)
		for range 100 {
			require.True(t, j.Take(1, testHash(), 0).OnHeap())
		}
		require.Equal(t, defaultPatience, time.Since(start), "nobody waits again")

		close(answer)
		synctest.Wait()
		require.Nil(t, j.Stats().Problem)
		require.False(t, j.Take(1, testHash(), 0).OnHeap())
		require.Equal(t, Stats{Segments: 2, Slots: 8, Taken: 5, OnHeap: 101, Spilled: 101, Bytes: 2 * (4096 + 4*64)}, j.Stats())
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")))
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=INFO")))
	})
}

func TestASegmentThatCannotBeHadIsTriedAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, j *Journal, log *bytes.Buffer) {
		attempts, full := 0, true
		j.make = func(n int) (*segment, *os.File, *Problem) {
			attempts++
			if full {
				return nil, nil, &Problem{Reason: DiskFull, Detail: "full"}
			}
			return j.makeSegment(n)
		}
		for i := range 50 {
			require.Equal(t, i >= 4, j.Take(1, testHash(), 0).OnHeap())
		}
		require.Equal(t, 1, attempts)
		time.Sleep(retryAfter)
		require.True(t, j.Take(1, testHash(), 0).OnHeap())
		require.Equal(t, 2, attempts)
		synctest.Wait()
		require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")), "the same reason is logged once")
		full = false
		require.True(t, j.Take(1, testHash(), 0).OnHeap())
		time.Sleep(retryAfter)
		require.False(t, j.Take(1, testHash(), 0).OnHeap())
		require.Nil(t, j.Stats().Problem)
		require.Equal(t, 3, attempts)
	})
}

func TestAJournalHasAnEnd(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, j *Journal, _ *bytes.Buffer) {
		j.make = func(int) (*segment, *os.File, *Problem) { return heapSegment(4), nil, nil }
		for i := range 4*maxSegments + 3 {
			require.Equal(t, i >= 4*maxSegments, j.Take(1, testHash(), 0).OnHeap(), i)
		}
		require.Equal(t, SlotLimit, j.Stats().Problem.Reason)
	})
}

func TestASweepOfDraftsDoesNotStopAnOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journals")
	require.NoError(t, os.Mkdir(dir, 0o700))
	h := header{installation: [16]byte{1}, node: 1, slots: 4, created: time.Now()}
	// A sweep of this draft's name is under way: it is taken by somebody else.
	other, err := lockedDraft(dir, h)
	require.NoError(t, err)
	seg, f, p := createSegment(dir, h)
	require.Nil(t, p)
	require.NoError(t, unmap(seg.mem))
	require.NoError(t, sweepDraft(other.Name()))
	require.FileExists(t, other.Name(), "its owner lives")
	require.NoError(t, other.Close())
	require.NoError(t, sweepDraft(other.Name()))
	require.NoFileExists(t, other.Name())
	require.NoError(t, sweepDraft(other.Name()))
	require.FileExists(t, segmentPath(dir, 1, 0))
	require.NoError(t, f.Close())
}
