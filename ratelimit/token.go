package ratelimit

import "math/bits"

// A token bucket is kept as one position on a line along which the limit moves (GCRA): at t the limit has reached
// t·units/window. A call moves the key's position by its units from where it is, but from no further back than the
// limit's own position (a full bucket gains nothing), and passes if that is at most a bucket's size ahead of the
// limit. Counting in units and not in time leaves nothing to round for a call of any size.
//
// Positions are in 1/scale of a unit, modulo 2^63, shifted left by one: the lowest bit says that the state is gone.
const bucketGone = uint64(1)

const (
	finest     = 128            // positions per nanosecond: they wrap around after a year or more
	maxSize    = int64(1) << 60 // of a full bucket, in positions
	maxScale   = int64(1) << 53
	wholeScale = uint64(1)
)

// tokens are the numbers of a bucket: the limit is at ⌊t·num/den⌋.
type tokens struct {
	scale    int64 // positions per unit
	size     int64 // of a full bucket, in positions
	num, den uint64
	late     int64 // positions: further ahead of the limit than size + late is ancient, not ahead
}

func newTokens(units, window, burst int64) tokens {
	g := gcd(units, window)
	k := tokens{scale: window / g, num: uint64(units / g), den: wholeScale} // exact
	if k.num > finest || k.scale > maxSize/burst {
		k.scale = 1
		for s := int64(2); s <= maxScale && s <= maxSize/burst && mulDivUp(units, s, window) <= finest; s *= 2 {
			k.scale = s
		}
		k.num, k.den = uint64(units)*uint64(k.scale), uint64(window)
	}
	k.size = burst * k.scale
	k.late = k.moves(late)
	return k
}

// moves is by how much the limit moves in a span.
func (k tokens) moves(span int64) int64 {
	hi, lo := bits.Mul64(uint64(span), k.num)
	return divUp(hi, lo, k.den)
}

// place is the limit at an instant: its position modulo 2^64, and what of a position is left over, in 1/den.
type place struct{ at, rest uint64 }

func (k tokens) position(t int64) place {
	hi, lo := bits.Mul64(uint64(t), k.num)
	if k.den == wholeScale {
		return place{at: lo}
	}
	q, r := bits.Div64(hi%k.den, lo, k.den)
	return place{at: q, rest: r}
}

func (k tokens) word(limit place, debt int64) uint64 { return (limit.at + uint64(debt)) << 1 }

// debt is by how much a position is ahead of the limit; 0 is a full bucket. It is more than the size for a call that
// was overtaken, and nothing for a position that only seems ahead because it is so old.
func (k tokens) debt(w uint64, limit place) int64 {
	d := int64(w&^bucketGone-limit.at<<1) >> 1
	if d < 0 || d > k.size+k.late {
		return 0
	}
	return d
}

func (s *state) takeTokens(sh *shape, n, t int64) (Result, bool) {
	k := &sh.token
	limit := k.position(t)
	for {
		w := s.a.Load()
		if w&bucketGone != 0 {
			return Result{}, false
		}
		debt := k.debt(w, limit)
		free := max(k.size-debt, 0) / k.scale
		switch {
		case max(n, 1) > free:
			need := debt - k.size + max(n, 1)*k.scale
			return sh.refused(free, k.wait(need, limit), k.wait(debt, limit)), true
		case n == 0 || s.a.CompareAndSwap(w, k.word(limit, debt+n*k.scale)):
			return sh.allowed(free-n, k.wait(debt+n*k.scale, limit)), true
		}
	}
}

// wait is the time until the limit has moved by so many positions, at most the largest int64.
func (k *tokens) wait(move int64, limit place) int64 {
	if move <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(move), k.den)
	lo, borrow := bits.Sub64(lo, limit.rest, 0)
	return divUp(hi-borrow, lo, k.num)
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
