package enforcer

import (
	"sync/atomic"

	"github.com/weirhq/weir/internal/journal"
)

// A counter's word is one 64-bit word, spent<<32 + left: one atomic step checks, counts and, where the word lies in the
// journal's file, makes it durable. Two words could not be called back safely (docs/leases.md).

// maxLeft bounds what a word may hold at once: it holds less. A call for as much takes the strict path.
const maxLeft = 1 << 31

// one takes a unit when it is added to a word. Where nothing was left it takes nothing: left is signed, and a word below
// zero says the same as one at zero (journal.Spent). So the commonest call needs neither a look before nor a loop.
const one = 1<<32 - 1

func left(w uint64) uint64 { return journal.Left(w) }

// empty reports whether the add of one that made the word was refused.
func empty(after uint64) bool { return int32(after) < 0 }

// level puts a word that refused adds have driven below zero back to zero left. Who was refused calls it, so a word is
// never further below than there are callers at the moment.
func level(word *atomic.Uint64) {
	for w := word.Load(); empty(w); w = word.Load() {
		if word.CompareAndSwap(w, uint64(journal.Spent(w))<<32) {
			return
		}
	}
}

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
func totalOf(word, base uint64) int64 {
	return int64(base + uint64(journal.Spent(word)-uint32(base)))
}

// cut takes everything that is left, without counting it. A consumer that was late finds nothing.
func cut(word *atomic.Uint64) uint64 { return takeOut(word, maxLeft) }

// takeOut takes at most n of what is left, without counting it.
func takeOut(word *atomic.Uint64, n uint64) uint64 {
	for {
		w := word.Load()
		got := min(n, left(w))
		if got == 0 || word.CompareAndSwap(w, w-got) {
			return got
		}
	}
}

// credit adds spent units and units left in one step, so that nobody can take what was granted to one caller.
func credit(word *atomic.Uint64, spent, more uint64) {
	for {
		w := word.Load()
		if word.CompareAndSwap(w, (uint64(journal.Spent(w))+spent)<<32+left(w)+more) {
			return
		}
	}
}
