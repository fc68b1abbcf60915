package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"
)

// segment is one mapped file.
type segment struct {
	mem   []byte
	slots int
	taken int // guarded by the journal's mutex
}

// slot is the i-th slot, in the mapping itself. Mappings are page-aligned and
// the header is a whole number of slots, so every slot is a cache line.
func (s *segment) slot(i int) *Slot {
	return (*Slot)(unsafe.Pointer(&s.mem[headerSize+i*slotSize]))
}

// field is one of the header's changing fields.
func (s *segment) field(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.mem[off]))
}

func unlockAndClose(f *os.File) error { return errors.Join(unlock(f), f.Close()) }

const draftAttempts = 10

// createSegment makes a file with all its blocks, maps it, and only then gives
// it its name. The file is returned locked; closing it leaves the mapping.
func createSegment(dir string, h header) (*segment, *os.File, *Problem) {
	path := segmentPath(dir, h.node, h.segment)
	if err := checkFileSize(h.fileSize()); err != nil {
		return nil, nil, fault(err, path, "a segment can't be made")
	}
	f, err := lockedDraft(dir, h)
	if err != nil {
		return nil, nil, fault(err, path, "a segment can't be made")
	}
	seg, err := fillSegment(f, h)
	if err == nil {
		err = publish(f, path)
		if err != nil {
			err = errors.Join(err, unmap(seg.mem))
		}
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()), unlockAndClose(f))
		problem := fault(err, path, "a segment can't be made")
		if errors.Is(err, fs.ErrExist) {
			problem = &Problem{Reason: NodeInUse, Path: path, Err: err,
				Detail: "there is a file of this node already; a node id must never be used again: take a new one, recovery reads the old file"}
		}
		return nil, nil, problem
	}
	return seg, f, nil
}

// lockedDraft is a new empty file under a temporary name, locked before
// anybody else can take it for a dead one's.
func lockedDraft(dir string, h header) (*os.File, error) {
	for attempt := range draftAttempts {
		path := draftPath(dir, h.node, h.segment, attempt)
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock: %w", err), os.Remove(path), f.Close())
		}
		if locked && samePlace(f, path) {
			return f, nil
		}
		// A sweep of drafts was faster; it removes this one.
		if err := unlockAndClose(f); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no free name after %d attempts", draftAttempts)
}

// fillSegment gives the draft its blocks and maps it. Zeros are written over
// the allocation: a block that was written once needs nothing more from the
// file system, an extent that is only reserved does.
func fillSegment(f *os.File, h header) (*segment, error) {
	if err := allocate(f, h.fileSize()); err != nil {
		return nil, err
	}
	content := make([]byte, h.fileSize())
	copy(content, h.encode())
	if _, err := f.WriteAt(content, 0); err != nil {
		return nil, err
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	mem, err := mapShared(f, h.fileSize())
	if err != nil {
		return nil, err
	}
	return &segment{mem: mem, slots: int(h.slots)}, nil
}

// publish gives the draft its name; it replaces nothing.
func publish(f *os.File, path string) error {
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	err := os.Remove(f.Name())
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// settle marks a node's files as stored elsewhere and removes them, segment 0
// last: whoever comes after a crash in between finishes the removal.
func settle(dir string, node int64, segments uint32, first *os.File) error {
	mark := binary.NativeEndian.AppendUint64(nil, stateSettled)
	if _, err := first.WriteAt(mark, offState); err != nil {
		return fmt.Errorf("mark as settled: %w", err)
	}
	if err := first.Sync(); err != nil {
		return fmt.Errorf("mark as settled: %w", err)
	}
	return removeAll(dir, node, segments)
}

func removeAll(dir string, node int64, segments uint32) error {
	for i := segments; i > 0; i-- {
		if err := os.Remove(segmentPath(dir, node, i-1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
