package journal

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The crash points: a process may die between any two stores to its slots. The
// tests apply each prefix of each sequence and read the bytes as recovery does.

func readBack(t require.TestingT, seg *segment) map[entryID]uint64 {
	sums := tally{}
	require.True(t, sums.add(seg.mem[headerSize:]))
	return maps.Clone(map[entryID]uint64(sums))
}

func heapSegment(slots int) *segment {
	return &segment{mem: make([]byte, headerSize+slots*slotSize), slots: slots}
}

func drawID(t *rapid.T) entryID {
	return entryID{
		key:  rapid.Int64().Draw(t, "key"),
		hash: KeyHash(rapid.StringN(0, 8, -1).Draw(t, "account"), "events", time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "start"), 0)),
	}
}

func TestAKillBetweenAnyTwoStoresNeverLeavesAWrongCount(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seg := heapSegment(3)
		slot := seg.slot(1)
		want := map[entryID]uint64{} // what recovery must find
		id, taken := entryID{}, false
		for range rapid.IntRange(1, 12).Draw(t, "operations") {
			before := maps.Clone(want)
			var writes []write
			allowed := func(done int) map[entryID]uint64 { return want } // after a part of the stores
			switch op := rapid.SampledFrom([]string{"take", "count", "move base", "release"}).Draw(t, "operation"); {
			case op == "take":
				next, base := drawID(t), rapid.Uint64Range(0, 1<<62).Draw(t, "base")
				w := slot.occupy(next.key, next.hash, base)
				writes = w[:]
				id, taken, want = next, true, map[entryID]uint64{next: base}
				allowed = func(done int) map[entryID]uint64 {
					switch done {
					case 0:
						return before
					case len(writes):
						return want
					}
					return map[entryID]uint64{} // skipped: nothing is in it yet
				}
			case op == "count" && taken:
				n := uint64(rapid.Uint32().Draw(t, "n"))
				if n > 1<<32-1-(slot.Total()-slot.Base().Load()) { // the caller moves the base in time
					continue
				}
				writes = []write{{&slot.word, slot.word.Load() + n<<32}}
				want = map[entryID]uint64{id: before[id] + n}
				allowed = func(done int) map[entryID]uint64 { return []map[entryID]uint64{before, want}[done] }
			case op == "move base" && taken:
				writes = []write{{&slot.base, slot.Total()}}
			case op == "release":
				w := slot.vacate()
				writes = w[:]
				taken, want = false, map[entryID]uint64{}
				allowed = func(done int) map[entryID]uint64 { return []map[entryID]uint64{before, want}[done] }
			}
			require.Equal(t, allowed(0), readBack(t, seg))
			for i := range writes {
				apply(writes[i : i+1])
				require.Equal(t, allowed(i+1), readBack(t, seg))
			}
			require.Equal(t, want, readBack(t, seg))
		}
	})
}

func TestKeysWithSeveralSlotsAreSummedAtEveryStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		seg := heapSegment(5)
		ids := []entryID{drawID(t), drawID(t)}
		ids[1].hash = KeyHash("another", "events", time.Unix(0, 0))
		if rapid.Bool().Draw(t, "same key") {
			ids[1].key = ids[0].key
		}
		want := map[entryID]uint64{}
		for i := range seg.slots {
			id := rapid.SampledFrom(ids).Draw(t, "id")
			w := seg.slot(i).occupy(id.key, id.hash, 0)
			apply(w[:])
			n := uint64(rapid.Uint32().Draw(t, "n"))
			seg.slot(i).word.Add(n << 32)
			want[id] += n
			require.Equal(t, want, readBack(t, seg))
		}
	})
}

func TestASumBeyondWhatCanBeCountedIsNoSum(t *testing.T) {
	t.Parallel()
	seg := heapSegment(2)
	for i, base := range []uint64{1<<63 - 1, 1} {
		w := seg.slot(i).occupy(7, KeyHash("a", "b", time.Time{}), base)
		apply(w[:])
		require.Equal(t, i == 0, tally{}.add(seg.mem[headerSize:]))
	}
}

func TestNoHashIsTakenForAnEmptySlot(t *testing.T) {
	t.Parallel()
	for _, h := range []Hash{{}, {7: 1}, {8: 1}, {15: 2}} {
		require.NotZero(t, readable(h).hi())
		require.Equal(t, h.lo(), readable(h).lo())
		if h.hi() != 0 {
			require.Equal(t, h, readable(h))
		}
	}
}
