package ratelimit

// fixed reads a word at a call in window k that ends in left nanoseconds: the window that counts for the call, the
// time until that one ends, and what is used of it. A call that was overtaken by one of a later window counts there.
func (sh *shape) fixed(w uint64, k uint32, left int64) (window uint32, end, used int64) {
	lead := sh.lead(index(w), k)
	if index(w) == k+lead {
		used = count(w)
	}
	return k + lead, left + int64(lead)*sh.window, used
}

func (s *state) takeFixed(sh *shape, n, t int64) (Result, bool) {
	k, left := sh.at(t)
	for {
		w := s.a.Load()
		if w&gone != 0 {
			return Result{}, false
		}
		window, end, used := sh.fixed(w, k, left)
		switch {
		case used+max(n, 1) > sh.capacity:
			return sh.refused(sh.capacity-used, end, end), true
		case n == 0 || s.a.CompareAndSwap(w, word(window, used+n)):
			return sh.allowed(sh.capacity-used-n, end), true
		}
	}
}
