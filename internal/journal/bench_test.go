package journal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
)

// take is a counter's hot path as the enforcer has it: one compare-and-swap
// checks and counts.
func take(word *atomic.Uint64, n uint64) bool {
	for {
		w := word.Load()
		if n > uint64(uint32(w)) {
			return false
		}
		if word.CompareAndSwap(w, w+n<<32-n) {
			return true
		}
	}
}

// callCost is nanoseconds per call over some calls that are all admitted.
func callCost(word *atomic.Uint64) float64 {
	const calls = 1_000_000
	word.Store(calls)
	start := time.Now()
	for range calls {
		if !take(word, 1) {
			panic("refused")
		}
	}
	return float64(time.Since(start).Nanoseconds()) / calls
}

// journalOverHeap measures both in turns, so that a neighbour on the machine
// disturbs both, and returns the median cost of each and of their ratio.
func journalOverHeap(tb testing.TB, rounds int) (heap, file, ratio float64) {
	inFile := open(tb, tempDir(tb), 1, 0).Take(1, hashOf("acme"), 0)
	require.False(tb, inFile.OnHeap())
	onHeap := journal.Heap().Take(1, hashOf("acme"), 0)
	var heaps, inFiles, ratios []float64
	for range rounds {
		h, f := callCost(onHeap.Word()), callCost(inFile.Word())
		heaps, inFiles, ratios = append(heaps, h), append(inFiles, f), append(ratios, f/h)
	}
	median := func(v []float64) float64 { slices.Sort(v); return v[len(v)/2] }
	return median(heaps), median(inFiles), median(ratios)
}

// Target: at most 1.05. The test fails at one and a half times that in three
// measurements of three; the benchmark prints the number itself.
func TestACounterInAFileCostsWhatItCostsOnTheHeap(t *testing.T) {
	var ratio float64
	for range 3 {
		if _, _, ratio = journalOverHeap(t, 7); ratio <= 1.05*1.5 {
			return
		}
	}
	t.Fatalf("a counter in a file costs %.2f times one on the heap", ratio)
}

func BenchmarkCounterInFileOverHeap(b *testing.B) {
	for b.Loop() {
		heap, file, ratio := journalOverHeap(b, 21)
		b.ReportMetric(heap, "heap-ns/call")
		b.ReportMetric(file, "file-ns/call")
		b.ReportMetric(ratio, "ratio")
	}
}

func BenchmarkCounterFromTwoCores(b *testing.B) {
	for name, j := range map[string]*journal.Journal{"file": open(b, tempDir(b), 1, 0), "heap": journal.Heap()} {
		b.Run(name, func(b *testing.B) {
			word := j.Take(1, hashOf("acme"), 0).Word()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					word.Store(1 << 31)
					take(word, 1)
				}
			})
		})
	}
}

// The first store to a page after the kernel wrote it back takes a fault on a
// disk file system; on a memory-backed one it does not.
func BenchmarkFirstStoreAfterWriteBack(b *testing.B) {
	for name, parent := range map[string]string{"temp": b.TempDir(), "shm": "/dev/shm"} {
		if _, err := os.Stat(parent); err != nil {
			continue // no memory-backed folder here
		}
		b.Run(name, func(b *testing.B) {
			dir, err := os.MkdirTemp(parent, "weir-journal-bench")
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, os.RemoveAll(dir)) })
			j := open(b, dir, 1, 0)
			slots := make([]*journal.Slot, 4096)
			for i := range slots {
				slots[i] = j.Take(int64(i), hashOf("acme"), 0)
			}
			var first, again time.Duration
			stores := 0
			for b.Loop() {
				syncFiles(b, dir)
				first += storeToEachPage(slots)
				again += storeToEachPage(slots)
				stores += len(slots) / 64
			}
			b.ReportMetric(float64(first.Nanoseconds())/float64(stores), "first-ns/store")
			b.ReportMetric(float64(again.Nanoseconds())/float64(stores), "again-ns/store")
		})
	}
}

func storeToEachPage(slots []*journal.Slot) time.Duration {
	start := time.Now()
	for i := 0; i < len(slots); i += 64 {
		slots[i].Word().Add(1 << 32)
	}
	return time.Since(start)
}

func syncFiles(b *testing.B, dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "node-*.weir"))
	require.NoError(b, err)
	for _, name := range names {
		f, err := os.Open(name)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
		require.NoError(b, f.Close())
	}
}

func BenchmarkTakeAndRelease(b *testing.B) {
	j, hash := open(b, tempDir(b), 1, 0), hashOf("acme")
	b.ReportAllocs()
	for b.Loop() {
		j.Release(j.Take(1, hash, 0))
	}
}

func BenchmarkKeyHash(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		journal.KeyHash("acct_1234567890", "events", period)
	}
}

func BenchmarkNewSegment(b *testing.B) {
	dir := tempDir(b)
	node := int64(0)
	for b.Loop() {
		node++
		j, err := journal.Open(journal.Config{Dir: dir, Installation: installation, Node: node})
		require.NoError(b, err)
		require.NoError(b, j.Close(true))
	}
}

func BenchmarkRecover(b *testing.B) {
	for _, slots := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(slots), func(b *testing.B) {
			dir := tempDir(b)
			j := open(b, dir, 1, 1<<14)
			for i := range slots {
				j.Take(int64(i), hashOf("acme"), 1)
			}
			require.NoError(b, j.Close(false))
			for b.Loop() {
				problems, err := journal.Recover(b.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
					require.Len(b, dead.Entries, slots)
					return context.Canceled // keep the files for the next round
				})
				require.NoError(b, err)
				require.Len(b, problems, 1)
			}
		})
	}
}
