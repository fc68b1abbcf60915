package ratelimit

import (
	"sync/atomic"
	"time"

	"github.com/puzpuzpuz/xsync/v4"
)

const (
	shards = 64
	// idleFor is how long a state must have been at its full allowance before it is forgotten: longer than calls may
	// be behind one another, so that none of them meets a fresh state while its own time still sees the old one.
	idleFor = 2 * clockJitter
	// makeRoomEvery bounds what a flood of new keys can spend on looking for idle ones.
	makeRoomEvery = int64(10 * time.Millisecond)
)

// identity is a caller and a key, hashed apart from each other: ("ab", "c") is not ("a", "bc").
type identity struct{ caller, key uint64 }

// hash is uniform for the random seeds, also over the keys of one caller and over the callers of one key.
func (id identity) hash() uint64 { return id.caller + id.key }

// table maps hashes to states, at most so many. It is cut in shards so that a sweep is a bounded piece of work.
type table struct {
	shards [shards]*xsync.Map[uint64, *state]
	most   int64
	count  atomic.Int64
	hand   atomic.Uint64 // the shard to sweep next
	room   atomic.Int64  // when a call that finds no room may sweep again
}

func newTable(most int) *table {
	t := &table{most: int64(most)}
	for i := range t.shards {
		t.shards[i] = xsync.NewMap[uint64, *state]()
	}
	return t
}

func (m *table) shard(hash uint64) *xsync.Map[uint64, *state] { return m.shards[hash%shards] }

func (m *table) load(hash uint64) (*state, bool) { return m.shard(hash).Load(hash) }

// open returns the state of a key in the given shape, made by fresh when the key is new; nil when there is no room for
// a new one. Room is taken while the key's place in the map is held: of callers who come at once for a new key, none
// finds the last room taken by another one of them.
func (m *table) open(hash uint64, sh *shape, t int64, fresh func() *state) *state {
	for {
		s, _ := m.shard(hash).Compute(hash, func(old *state, known bool) (*state, xsync.ComputeOp) {
			switch {
			case known && old.shape.same(sh):
				return old, xsync.CancelOp
			case known:
				return old.successor(sh, t), xsync.UpdateOp
			case m.reserve():
				return fresh(), xsync.UpdateOp
			default:
				return nil, xsync.CancelOp
			}
		})
		if s != nil || !m.makeRoom(t) {
			return s
		}
	}
}

// reserve counts a key that is about to be created. It is false at the bound.
func (m *table) reserve() bool {
	for {
		n := m.count.Load()
		if n >= m.most {
			return false
		}
		if m.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// makeRoom sweeps a shard, unless that was just done. It is true when it forgot a key.
func (m *table) makeRoom(t int64) bool {
	at := m.room.Load()
	return t >= at && m.room.CompareAndSwap(at, t+makeRoomEvery) && m.sweep(t) > 0
}

// sweep forgets the idle keys of one shard.
func (m *table) sweep(t int64) int {
	if t < idleFor {
		return 0
	}
	return m.shards[m.hand.Add(1)%shards].DeleteMatching(func(_ uint64, s *state) (remove, stop bool) {
		if !s.forget(t - idleFor) {
			return false, false
		}
		m.count.Add(-1)
		return true, false
	})
}
