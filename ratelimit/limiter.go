package ratelimit

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// DefaultMaxKeys is the number of keys for which New makes room by default. A million active callers is more than one
// process serves; they cost 60 to 90 MB, which a process that serves them can spare.
const DefaultMaxKeys = 1_000_000

// Limiter holds the states of the keys. It is safe for concurrent use, and starts nothing: call Sweep now and then.
type Limiter struct {
	clock  clock
	nodes  atomic.Int64
	caller maphash.Seed
	key    maphash.Seed
	keys   *table
	crowd  *crowd
}

// New returns a Limiter that holds up to maxKeys states, DefaultMaxKeys if that is 0 or less.
//
// A new key that finds no room makes some by forgetting keys that are idle, which loses nothing. While more keys than
// maxKeys are in use at once, no key is reset and none goes unlimited: those that came last share states, of which
// there is one for every 64 keys (16 at least), and a share is then between them. One caller's keys fall on 16 shared
// states at most, so that a caller who floods takes little from another. A key that has room again starts with what is
// in use of the state that it shared (calls that are deciding at that moment aside).
func New(maxKeys int) *Limiter {
	if maxKeys <= 0 {
		maxKeys = DefaultMaxKeys
	}
	l := &Limiter{caller: maphash.MakeSeed(), key: maphash.MakeSeed(), keys: newTable(maxKeys), crowd: newCrowd(maxKeys)}
	l.nodes.Store(1)
	return l
}

// SetNodes tells among how many live nodes limits are shared, this one included; less than 1 is 1. It takes effect
// with the next call, on what is in use already: no key gets a fresh allowance by it.
func (l *Limiter) SetNodes(nodes int) {
	l.nodes.Store(min(max(int64(nodes), 1), maxUnits))
}

// Allow decides whether n units may pass now for a key of a caller, all or none, and counts them if so. The caller is
// an account, or whatever owns several keys; callers have their keys apart. n = 0 counts nothing and answers as for
// one unit; n < 0 is refused.
//
// now is in nanoseconds since any origin in the past, on a clock that goes on: time.Since(start), or a coarse word
// that follows it. It need not be the same for calls that overlap. If the clock is set back all the same, nobody is
// refilled and nobody locked out: time stands still for a second, two at most, and then goes on. Times before the origin
// and more than 73 years after it count as the nearest of the two.
//
// A call for a key that is known takes no lock and allocates nothing.
func (l *Limiter) Allow(caller, key string, rule *Rule, n, now int64) Result {
	sh := rule.share(l.nodes.Load())
	t := l.clock.read(now)
	if sh.capacity == 0 {
		return never(sh, sh.refused(0, 0, 0))
	}
	id := identity{maphash.String(l.caller, caller), maphash.String(l.key, key)}
	if n < 0 || n > sh.capacity {
		return never(sh, l.peek(id, sh, t))
	}
	if n == 0 {
		return l.peek(id, sh, t)
	}
	if s, ok := l.keys.load(id.hash()); ok && s.shape.same(sh) {
		if result, ok := s.take(sh, n, t); ok {
			return result
		}
	}
	return l.allowSlow(id, sh, n, t)
}

// allowSlow is Allow for a key that is new, is changing its shape, was forgotten at this moment, or shares a state.
func (l *Limiter) allowSlow(id identity, sh *shape, n, t int64) Result {
	for {
		s := l.keys.open(id.hash(), sh, t, func() *state { return l.crowd.heir(id, sh, t) })
		if s == nil {
			l.crowd.calls.Add(1)
			s = l.crowd.open(id, sh, t)
		}
		if result, ok := s.take(sh, n, t); ok {
			return result
		}
	}
}

// peek answers as for one unit, and neither counts nor creates anything.
func (l *Limiter) peek(id identity, sh *shape, t int64) Result {
	s, ok := l.keys.load(id.hash())
	if !ok {
		s, ok = l.crowd.load(id, sh)
	}
	if !ok {
		return sh.allowed(sh.capacity, 0)
	}
	if s.shape.same(sh) {
		if result, ok := s.take(sh, 0, t); ok {
			return result
		}
	}
	result, _ := s.copyAs(sh, t).take(sh, 0, t)
	return result
}

// never marks the answer to a call that no wait helps.
func never(sh *shape, at Result) Result {
	at.Allowed, at.Never, at.RetryAfter = false, true, time.Duration(sh.window)
	return at
}

// Sweep forgets idle keys: those whose whole limit is available, so that forgetting them changes no answer. One call
// looks at a 64th of all keys, so that it is short; called every second it visits each key about once a minute. It
// returns how many keys it forgot. now is as for Allow.
func (l *Limiter) Sweep(now int64) int {
	t := l.clock.read(now)
	l.crowd.table.sweep(t)
	return l.keys.sweep(t)
}

// Keys is how many keys have a state of their own.
func (l *Limiter) Keys() int { return int(l.keys.count.Load()) }

// Crowded is how many calls since New were decided by a shared state because there was no room: a sign of a flood, or
// that New was given too few keys.
func (l *Limiter) Crowded() int64 { return l.crowd.calls.Load() }
