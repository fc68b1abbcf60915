package journal_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
)

var (
	installation = [16]byte{1, 2, 3}
	period       = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

// tempDir is a folder as Open makes it; t.TempDir alone may be open to others.
func tempDir(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "journals")
}

func open(t testing.TB, dir string, node int64, slots int) *journal.Journal {
	t.Helper()
	j, err := journal.Open(journal.Config{
		Dir: dir, Installation: installation, Node: node, SegmentSlots: slots,
		Patience: time.Minute, // a busy test machine is no finding
	})
	require.NoError(t, err)
	require.Nil(t, j.Stats().Problem)
	t.Cleanup(func() { require.NoError(t, j.Close(false)) })
	return j
}

func hashOf(account string) journal.Hash { return journal.KeyHash(account, "events", period) }

// spend counts n units, as a counter that has n units left would.
func spend(s *journal.Slot, n uint64) { s.Word().Add(n << 32) }

// recovered is the totals by key of every dead node, which are removed.
func recovered(t testing.TB, dir string) map[int64]uint64 {
	t.Helper()
	sums := map[int64]uint64{}
	problems, err := journal.Recover(t.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
		for _, e := range dead.Entries {
			sums[e.Key] += e.Total
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	return sums
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	names := []string{}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

func TestASlotStartsAtItsBaseWithNothingLeft(t *testing.T) {
	t.Parallel()
	for name, j := range map[string]*journal.Journal{"file": open(t, tempDir(t), 1, 0), "heap": journal.Heap()} {
		for _, base := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<40 + 17, 1<<63 - 1} {
			s := j.Take(7, hashOf("acme"), base)
			require.Equal(t, base, s.Total(), name)
			require.Equal(t, base, s.Base().Load(), name)
			require.Equal(t, uint32(0), uint32(s.Word().Load()), "left, %s", name)
			spend(s, 5)
			require.Equal(t, base+5, s.Total(), name)
			j.Release(s)
		}
	}
}

func TestTheTotalSurvivesTheWrapOfSpentAndAMoveOfTheBase(t *testing.T) {
	t.Parallel()
	s := open(t, tempDir(t), 1, 0).Take(7, hashOf("acme"), 1<<32-3)
	want := uint64(1<<32 - 3)
	for _, n := range []uint64{2, 1, 5, math.MaxUint32 - 10} {
		spend(s, n)
		want += n
		require.Equal(t, want, s.Total())
		s.Base().Store(s.Total())
		require.Equal(t, want, s.Total())
	}
}

func TestSlotsAreCacheLinesAndDoNotOverlap(t *testing.T) {
	t.Parallel()
	j := open(t, tempDir(t), 1, 8)
	heap := journal.Heap()
	seen := map[*journal.Slot]bool{}
	for i := range 40 {
		s := j.Take(int64(i), hashOf("acme"), 0)
		require.False(t, s.OnHeap())
		require.Zero(t, uintptr(unsafe.Pointer(s))%64)
		require.False(t, seen[s])
		seen[s] = true
		require.Zero(t, uintptr(unsafe.Pointer(heap.Take(1, hashOf("acme"), 0)))%64)
	}
	for s := range seen {
		s.Word().Store(math.MaxUint64)
		s.Base().Store(math.MaxUint64)
	}
	for s := range seen {
		require.False(t, s.OnHeap(), "a neighbour overwrote the slot")
	}
}

func TestReleasedSlotsAreUsedAgainAndNoneTwice(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 4)
	first := j.Take(1, hashOf("a"), 10)
	spend(first, 5)
	second := j.Take(2, hashOf("b"), 0)
	j.Release(first)
	j.Release(first)
	again := j.Take(3, hashOf("c"), 100)
	require.Same(t, first, again)
	require.NotSame(t, again, j.Take(4, hashOf("d"), 0))
	require.Equal(t, uint64(100), again.Total())
	spend(second, 9)
	require.NoError(t, j.Close(false))
	require.Equal(t, map[int64]uint64{2: 9, 3: 100, 4: 0}, recovered(t, dir))
}

func TestTakeReleaseAndCountFromManyGoroutines(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 16)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s := j.Take(int64(g), hashOf("acme"), 0)
				spend(s, 3)
				if s.Total() != 3 {
					t.Errorf("somebody else counted in this slot: %d", s.Total())
				}
				if i%10 != 0 {
					j.Release(s)
				}
				j.Stats()
			}
		})
	}
	wg.Wait()
	stats := j.Stats()
	require.Equal(t, 8*20, stats.Taken)
	require.Zero(t, stats.OnHeap)
	require.NoError(t, j.Close(false))
	sums := recovered(t, dir)
	require.Len(t, sums, 8)
	for g := range 8 {
		require.Equal(t, uint64(20*3), sums[int64(g)])
	}
}

func TestAMillionSlotsTakeOneDescriptorAndSixtyFourBytesEach(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 1<<14)
	hash := hashOf("acme")
	for i := range 1_000_000 {
		spend(j.Take(int64(i), hash, 0), uint64(i))
	}
	stats := j.Stats()
	require.Zero(t, stats.Spilled, stats.Problem)
	require.Equal(t, 1_000_000, stats.Taken)
	require.LessOrEqual(t, stats.Bytes, int64(stats.Slots*64+stats.Segments*4096))
	require.Less(t, stats.Slots, 1_000_000+2<<14)
	require.NoError(t, j.Close(false))

	problems, err := journal.Recover(t.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
		require.Len(t, dead.Entries, 1_000_000)
		for i, e := range dead.Entries {
			if e.Key != int64(i) || e.Total != uint64(i) || e.Hash != hash {
				t.Fatalf("entry %d is %+v", i, e)
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Empty(t, files(t, dir))
}

func TestTheHeapJournalKeepsNothing(t *testing.T) {
	t.Parallel()
	j := journal.Heap()
	s := j.Take(1, hashOf("acme"), 4)
	require.True(t, s.OnHeap())
	require.Equal(t, 1, j.Stats().OnHeap)
	require.Equal(t, journal.HeapOnly, j.Stats().Problem.Reason)
	j.Release(s)
	j.Release(s)
	require.Equal(t, 0, j.Stats().OnHeap)
	require.Equal(t, uint64(1), j.Stats().Spilled)
	require.NoError(t, j.Close(true))
}

func TestCloseKeepsOrRemovesTheFiles(t *testing.T) {
	t.Parallel()
	for _, remove := range []bool{true, false} {
		dir := tempDir(t)
		j := open(t, dir, 5, 2)
		held := j.Take(1, hashOf("acme"), 0)
		j.Release(j.Take(2, hashOf("acme"), 0))
		require.NoError(t, j.Close(remove))
		require.NoError(t, j.Close(remove))
		spend(held, 1) // late, and no fault

		late := j.Take(1, hashOf("acme"), 0)
		require.True(t, late.OnHeap())
		require.Equal(t, journal.Closed, j.Stats().Problem.Reason)
		j.Release(held)
		if remove {
			require.Empty(t, files(t, dir))
		} else {
			require.Contains(t, files(t, dir), "node-5-0.weir")
		}
	}
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	good := journal.Config{Dir: dir, Installation: installation, Node: 1}
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open1 := filepath.Join(t.TempDir(), "open")
	require.NoError(t, os.Mkdir(open1, 0o700))
	require.NoError(t, os.Chmod(open1, 0o777))
	open(t, dir, 9, 0)

	for _, tc := range []struct {
		name   string
		change func(*journal.Config)
		reason journal.Reason
		says   string
	}{
		{"no folder", func(c *journal.Config) { c.Dir = "" }, journal.InvalidConfig, "no folder"},
		{"no installation", func(c *journal.Config) { c.Installation = [16]byte{} }, journal.InvalidConfig, "installation"},
		{"node 0", func(c *journal.Config) { c.Node = 0 }, journal.InvalidConfig, "node id 0"},
		{"node -1", func(c *journal.Config) { c.Node = -1 }, journal.InvalidConfig, "node id -1"},
		{"negative slots", func(c *journal.Config) { c.SegmentSlots = -1 }, journal.InvalidConfig, "slots"},
		{"negative patience", func(c *journal.Config) { c.Patience = -1 }, journal.InvalidConfig, "patience"},
		{"too many slots", func(c *journal.Config) { c.SegmentSlots = 1<<14 + 1 }, journal.InvalidConfig, "slots"},
		{"a file", func(c *journal.Config) { c.Dir = file }, journal.NoFolder, "folder"},
		{"under a file", func(c *journal.Config) { c.Dir = file + "/x" }, journal.NoFolder, "folder"},
		{"open to others", func(c *journal.Config) { c.Dir = open1 }, journal.InsecureFolder, "0777"},
		{"a node that exists", func(c *journal.Config) { c.Node = 9 }, journal.NodeInUse, "never be used again"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := good
			tc.change(&config)
			_, err := journal.Open(config)
			var problem *journal.Problem
			require.ErrorAs(t, err, &problem)
			require.Equal(t, tc.reason, problem.Reason)
			require.ErrorContains(t, err, tc.says)
		})
	}
	require.Equal(t, []string{"node-9-0.weir"}, files(t, dir), "a refused node leaves nothing and changes nothing")
}

func TestFilesAreForTheOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	open(t, dir, 1, 0)
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, "node-1-0.weir"): 0o600} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
}

func TestAFolderThatGoesAwayIsLoggedOnceAndCountersLiveOnTheHeap(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	var log bytes.Buffer
	j, err := journal.Open(journal.Config{Dir: dir, Installation: installation, Node: 1, SegmentSlots: 2,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	var slots []*journal.Slot
	for i := range 10 {
		slots = append(slots, j.Take(int64(i), hashOf("acme"), 0))
	}
	stats := j.Stats()
	require.Equal(t, journal.NoFolder, stats.Problem.Reason)
	require.Equal(t, 8, stats.OnHeap)
	require.False(t, slots[1].OnHeap())
	require.True(t, slots[2].OnHeap())
	spend(slots[0], 1) // its file is deleted: no fault
	require.NoError(t, j.Close(false))
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")), log.String())
	require.Contains(t, log.String(), "reason=no_folder")
}

func TestKeyHash(t *testing.T) {
	t.Parallel()
	base := journal.KeyHash("ab", "c", period)
	require.Equal(t, base, journal.KeyHash("ab", "c", period.In(time.FixedZone("x", 3600))))
	seen := map[journal.Hash]bool{base: true}
	for _, other := range []journal.Hash{
		journal.KeyHash("a", "bc", period), journal.KeyHash("abc", "", period), journal.KeyHash("", "abc", period),
		journal.KeyHash("c", "ab", period), journal.KeyHash("ab", "c", period.Add(1)), journal.KeyHash("ab", "c", period.Add(time.Second)),
		journal.KeyHash("ab", "C", period), journal.KeyHash("ab\x00", "c", period), journal.KeyHash("ab", "c", time.Time{}),
	} {
		require.False(t, seen[other])
		seen[other] = true
	}
	// Files outlive the program: the hash must never change.
	require.Equal(t, "5aa48c6691c5f4b8b8de60b048842873", hex.EncodeToString(base[:]))
	require.Panics(t, func() { journal.Heap().Take(1, journal.Hash{}, 0) })
}
