package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Dead is what a process that is gone had counted.
type Dead struct {
	Node    int64
	Created time.Time // when the node opened its journal
	Entries []Entry   // in order of key, then hash
}

// Entry is the cumulative usage of a node under a key: its last total, summed
// over all slots of that key and hash.
type Entry struct {
	Key   int64
	Hash  Hash
	Total uint64 // at most 2^63 - 1
}

// Recover calls store for each dead node of the installation in the folder, by
// ascending node id, and removes the node's files when store returns nil. A
// store that fails leaves them for the next time. Because a crash may come
// after store and before the removal, store may see a node again with the same
// totals: it must take the maximum, not add.
//
// The files of a live process are not touched. While store runs the node is
// locked, so of two recoveries at once only one sees it. What can't be read as a
// whole is left exactly as it is, in place and under its name, where the version
// or installation that understands it looks for it; each such problem is
// returned, and returned again next time. Nothing of a node with such a file is
// stored: a sum with a part missing would hand units back that were used.
//
// A missing folder holds nothing to recover. The error says that the folder
// could not be read at all, or that ctx ended; ctx is looked at between nodes.
func Recover(ctx context.Context, dir string, installation [16]byte, store func(context.Context, Dead) error) ([]*Problem, error) {
	if p := supported(); p != nil {
		return nil, p
	}
	if missing(dir) {
		return nil, nil
	}
	if p := checkDir(dir); p != nil {
		return nil, p
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault(err, dir, "the folder for journals can't be read")
	}
	lowest := map[int64]uint32{} // by node, the lowest segment seen
	var problems []*Problem
	for _, file := range files {
		name := file.Name()
		node, segment, ok := parseName(name)
		switch {
		case ok:
			if known, seen := lowest[node]; !seen || segment < known {
				lowest[node] = segment
			}
		case isDraft(name):
			if err := sweepDraft(filepath.Join(dir, name)); err != nil {
				problems = append(problems, fault(err, filepath.Join(dir, name), "a file that was never finished can't be removed; it holds no counts, remove it"))
			}
		case strings.HasSuffix(name, suffix):
			problems = append(problems, &Problem{Reason: Misplaced, Path: filepath.Join(dir, name),
				Detail: "no journal has this name; if the file was renamed, give it its name back, else move it away"})
		}
	}
	for _, node := range slices.Sorted(maps.Keys(lowest)) {
		if err := ctx.Err(); err != nil {
			return problems, fmt.Errorf("recover journals in %q: %w", dir, err)
		}
		r := recovery{dir: dir, installation: installation, node: node}
		if p := r.run(ctx, lowest[node], store); p != nil {
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// sweepDraft removes a file that its maker did not live to finish.
func sweepDraft(path string) error {
	f, err := openExisting(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	locked, err := tryLock(f)
	if err == nil && locked && samePlace(f, path) {
		err = os.Remove(path)
	}
	return errors.Join(err, unlockAndClose(f))
}

// recovery is the work on one node.
type recovery struct {
	dir          string
	installation [16]byte
	node         int64
}

func (r recovery) path(segment uint32) string { return segmentPath(r.dir, r.node, segment) }

// run recovers the node unless somebody owns it. seen is a segment of it that
// was there a moment ago.
func (r recovery) run(ctx context.Context, seen uint32, store func(context.Context, Dead) error) (problem *Problem) {
	path := r.path(0)
	f, err := openExisting(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Segment 0 is made first and removed last: without it, the others are gone too.
		if seen == 0 || missing(r.path(seen)) {
			return nil
		}
		return r.incomplete(0)
	}
	if err != nil {
		return unreadable(err, path)
	}
	defer func() {
		if err := unlockAndClose(f); err != nil && problem == nil {
			problem = unreadable(err, path)
		}
	}()
	locked, err := tryLock(f)
	if err != nil {
		return unreadable(err, path)
	}
	if !locked || !samePlace(f, path) {
		return nil // alive, or just recovered by somebody else
	}
	head, segments, settled, problem := r.open(f)
	if problem != nil {
		return problem
	}
	if !settled {
		dead, problem := r.read(f, head, segments)
		if problem != nil {
			return problem
		}
		if err := store(ctx, dead); err != nil {
			return &Problem{Reason: Rejected, Path: path, Err: err,
				Detail: "the counts could not be stored; the node's files are kept for the next attempt"}
		}
	}
	if err := settle(r.dir, r.node, segments, f); err != nil {
		return &Problem{Reason: Stuck, Path: path, Err: err,
			Detail: "the counts are stored, but the node's files can't be removed: remove them"}
	}
	return nil
}

// open reads the header of segment 0 and finds how many segments there are.
func (r recovery) open(f *os.File) (head header, segments uint32, settled bool, problem *Problem) {
	b, head, problem := r.header(f, 0)
	if problem != nil {
		return header{}, 0, false, problem
	}
	counted := uint64At(b, offSegments)
	if counted > maxSegments {
		return header{}, 0, false, torn("the number of segments is impossible").at(r.path(0))
	}
	settled = uint64At(b, offState) != stateOpen
	segments = max(1, uint32(counted))
	// One more may be there: its maker was killed before it was counted.
	if !missing(r.path(segments)) && segments < maxSegments {
		segments++
	}
	return head, segments, settled, nil
}

// header reads and checks the header of an open segment.
func (r recovery) header(f *os.File, segment uint32) ([]byte, header, *Problem) {
	path := r.path(segment)
	info, err := f.Stat()
	if err != nil {
		return nil, header{}, unreadable(err, path)
	}
	if !info.Mode().IsRegular() {
		return nil, header{}, unreadable(errors.New("not a regular file"), path)
	}
	b := make([]byte, headerSize)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, header{}, unreadable(err, path)
	}
	h, problem := parseHeader(b[:n], info.Size())
	if problem != nil {
		return nil, header{}, problem.at(path)
	}
	if h.installation != r.installation {
		return nil, header{}, &Problem{Reason: Foreign, Path: path, Detail: fmt.Sprintf(
			"the file belongs to installation %x, this is %x: start an enforcer on this folder with that installation's database, which stores what it holds, or move it away",
			h.installation, r.installation)}
	}
	if h.node != r.node || h.segment != segment {
		return nil, header{}, &Problem{Reason: Misplaced, Path: path, Detail: fmt.Sprintf(
			"the header says node %d, segment %d: give the file its name back; if it is a copy, move it away", h.node, h.segment)}
	}
	return b, h, nil
}

// read sums the slots of all segments.
func (r recovery) read(first *os.File, head header, segments uint32) (Dead, *Problem) {
	sums := tally{}
	for i := range segments {
		if p := r.readSegment(first, head, i, sums); p != nil {
			return Dead{}, p
		}
	}
	dead := Dead{Node: r.node, Created: head.created, Entries: make([]Entry, 0, len(sums))}
	for id, sum := range sums {
		dead.Entries = append(dead.Entries, Entry{Key: id.key, Hash: id.hash, Total: sum})
	}
	slices.SortFunc(dead.Entries, func(a, b Entry) int {
		if c := cmp.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return bytes.Compare(a.Hash[:], b.Hash[:])
	})
	return dead, nil
}

func (r recovery) readSegment(first *os.File, head header, segment uint32, sums tally) (problem *Problem) {
	path, f := r.path(segment), first
	if segment > 0 {
		var err error
		f, err = openExisting(path)
		if errors.Is(err, fs.ErrNotExist) {
			return r.incomplete(segment)
		}
		if err != nil {
			return unreadable(err, path)
		}
		defer func() {
			if err := f.Close(); err != nil && problem == nil {
				problem = unreadable(err, path)
			}
		}()
	}
	_, h, problem := r.header(f, segment)
	if problem != nil {
		return problem
	}
	if !h.created.Equal(head.created) || h.slots != head.slots {
		return torn("the file was not made together with segment 0 of the node").at(path)
	}
	// Read, not mapped: a bad disk must be an error here, not a fault.
	slots := make([]byte, int(h.slots)*slotSize)
	if _, err := f.ReadAt(slots, headerSize); err != nil {
		return unreadable(err, path)
	}
	if !sums.add(slots) {
		return torn("a total is beyond 2^63").at(path)
	}
	return nil
}

func (r recovery) incomplete(segment uint32) *Problem {
	return &Problem{Reason: Incomplete, Path: r.path(segment), Detail: "this segment of the node is missing, so its sums would be short: " +
		"put the file back, or move the node's files away and give up the node's unsent usage"}
}

func unreadable(err error, path string) *Problem {
	return &Problem{Reason: Unreadable, Path: path, Err: err,
		Detail: "the file can't be read: run recovery as the user that made it, or look after the disk"}
}
