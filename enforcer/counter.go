package enforcer

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/weirhq/weir/internal/journal"
)

// counter is one key on this node: the word that calls spend from, and the lease behind it.
//
// It always holds lim + over = total + left + held + back. The word is changed by anybody; everything under mu by
// whoever holds mu; ver, lim, tight and what is in flight by the one operation that holds the operation lock.
type counter struct {
	// What an admitted call reads of it. The rest stands in the line, with the word: until when the fast path may spend
	// (end, or never; written under mu), below what is left a call has more to do (alarm: clean, or low), and the
	// checkpoint, which everything but the fast path moves with the word.
	line *journal.Slot
	view atomic.Pointer[view]

	rare    atomic.Pointer[rare] // nil for most; made and dropped under mu
	refusal atomic.Pointer[refusal]
	end     atomic.Int64            // business time at which admission under this key ends; once it is registered written under dueMu
	next    atomic.Pointer[counter] // in the list of dirty counters
	slot    *slot

	mu     sync.Mutex // never held across I/O
	ver    int64
	lim    int64
	over   int64 // counted beyond the lease since the last stored answer
	back   int64 // cut, and not yet stored as returned
	acked  int64 // total in the last batch that was acknowledged
	usedAt int64 // monotonic, of that batch

	rate      atomic.Uint32 // units per second, recent
	duePlace  int32         // in the heap of ends, from 1; 0: not there; guarded by Enforcer.dueMu
	epoch     uint16        // moved by every cut that voids what is in flight
	busy      bool          // the operation lock
	tight     bool
	sealed    bool // the period has ended here: nothing is ever spent again
	recalling bool
	told      bool // units came back, or the terms changed, since the operation in flight began: a refusal of it is old
	freed     bool // the journal's slot goes back with the counter; guarded by Enforcer.dueMu
}

// counterSize is what a counter may take: two cache lines, so that none of its fields share a third (docs/performance.md).
const counterSize = 128

const _ = uint(counterSize - unsafe.Sizeof(counter{}))

// never is the until of a counter that the fast path leaves alone: the database decides, a clock is read at every call, or
// there is nothing to spend.
const never = math.MinInt64

// refusal is remembered until something changes, for a second at most.
type refusal struct {
	until  int64 // monotonic
	bound  int64 // calls for more than this are refused
	reason Reason
	used   int64 // stored by all nodes, as the database said
	firm   bool  // nothing can make a call pass before the refusal is forgotten
}

func newCounter(s *slot, v *view, l lease, line *journal.Slot) *counter {
	c := &counter{slot: s, line: line}
	c.alarm().Store(clean)
	c.view.Store(v)
	c.line.Until().Store(never)
	c.ver, c.lim, c.tight, c.acked = l.ver, l.lim, l.tight, l.own
	if rest := l.lim - l.own; rest < 0 {
		c.over = -rest
	} else if l.tight || rest >= maxLeft {
		c.back = rest
	} else if rest > 0 {
		credit(c.word(), 0, uint64(rest))
		c.setLow(rest / 2)
	}
	return c
}

// clean in a counter's alarm says that the next call has to put it on the list of the next batch. Below it stands low:
// with less left than that the lease is extended in the background. No word has as much left as clean.
const clean = 1 << 31

func (c *counter) alarm() *atomic.Uint32 { return c.line.Alarm() }

func (c *counter) low() uint32 { return c.alarm().Load() &^ clean }

func (c *counter) isDirty() bool { return c.alarm().Load()&clean == 0 }

// setLow moves low to n units at most, and leaves clean as it is.
func (c *counter) setLow(n int64) {
	low := uint32(min(n, clean-1))
	for {
		was := c.alarm().Load()
		if c.alarm().CompareAndSwap(was, was&clean|low) {
			return
		}
	}
}

// reaches sets the end of admission, and with it how long the fast path may spend. The view has been stored.
func (c *counter) reaches(end int64) {
	c.mu.Lock()
	c.end.Store(end)
	c.gate()
	c.mu.Unlock()
}

// gate opens the fast path, or shuts it: also while nothing is left and the answer is remembered, so that refusing
// writes nothing. A gate that is wrongly open costs a detour and nothing else. The caller holds mu.
func (c *counter) gate() {
	until, v := c.end.Load(), c.view.Load()
	if v.watched || !v.leased() || (c.refusal.Load() != nil && c.left() == 0) {
		until = never
	}
	if h := c.cells(); h != nil { // found behind the shut gate of the line
		h.until.Store(until)
		until = never
	}
	c.line.Until().Store(until)
}

// isShut reports whether the fast path leaves the counter alone.
func (c *counter) isShut() bool {
	if h := c.cells(); h != nil {
		return h.until.Load() == never
	}
	return c.line.Until().Load() == never
}

// shut closes the fast path where it only finds what is remembered.
func (c *counter) shut() {
	if !c.isShut() {
		c.mu.Lock()
		c.gate()
		c.mu.Unlock()
	}
}

// word is spent<<32 | left.
func (c *counter) word() *atomic.Uint64 { return c.line.Word() }

func (c *counter) key() int64 { return c.line.Key() }

// free gives the journal's slot back once nobody can reach the counter any more: a call that was about to spend
// still holds it, and must never meet another key's word.
func (c *counter) free(j *journal.Journal) {
	line, h := c.line, c.cells()
	runtime.AddCleanup(c, func(line *journal.Slot) {
		j.Release(line)
		if h != nil {
			h.release(j)
		}
	}, line)
}

// hide makes recovery skip the counter, whose total is stored and moves no more. The counter's own line goes first: what
// its cells say alone is less than what is stored.
func (c *counter) hide() {
	c.line.Hide()
	if h := c.cells(); h != nil {
		for _, line := range h.lines {
			line.Hide()
		}
	}
}

// total is the cumulative usage of this node under the key.
func (c *counter) total() int64 {
	sum := int64(c.line.Total())
	if h := c.cells(); h != nil {
		sum += h.total()
		runtime.KeepAlive(c) // and with it what the cells lie in
	}
	return sum
}

// left is what calls may still spend. The caller holds mu: between word and cells units are in nobody's hands.
func (c *counter) left() int64 {
	sum := int64(left(c.word().Load()))
	if h := c.cells(); h != nil {
		sum += h.left()
	}
	return sum
}

func (c *counter) leftNow() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left()
}

// checkpoint moves the base of the word to its total. The caller holds mu.
func (c *counter) checkpoint() { c.line.Base().Store(c.line.Total()) }

// take spends n of what is left, wherever it lies.
func (c *counter) take(e *Enforcer, n int64) bool {
	after, ok := spend(c.word(), uint64(n))
	if !ok && c.cells() != nil {
		c.mu.Lock()
		c.gather()
		after, ok = spend(c.word(), uint64(n)) // before anybody fills a cell again
		c.mu.Unlock()
	}
	if !ok {
		return false
	}
	c.noted(e, after)
	runtime.KeepAlive(c)
	return true
}

// noted is what an admitted call does beside counting: once per lease, once per batch, and for a sample of the calls.
func (c *counter) noted(e *Enforcer, after uint64) {
	if after&sampled == 0 {
		e.sample(c, here())
	}
	if left(after) < uint64(c.low()) {
		e.extendSoon(c)
	}
	e.markDirty(c)
}

// serve answers a request from what is left.
func (c *counter) serve(e *Enforcer, r request) bool {
	switch {
	case r.hold > 0:
		return c.reserve(r.hold)
	case r.spend > 0:
		return c.take(e, r.spend)
	default:
		return c.leftNow() >= r.need
	}
}

// fill serves a request without a lease: the database is away and the plan says to go on. It reports false when the
// period has ended here.
func (c *counter) fill(e *Enforcer, r request) bool {
	c.mu.Lock()
	if c.sealed {
		c.mu.Unlock()
		return false
	}
	c.over += r.spend + r.hold
	c.hold(r.hold)
	credit(c.word(), uint64(r.spend), 0)
	c.checkpoint()
	c.mu.Unlock()
	if r.spend > 0 {
		e.markDirty(c)
	}
	return true
}

// cutAll takes what is left into back and voids what is in flight. The caller holds mu.
func (c *counter) cutAll() {
	c.epoch++
	c.cut()
}

// cut takes what is left into back: the word, then every cell. The caller holds mu.
func (c *counter) cut() {
	c.back += int64(cut(c.word()))
	if h := c.cells(); h != nil {
		c.back += h.cut()
	}
	c.setLow(0)
	c.checkpoint()
}

// seal ends the period on this node: no call is admitted under the key afterwards.
func (c *counter) seal() {
	c.mu.Lock()
	if !c.sealed {
		c.sealed = true
		c.cutAll()
	}
	c.mu.Unlock()
	c.wakeAll()
}

// reopen takes a seal back: the period's end was moved to a later instant.
func (c *counter) reopen() {
	c.mu.Lock()
	c.sealed = false
	c.mu.Unlock()
}

// retireIdle seals a counter from which nothing was spent since an instant, if the database has everything of it and
// it holds nothing. It reports whether it did: the next call loads the key afresh. One with cells stays: its lines could
// not be hidden from recovery in one step.
func (c *counter) retireIdle(since int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy || c.sealed || c.isDirty() || c.usedAt > since || !c.tight || c.left() > 0 || c.cells() != nil ||
		c.back > 0 || c.over > 0 || c.held() > 0 || c.promised() > 0 || c.acked < c.total() || c.waiting() > 0 {
		return false
	}
	c.sealed = true
	c.epoch++
	return true
}

// refused returns the remembered refusal that covers n, or nil.
func (c *counter) refused(n, mono int64) *refusal {
	r := c.refusal.Load()
	if r == nil || n <= r.bound || mono >= r.until {
		return nil
	}
	return r
}

// forget drops the remembered refusal and wakes who waits: something has changed.
func (c *counter) forget() {
	c.mu.Lock()
	c.told = true
	c.refusal.Store(nil)
	c.gate()
	c.mu.Unlock()
	c.wakeAll()
}
