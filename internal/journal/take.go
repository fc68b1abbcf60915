package journal

import (
	"encoding/binary"
	"time"
)

// Take gives a slot to a key, with base as its total so far and nothing left.
// It never fails: when no slot of a file can be had, the slot is on the heap.
// It waits for the disk only when the last free slot is gone, and at most for
// Config.Patience. Several slots may carry the same key; recovery sums them, so
// one of them starts from what was counted before and the others from zero.
// Take panics on a hash that KeyHash did not make and whose second half is zero.
func (j *Journal) Take(key int64, hash Hash, base uint64) *Slot {
	if hash.hi() == 0 {
		panic("journal: a slot needs a hash made by KeyHash")
	}
	s := j.pick()
	writes := s.occupy(key, hash, base)
	apply(writes[:])
	return s
}

// TakeBeside gives a further slot to the key of a slot that the caller holds,
// with zero as its total. It returns nil when that slot was hidden.
func (j *Journal) TakeBeside(s *Slot) *Slot {
	var hash Hash
	binary.NativeEndian.PutUint64(hash[:8], s.lo.Load())
	binary.NativeEndian.PutUint64(hash[8:], s.hi.Load())
	if hash.hi() == 0 {
		return nil
	}
	return j.Take(int64(s.key.Load()), hash, 0)
}

// pick finds a slot that belongs to nobody, or makes one on the heap.
func (j *Journal) pick() *Slot {
	j.mu.Lock()
	defer j.unlock()
	var patience <-chan time.Time
	late := false
	for {
		if s := j.pop(); s != nil {
			if j.available() <= j.config.SegmentSlots/4 {
				j.grow() // ahead of need
			}
			return s
		}
		done := j.grow()
		if done == nil || late || j.stalled() {
			return j.spill()
		}
		if patience == nil {
			patience = time.After(j.config.Patience)
		}
		j.unlock()
		select {
		case <-done:
		case <-patience:
			late = true
		}
		j.mu.Lock()
		if late && j.growing == done {
			j.stall()
		}
	}
}

func (j *Journal) available() int { return j.slots - j.next + len(j.free) }

// pop takes a free slot, one used before if there is one: its page is warm.
func (j *Journal) pop() *Slot {
	if j.closed || j.available() == 0 {
		return nil
	}
	var i int
	if n := len(j.free); n > 0 {
		i = int(j.free[n-1])
		j.free = j.free[:n-1]
	} else {
		i = j.next
		j.next++
	}
	seg := j.segments[i/j.config.SegmentSlots]
	seg.taken++
	s := seg.slot(i % j.config.SegmentSlots)
	s.place.Store(uint64(i) + 1)
	s.taken.Store(true)
	return s
}

// spill makes a slot on the heap. An object of 64 bytes without pointers is a
// cache line of its own there too.
func (j *Journal) spill() *Slot {
	j.onHeap++
	j.spilled++
	s := new(Slot)
	s.taken.Store(true)
	return s
}

// Release gives a slot back: it is skipped by recovery from now on and may be
// another key's at the next Take. The caller guarantees that its total is
// stored elsewhere and that nobody touches it any more. Slots that share a key
// are released together, once the total of all is stored. While the journal is
// open a second Release of a slot that nobody took since does nothing.
func (j *Journal) Release(s *Slot) {
	j.mu.Lock()
	defer j.unlock()
	if !s.taken.CompareAndSwap(true, false) {
		return
	}
	writes := s.vacate()
	apply(writes[:])
	if s.OnHeap() {
		j.onHeap--
		return
	}
	i := int(s.place.Load()) - 1
	j.segments[i/j.config.SegmentSlots].taken--
	j.free = append(j.free, uint32(i))
}
