package ratelimit

import "sync/atomic"

// A window word is index<<32 | gone | sealed | count.
const (
	gone      = uint64(1) << 31 // the state was replaced or forgotten: look the key up again
	sealed    = uint64(1) << 30 // sliding: the window is over, its count is final
	countMask = sealed - 1
)

func word(index uint32, count int64) uint64 { return uint64(index)<<32 | uint64(count) }
func index(w uint64) uint32                 { return uint32(w >> 32) }
func count(w uint64) int64                  { return int64(w & countMask) }

// state is what is known about one key: one word for a fixed window and for a bucket, one per parity of the window for
// a sliding one. Words are only ever changed by compare-and-swap, never once they are gone.
type state struct {
	a, b  atomic.Uint64
	shape *shape // that the words were written under
}

// take decides a call of n ≥ 0 units at t and counts it if it is allowed. It is false when the state is gone.
func (s *state) take(sh *shape, n, t int64) (Result, bool) {
	switch sh.kind {
	case sliding:
		return s.takeSliding(sh, n, t)
	case bucket:
		return s.takeTokens(sh, n, t)
	default:
		return s.takeFixed(sh, n, t)
	}
}

// newState starts a key with so many units in use.
func newState(sh *shape, used, t int64) *state {
	s := &state{shape: sh}
	k, _ := sh.at(t)
	switch sh.kind {
	case sliding:
		s.openSliding(k, used)
	case bucket:
		debt := min(used, sh.capacity) * sh.token.scale
		s.a.Store(sh.token.word(sh.token.position(t), debt))
	default:
		s.a.Store(word(k, used))
	}
	return s
}

// successor ends the state and starts one of another shape, which carries over what is in use. The caller holds the
// key's place in the map, so that there is one successor.
func (s *state) successor(sh *shape, t int64) *state {
	a := s.a.Or(s.shape.goneBit())
	b := uint64(0)
	if s.shape.kind == sliding {
		b = s.b.Or(gone)
	}
	return s.shape.carry(sh, a, b, t)
}

// copyAs starts a state of the given shape with what is in use under this one, which goes on.
func (s *state) copyAs(sh *shape, t int64) *state {
	a, b := s.a.Load(), s.b.Load()
	if s.shape.kind != bucket {
		a, b = a&^gone, b&^gone
	}
	return s.shape.carry(sh, a, b, t)
}

// carry starts a state of another shape from the words of this one. Between windows of one length the units in use
// stay as they are; a bucket stays as full as it is. That way a change takes effect at once, and changing to and fro
// mints nothing. Between different kinds the units in use count in the present window, or, where one is a bucket, the
// part of the limit that they are.
func (sh *shape) carry(to *shape, a, b uint64, t int64) *state {
	s := &state{shape: to}
	switch {
	case sh.kind == bucket && to.kind == bucket:
		debt := min(sh.token.debt(a, sh.token.position(t)), sh.token.size)
		s.a.Store(to.token.word(to.token.position(t), mulDivUp(debt, to.token.size, sh.token.size)))
	case sh.kind == to.kind && sh.window == to.window:
		s.a.Store(a)
		s.b.Store(b)
	case sh.kind == bucket || to.kind == bucket:
		return newState(to, mulDivUp(min(sh.used(a, b, t), sh.capacity), to.capacity, sh.capacity), t)
	default:
		return newState(to, sh.used(a, b, t), t)
	}
	return s
}

// used is what counts against the limit at t, rounded up.
func (sh *shape) used(a, b uint64, t int64) int64 {
	k, left := sh.at(t)
	switch sh.kind {
	case sliding:
		return sh.usedSliding(a, b, k, left)
	case bucket:
		debt := min(sh.token.debt(a, sh.token.position(t)), sh.token.size)
		return (debt + sh.token.scale - 1) / sh.token.scale
	default:
		_, _, used := sh.fixed(a, k, left)
		return used
	}
}

// forget ends the state if nothing is in use at t, so that a fresh one in its place is the same. The caller holds the
// key's place in the map.
func (s *state) forget(t int64) bool {
	a, b := s.a.Load(), s.b.Load()
	return s.shape.used(a, b, t) == 0 && s.end(a, b)
}

// end ends the state if its words are still these.
func (s *state) end(a, b uint64) bool {
	if !s.a.CompareAndSwap(a, a|s.shape.goneBit()) {
		return false
	}
	if s.shape.kind == sliding && !s.b.CompareAndSwap(b, b|gone) {
		s.a.Store(a) // nobody else writes a gone word, and who met it waits for the key's place
		return false
	}
	return true
}

func (sh *shape) goneBit() uint64 {
	if sh.kind == bucket {
		return bucketGone
	}
	return gone
}
