package ratelimit

import (
	"math"
	"math/bits"
	"time"
)

type kind uint8

const (
	fixed kind = iota
	sliding
	bucket
)

// late is the longest that a call may lag behind another one of the same key between reading its time and counting.
// A position in the words that is further ahead than this has wrapped around and is ancient instead.
const late = int64(time.Hour)

// shape is a limit as this node applies it. It is never changed.
type shape struct {
	kind     kind
	nodes    int64
	units    int64 // this node's share
	capacity int64 // the most that can pass at one instant: units, or a bucket's size
	window   int64 // nanoseconds
	ahead    uint32
	token    tokens
}

func newShape(limit Limit, nodes int64) *shape {
	sh := &shape{nodes: nodes, units: share(limit.Units, nodes), window: int64(limit.Window)}
	sh.capacity = sh.units
	sh.ahead = uint32(late/sh.window + 1)
	switch limit.Algorithm {
	case SlidingWindow:
		sh.kind = sliding
	case TokenBucket:
		sh.kind = bucket
		if sh.units > 0 {
			sh.capacity = share(limit.Burst, nodes)
			sh.token = newTokens(sh.units, sh.window, sh.capacity)
		}
	default:
		sh.kind = fixed
	}
	return sh
}

// share is one node's part: rounded up, so that no node admits nothing of a limit that admits something.
func share(units, nodes int64) int64 {
	return (units + nodes - 1) / nodes
}

// same reports whether the other shape counts just as this one.
func (sh *shape) same(other *shape) bool {
	return sh == other || sh.kind == other.kind && sh.window == other.window &&
		sh.units == other.units && sh.capacity == other.capacity
}

// at returns the index of the window that holds t, and the nanoseconds until its end.
func (sh *shape) at(t int64) (index uint32, left int64) {
	k := t / sh.window
	return uint32(k), (k+1)*sh.window - t
}

// lead returns by how many windows a stored index is ahead of a call that comes late, else 0.
func (sh *shape) lead(stored, index uint32) uint32 {
	if d := stored - index; d <= sh.ahead {
		return d
	}
	return 0
}

// mulDivUp returns ⌈x·y/z⌉, at most the largest int64. All are positive or zero, z is positive.
func mulDivUp(x, y, z int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	return divUp(hi, lo, uint64(z))
}

func divUp(hi, lo, z uint64) int64 {
	if hi >= z {
		return math.MaxInt64
	}
	q, r := bits.Div64(hi, lo, z)
	if r > 0 {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// mulDiv returns ⌊x·y/z⌋ for a result that fits.
func mulDiv(x, y, z int64) int64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	q, _ := bits.Div64(hi, lo, uint64(z))
	return int64(q)
}
