package ratelimit

import (
	"math/bits"
	"sync/atomic"
)

const (
	keysPerShared   = 64
	fewestShared    = 16
	sharedPerCaller = 16
)

// crowd holds the states that keys share for which the table has no room. There are few enough of them that their
// table needs no bound of its own.
type crowd struct {
	table *table
	slots uint64
	calls atomic.Int64
}

func newCrowd(maxKeys int) *crowd {
	slots := max(maxKeys/keysPerShared, fewestShared)
	return &crowd{table: newTable(slots), slots: uint64(slots)}
}

// slot spreads callers over all states, one caller's keys over a few that lie side by side, and keys of different rules
// apart: a state has one shape at a time.
func (c *crowd) slot(id identity, sh *shape) uint64 {
	h := mix(id.caller, uint64(sh.kind)<<60|uint64(sh.window))
	if sh.kind == bucket {
		h = mix(h, uint64(sh.units)<<32|uint64(sh.capacity))
	}
	return (h%c.slots + id.key%sharedPerCaller) % c.slots
}

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd1342543de82ef95)
	return hi ^ lo
}

func (c *crowd) load(id identity, sh *shape) (*state, bool) {
	if c.table.count.Load() == 0 {
		return nil, false
	}
	return c.table.load(c.slot(id, sh))
}

// open returns the shared state for a key. There is room for every slot.
func (c *crowd) open(id identity, sh *shape, t int64) *state {
	slot := c.slot(id, sh)
	if s, ok := c.table.load(slot); ok && s.shape.same(sh) {
		return s
	}
	return c.table.open(slot, sh, t, func() *state { return newState(sh, 0, t) })
}

// heir is a fresh state for a key that has room of its own, with what is in use of the one that it may have shared.
func (c *crowd) heir(id identity, sh *shape, t int64) *state {
	if s, ok := c.load(id, sh); ok {
		return s.copyAs(sh, t)
	}
	return newState(sh, 0, t)
}
