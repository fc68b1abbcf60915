package journal

import (
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"
	"time"
	"unsafe"
)

// slotSize is the size of a Slot in memory and in a file: a cache line.
const slotSize = 64

// The build fails when a Slot is not exactly slotSize bytes.
const (
	_ = uint(unsafe.Sizeof(Slot{}) - slotSize)
	_ = uint(slotSize - unsafe.Sizeof(Slot{}))
)

// Slot is one counter, in a mapped file or on the heap. A *Slot of a file
// points into the mapping itself. Take hands it out; it belongs to the caller
// until Release. Its methods are safe for concurrent use.
type Slot struct {
	word  atomic.Uint64
	base  atomic.Uint64
	key   atomic.Uint64
	lo    atomic.Uint64 // first half of the hash
	hi    atomic.Uint64 // second half; zero: recovery skips the slot
	place atomic.Uint64 // index in the journal plus one; zero: heap
	taken atomic.Bool   // guards against a second Release; not read by recovery
	alarm atomic.Uint32 // the holder's
	until atomic.Int64  // the holder's
}

// Word is spent<<32 + left; Spent and Left read it. Hot paths keep the pointer.
func (s *Slot) Word() *atomic.Uint64 { return &s.word }

// Base is the checkpoint of the total. It may be moved to the current total by
// one store at any time, and must be before 2^32 units were spent since.
func (s *Slot) Base() *atomic.Uint64 { return &s.base }

// Until and Alarm are the holder's own, beside the word so that a call reads one cache line. The journal neither sets
// nor reads them: they hold what the holder before left there.
func (s *Slot) Until() *atomic.Int64 { return &s.until }

// Alarm is said at Until.
func (s *Slot) Alarm() *atomic.Uint32 { return &s.alarm }

// Key is what Take gave the slot to.
func (s *Slot) Key() int64 { return int64(s.key.Load()) }

// OnHeap reports that the slot is in no file: its count dies with the process.
func (s *Slot) OnHeap() bool { return s.place.Load() == 0 }

// Total is the cumulative number of units the slot has counted, its base
// included.
func (s *Slot) Total() uint64 {
	base := s.base.Load() // before the word: a base newer than the word would wrap
	return total(s.word.Load(), base)
}

func total(word, base uint64) uint64 {
	return base + uint64(Spent(word)-uint32(base))
}

// Left is how much the word has left: its lower half as a signed number, or
// nothing where that is below zero.
func Left(word uint64) uint64 { return uint64(max(0, int32(word))) }

// Spent is how much was taken from the word, modulo 2^32. A caller may take one
// unit by a single add of 2^32 - 1, without looking. Where nothing was left that
// makes the lower half -1, then -2, and adds as many to what stands above it:
// the two cancel each other out here, so that a unit that was not to be had is
// seen by nobody, not by recovery either. Callers put the word back to zero left
// before 2^31 such adds.
func Spent(word uint64) uint32 {
	below := min(0, int32(word))
	return uint32((word+1<<31)>>32) + uint32(below)
}

// write is one store of a sequence; the order is what makes it crash-safe.
type write struct {
	to    *atomic.Uint64
	value uint64
}

// occupy is the sequence that gives the slot to a key.
func (s *Slot) occupy(key int64, hash Hash, base uint64) [6]write {
	return [6]write{
		{&s.hi, 0},
		{&s.word, uint64(uint32(base)) << 32}, // spent = base, nothing left
		{&s.base, base},
		{&s.key, uint64(key)},
		{&s.lo, hash.lo()},
		{&s.hi, hash.hi()},
	}
}

// vacate is the sequence that takes the slot from its key.
func (s *Slot) vacate() [1]write { return [1]write{{&s.hi, 0}} }

// Hide makes recovery skip the slot from now on, though it stays its owner's until Release: another slot of the key
// begins at its total. The caller guarantees that the total is stored elsewhere and is not moved any more.
func (s *Slot) Hide() {
	writes := s.vacate()
	apply(writes[:])
}

func apply(writes []write) {
	for _, w := range writes {
		w.to.Store(w.value)
	}
}

// Hash names what a slot counts, so that a database key that means something
// else by now is noticed. KeyHash makes it; its second half is never zero.
type Hash [16]byte

func (h Hash) lo() uint64 { return binary.NativeEndian.Uint64(h[:8]) }
func (h Hash) hi() uint64 { return binary.NativeEndian.Uint64(h[8:]) }

// KeyHash is the hash of an account, a feature and the start of a period. The
// zone of periodStart does not matter, its nanoseconds do. Parts are encoded
// with their lengths: ("ab", "c") and ("a", "bc") differ.
func KeyHash(account, feature string, periodStart time.Time) Hash {
	b := make([]byte, 0, 128)
	b = append(b, "weir journal slot 1"...)
	for _, part := range [...]string{account, feature} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(part)))
		b = append(b, part...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(periodStart.Unix()))
	b = binary.BigEndian.AppendUint32(b, uint32(periodStart.Nanosecond()))
	sum := sha256.Sum256(b)
	return readable(Hash(sum[:16]))
}

// readable is h with a second half that recovery does not skip.
func readable(h Hash) Hash {
	if h.hi() == 0 {
		h[15] = 1
	}
	return h
}
