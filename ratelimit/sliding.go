package ratelimit

import "sync/atomic"

// A sliding window keeps the counts of two windows, each in the word of its parity. Only the count of the current
// window changes: the one before is sealed before the current one is opened, so that a single compare-and-swap on the
// current word decides on a weight that can't change meanwhile. Opening is done by whoever comes first, in two swaps;
// whoever meets it half done completes it.

func (s *state) slot(k uint32) (current, before *atomic.Uint64) {
	if k&1 == 0 {
		return &s.a, &s.b
	}
	return &s.b, &s.a
}

func (s *state) openSliding(k uint32, used int64) {
	current, before := s.slot(k)
	before.Store(word(k-1, 0) | sealed)
	current.Store(word(k, used))
}

func (s *state) takeSliding(sh *shape, n, t int64) (Result, bool) {
	k, left := sh.at(t)
	for {
		current, before := s.slot(k)
		cur, prev := current.Load(), before.Load()
		switch lead := sh.lead(index(prev), k); {
		case (cur|prev)&gone != 0:
			return Result{}, false
		case lead > 0 || sh.lead(index(cur), k) > 0: // overtaken by calls of a later window: count there
			lead = max(lead, sh.lead(index(cur), k))
			k, left = k+lead, left+int64(lead)*sh.window
			continue
		case index(cur) == k && cur&sealed != 0: // somebody is opening the next window
			before.CompareAndSwap(prev, word(k+1, 0))
			continue
		case index(cur) != k:
			open(current, before, cur, prev, k)
			continue
		case index(prev) != k-1: // the two loads were of different windows
			continue
		}
		used, weight := count(cur), sh.weight(count(prev), left)
		free := sh.capacity - used - weight
		switch {
		case max(n, 1) > free:
			return sh.refused(free, sh.waitSliding(max(n, 1), used, count(prev), left),
				sh.resetSliding(used, count(prev), left)), true
		case n == 0 || current.CompareAndSwap(cur, cur+uint64(n)):
			return sh.allowed(free-n, sh.resetSliding(used+n, count(prev), left)), true
		}
	}
}

// open takes the next step towards window k: the count of the window before is made final, then k is opened.
func open(current, before *atomic.Uint64, cur, prev uint64, k uint32) {
	switch {
	case index(prev) != k-1:
		before.CompareAndSwap(prev, word(k-1, 0)|sealed)
	case prev&sealed == 0:
		before.CompareAndSwap(prev, prev|sealed)
	default:
		current.CompareAndSwap(cur, word(k, 0))
	}
}

// weight is the part of the window before that counts while left nanoseconds of the current one remain, rounded up:
// the rest of the sum is whole, so this decides as exact fractions would. left is more than a window for a late call.
func (sh *shape) weight(prev, left int64) int64 {
	if prev == 0 {
		return 0
	}
	return mulDivUp(prev, min(left, sh.window), sh.window)
}

// waitSliding is when n units pass that don't now. Either the window before has faded enough within this window, or,
// where this window's own count is too much, that has in the next one.
func (sh *shape) waitSliding(n, used, prev, left int64) int64 {
	switch room := sh.capacity - n - used; {
	case room >= 0:
		return left - mulDiv(room, sh.window, prev) // room < prev, or it would pass
	default:
		room += used // in the next window, where used is the count before; room < used
		return left + sh.window - mulDiv(room, sh.window, used)
	}
}

// resetSliding is when nothing counts any more.
func (sh *shape) resetSliding(used, prev, left int64) int64 {
	switch {
	case used > 0:
		return left + sh.window
	case prev > 0:
		return left
	default:
		return 0
	}
}

// usedSliding reads two words that need not be of one instant: what they show is never less than what is in use at t.
func (sh *shape) usedSliding(a, b uint64, k uint32, left int64) int64 {
	if lead := max(sh.lead(index(a), k), sh.lead(index(b), k)); lead > 0 {
		k, left = k+lead, left+int64(lead)*sh.window
	}
	used := int64(0)
	for _, w := range [...]uint64{a, b} {
		switch index(w) {
		case k:
			used += count(w)
		case k - 1:
			used += sh.weight(count(w), left)
		}
	}
	return min(used, maxUnits)
}
