package enforcer

import "sync/atomic"

// A counter is one 64-bit word, spent<<32 | left: one compare-and-swap checks, counts and, where the word lies in the
// journal's file, makes it durable. Two words could not be called back safely (docs/leases.md).

// maxLeft bounds what a word may hold at once; a call for more takes the strict path.
const maxLeft = 1 << 31

func left(w uint64) uint64 { return w & 0xffffffff }

// spend takes n of what is left. It reports false, and changes nothing, when less is left.
func spend(word *atomic.Uint64, n uint64) (after uint64, ok bool) {
	for {
		w := word.Load()
		if n > left(w) {
			return w, false
		}
		after = w + n<<32 - n
		if word.CompareAndSwap(w, after) {
			return after, true
		}
	}
}

// totalOf is the cumulative usage that a word and its checkpoint say. The checkpoint is loaded before the word: one
// that is newer than the word would wrap.
func totalOf(word, base uint64) int64 { return int64(base + uint64(uint32(word>>32)-uint32(base))) }

// cut takes everything that is left, without counting it. A consumer that was late fails its compare-and-swap.
func cut(word *atomic.Uint64) uint64 {
	for {
		w := word.Load()
		if left(w) == 0 {
			return 0
		}
		if word.CompareAndSwap(w, w-left(w)) {
			return left(w)
		}
	}
}

// credit adds spent units and units left in one step, so that nobody can take what was granted to one caller.
func credit(word *atomic.Uint64, spent, more uint64) {
	word.Add(spent<<32 + more)
}
