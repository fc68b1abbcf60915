package enforcer

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/weirhq/weir/internal/journal"
)

// cells are the second level of a counter that several cores spend from at once: words of its own for each of them, so
// that no line moves between cores. A cell is filled from the counter's word and emptied back into it, under the
// counter's mutex; what was spent stays where it was spent, and the counter's total is the sum. An empty cell refuses
// nothing: who finds one takes the mutex, and before the database is asked everything is gathered (docs/adr/0010).
type cells struct {
	until  atomic.Int64  // business time up to which calls may spend: what the counter's line would say without cells
	active atomic.Bool   // calls may spend from them; changed under the counter's mutex
	mix    atomic.Uint64 // spreads callers over the cells; changed where two of them meet in one
	shift  uint
	lines  []*journal.Slot // a power of two of them
	pads   []*journal.Slot // never spent from: cores fetch lines in pairs

	// guarded by the counter's mutex
	filler [mostCells]uintptr // who filled a cell last
	fills  int                // since the last look
	shared int                // of those, by another caller than the one before
}

// cellRule says how counters get cells and what a cell holds.
type cellRule struct {
	part   int64 // a cell is filled with one part of so many of what is left
	least  int64 // below this a part is not worth it: everything is gathered
	always bool  // for tests: every counter has them from the start
}

var usualCells = cellRule{part: 16, least: 64}

const (
	mostCells  = 16
	mostInCell = 1 << 14

	enoughFills = 8  // of one counter's cells, to see whether callers meet in one
	stackBits   = 11 // stacks are at least 2 KB apart
	lineSize    = 64
)

// here tells callers on different cores apart, as far as it can be told for nothing: by their stacks.
func here() uintptr {
	var mark byte
	return uintptr(unsafe.Pointer(&mark)) >> stackBits
}

// of is the cell of a caller.
func (h *cells) of(caller uintptr) *journal.Slot {
	return h.lines[uint64(caller)*h.mix.Load()>>(h.shift&63)]
}

// filled notes who filled a cell. Callers that meet in one are spread anew: two cores that share a cell are slower than
// one. Where there are more callers than cells that changes nothing and costs a store. The caller holds the counter's
// mutex.
func (h *cells) filled(line *journal.Slot, caller uintptr) {
	i := slices.Index(h.lines, line)
	if h.filler[i] != 0 && h.filler[i] != caller {
		h.shared++
	}
	h.filler[i] = caller
	if h.fills++; h.fills < enoughFills {
		return
	}
	if h.shared >= enoughFills/4 {
		h.mix.Store(rand.Uint64() | 1)
		clear(h.filler[:])
	}
	h.fills, h.shared = 0, 0
}

func (h *cells) left() (sum int64) {
	for _, line := range h.lines {
		sum += int64(left(line.Word().Load()))
	}
	return sum
}

func (h *cells) total() (sum int64) {
	for _, line := range h.lines {
		sum += int64(line.Total())
	}
	return sum
}

// cut empties the cells and returns what was left in them. The caller holds the counter's mutex.
func (h *cells) cut() (got int64) {
	h.active.Store(false)
	for _, line := range h.lines {
		got += int64(cut(line.Word()))
	}
	return got
}

// spendCell takes n from the caller's cell, filled where it must be. False: try the counter's own word.
func (c *counter) spendCell(e *Enforcer, h *cells, n int64) bool {
	line := h.of(here())
	if _, ok := spend(line.Word(), uint64(n)); !ok {
		return c.refill(e, h, line, n)
	}
	e.markDirty(c)
	return true
}

// refill spends n and fills the caller's cell, from what is left in the counter's word: one step, so that nobody takes
// the n. Where too little is left for a part, everything goes back to the word.
func (c *counter) refill(e *Enforcer, h *cells, line *journal.Slot, n int64) bool {
	level(line.Word())
	c.mu.Lock()
	if !h.active.Load() {
		c.mu.Unlock()
		return false
	}
	share := min(int64(left(c.word().Load()))/e.cellRule.part, mostInCell)
	if share < max(n, e.cellRule.least) {
		c.gather()
		c.mu.Unlock()
		return false
	}
	got := int64(takeOut(c.word(), uint64(share)))
	spent := n
	if got < n {
		spent = 0
	}
	credit(line.Word(), uint64(spent), uint64(got-spent))
	line.Base().Store(line.Total())
	h.filled(line, here())
	rest := left(c.word().Load())
	c.mu.Unlock()
	if rest < uint64(c.low()) {
		e.extendSoon(c)
	}
	if spent > 0 {
		e.markDirty(c)
	}
	runtime.KeepAlive(c)
	return spent > 0
}

// gather brings what the cells hold back into the counter's word, and reports whether there was something. The caller
// holds mu.
func (c *counter) gather() bool {
	h := c.cells()
	if h == nil {
		return false
	}
	got := h.cut()
	credit(c.word(), 0, uint64(got))
	return got > 0
}

// enough is what a counter must have left for its cells to be used.
func (r cellRule) enough() int64 { return 4 * r.part * r.least }

// promote gives a counter cells, or its cells back. A cell is never less durable than its counter.
func (e *Enforcer) promote(c *counter) {
	h := c.cells()
	if h == nil {
		if h = e.newCells(c); h == nil {
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.cells(); have != nil {
		if have != h {
			h.release(e.journal)
		}
		h = have
	} else if c.sealed {
		h.release(e.journal)
		return
	} else {
		c.unusual().cells.Store(h)
		c.gate()
	}
	if !c.sealed && c.left() >= e.cellRule.enough() {
		h.active.Store(true)
	}
}

func (e *Enforcer) newCells(c *counter) *cells {
	n := min(1<<bits.Len(uint(2*runtime.GOMAXPROCS(0)-1)), mostCells)
	h := &cells{shift: uint(64 - bits.TrailingZeros(uint(n)))}
	h.mix.Store(rand.Uint64() | 1)
	for len(h.lines) < n {
		line := e.journal.TakeBeside(c.line)
		switch {
		case line == nil: // the counter has just been dropped
			h.release(e.journal)
			return nil
		case line.OnHeap() && !c.line.OnHeap():
			e.journal.Release(line)
			h.release(e.journal)
			return nil
		case uintptr(unsafe.Pointer(line))&lineSize == 0 || len(h.pads) == n:
			h.lines = append(h.lines, line)
		default:
			h.pads = append(h.pads, line)
		}
	}
	return h
}

// release gives everything back.
func (h *cells) release(j *journal.Journal) {
	for _, line := range h.lines {
		j.Release(line)
	}
	for _, line := range h.pads {
		j.Release(line)
	}
}

// sightings find counters that several cores spend from at a high rate: a sample of the calls leaves its caller, and
// two callers in turns, often, are a counter that wants cells. Keys that share a place disturb each other, no more.
type sightings struct {
	mu   sync.Mutex
	seen [64]sighting
}

type sighting struct {
	key    int64
	caller uintptr
	at     int64 // monotonic
	calls  int
	turns  int // of those, with another caller than the one before
}

const (
	sampled     = 1023 << 32 // of a word: one call in 1,024 is looked at
	sampledSoon = 2 * time.Millisecond
	enoughCalls = 64
	enoughTurns = enoughCalls / 4
)

// sample notes a call, and asks for cells where they would help.
func (e *Enforcer) sample(c *counter, caller uintptr) {
	s := &e.sightings
	if !s.mu.TryLock() {
		return
	}
	x, mono := &s.seen[uint64(c.key())%uint64(len(s.seen))], e.clock.mono.Load()
	switch {
	case x.key != c.key() || mono-x.at > int64(sampledSoon):
		*x = sighting{key: c.key()}
	case x.caller != caller:
		x.turns++
	}
	x.caller, x.at = caller, mono
	x.calls++
	wanted := x.turns >= enoughTurns
	if x.calls >= enoughCalls || wanted {
		x.calls, x.turns = 0, 0
	}
	s.mu.Unlock()
	if wanted {
		e.spawn(func() { e.promote(c) })
	}
}
