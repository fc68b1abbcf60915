package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"slices"
	"time"
)

// The header of a file. All numbers are in the byte order of the machine,
// because the slots are; a file from a machine of the other order is noticed.
//
//	  0  magic, 8 bytes
//	  8  format, uint32          magic and format stay here in every format
//	 12  byte order, uint32
//	 16  installation, 16 bytes
//	 32  node, int64
//	 40  segment, uint32
//	 44  slots, uint32
//	 48  slot size, uint32
//	 52  header size, uint32
//	 56  created, int64, nanoseconds since 1970
//	 64  CRC-32C of the bytes before, uint32
//	128  segments, uint64        in segment 0 only; changes
//	136  state, uint64           in segment 0 only; changes
const (
	magic      = "WEIRJRNL"
	format     = 1
	byteOrder  = 0x01020304
	headerSize = 4096

	offChecksum = 64
	offSegments = 128
	offState    = 136

	stateOpen    = 0
	stateSettled = 1 // all counts are stored elsewhere: the files may go

	maxSegmentSlots = 1 << 14
	maxSegments     = 1 << 10
)

type header struct {
	installation [16]byte
	node         int64
	segment      uint32
	slots        uint32
	created      time.Time
}

func (h header) fileSize() int64 { return headerSize + int64(h.slots)*slotSize }

// encode is the whole header, its changing fields zero.
func (h header) encode() []byte {
	b := make([]byte, headerSize)
	copy(b, magic)
	e := binary.NativeEndian
	e.PutUint32(b[8:], format)
	e.PutUint32(b[12:], byteOrder)
	copy(b[16:], h.installation[:])
	e.PutUint64(b[32:], uint64(h.node))
	e.PutUint32(b[40:], h.segment)
	e.PutUint32(b[44:], h.slots)
	e.PutUint32(b[48:], slotSize)
	e.PutUint32(b[52:], headerSize)
	e.PutUint64(b[56:], uint64(h.created.UnixNano()))
	e.PutUint32(b[offChecksum:], checksum(b))
	return b
}

func checksum(b []byte) uint32 {
	return crc32.Checksum(b[:offChecksum], crc32.MakeTable(crc32.Castagnoli))
}

// parseHeader reads a header from the start of a file of the given size. The
// installation is not judged.
func parseHeader(b []byte, size int64) (header, *Problem) {
	if len(b) < headerSize {
		return header{}, torn("the file is shorter than its header")
	}
	if string(b[:8]) != magic {
		if bytes.Count(b[:headerSize], []byte{0}) == headerSize {
			return header{}, torn("the header is empty; the machine may have lost power")
		}
		return header{}, torn("this is no journal file")
	}
	e := binary.NativeEndian
	if order := e.Uint32(b[12:]); order == bits.ReverseBytes32(byteOrder) {
		return header{}, torn("the file comes from a machine with another byte order; recover it there")
	}
	if f := e.Uint32(b[8:]); f > format {
		return header{}, &Problem{Reason: NewFormat, Detail: fmt.Sprintf(
			"format %d is newer than %d, the newest that this version reads; start the newer version again, it recovers the file", f, format)}
	}
	if e.Uint32(b[offChecksum:]) != checksum(b) {
		return header{}, torn("the checksum of the header is wrong")
	}
	h := header{
		installation: [16]byte(b[16:32]),
		node:         int64(e.Uint64(b[32:])),
		segment:      e.Uint32(b[40:]),
		slots:        e.Uint32(b[44:]),
		created:      time.Unix(0, int64(e.Uint64(b[56:]))).UTC(),
	}
	// A checksum that is right makes these impossible but for a file made up.
	fits := e.Uint32(b[8:]) == format && e.Uint32(b[12:]) == byteOrder &&
		e.Uint32(b[48:]) == slotSize && e.Uint32(b[52:]) == headerSize &&
		h.node > 0 && h.segment < maxSegments && h.slots > 0 && h.slots <= maxSegmentSlots
	if !fits {
		return header{}, torn("the header holds values that no version writes")
	}
	if h.fileSize() != size {
		return header{}, torn(fmt.Sprintf("the file has %d bytes instead of %d", size, h.fileSize()))
	}
	return h, nil
}

func torn(what string) *Problem {
	return &Problem{Reason: Torn, Detail: what + "; no file of this node was changed or read further, and nothing of it is counted: " +
		"restore the file, or move the node's files away and give up the node's unsent usage"}
}

// tally sums the slots of files by key and hash.
type tally map[entryID]uint64

type entryID struct {
	key  int64
	hash Hash
}

// add reads whole slots; it reports a total that is no count of units.
func (t tally) add(slots []byte) bool {
	e := binary.NativeEndian
	for s := range slices.Chunk(slots, slotSize) {
		id := entryID{key: int64(e.Uint64(s[16:])), hash: Hash(s[24:40])}
		if id.hash.hi() == 0 {
			continue
		}
		n := total(e.Uint64(s[0:]), e.Uint64(s[8:]))
		sum, carry := bits.Add64(t[id], n, 0)
		if carry != 0 || sum > 1<<63-1 {
			return false
		}
		t[id] = sum
	}
	return true
}

func uint64At(b []byte, off int) uint64 { return binary.NativeEndian.Uint64(b[off:]) }
