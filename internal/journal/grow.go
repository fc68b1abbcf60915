package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// grow starts to make the next segment, unless that is under way, and returns
// the channel that is closed when it is done. nil: there will be none now. The
// caller holds the mutex; the disk is waited for without it.
func (j *Journal) grow() <-chan struct{} {
	if j.heap || j.closed {
		return nil
	}
	if j.growing != nil {
		return j.growing
	}
	if !j.failedAt.IsZero() && time.Since(j.failedAt) < retryAfter {
		return nil
	}
	n := len(j.segments)
	if n == maxSegments {
		j.fail(&Problem{Reason: SlotLimit, Path: j.config.Dir,
			Detail: fmt.Sprintf("all %d slots are taken; a journal holds no more", j.slots)})
		return nil
	}
	done := make(chan struct{})
	j.growing = done
	j.work.Go(func() {
		seg, first, p := j.make(n)
		j.mu.Lock()
		j.growing = nil
		if p != nil {
			j.fail(p)
		} else {
			j.add(seg, first)
		}
		j.unlock()
		close(done)
	})
	return done
}

// makeSegment makes segment n. The file is returned for segment 0 alone; its
// lock stands for the others, which need no descriptor.
func (j *Journal) makeSegment(n int) (*segment, *os.File, *Problem) {
	seg, f, p := createSegment(j.config.Dir, header{
		installation: j.config.Installation,
		node:         j.config.Node,
		segment:      uint32(n),
		slots:        uint32(j.config.SegmentSlots),
		created:      j.created,
	})
	if p != nil || n == 0 {
		return seg, f, p
	}
	if err := unlockAndClose(f); err != nil {
		path := segmentPath(j.config.Dir, j.config.Node, uint32(n))
		return nil, nil, fault(errors.Join(err, unmap(seg.mem), os.Remove(path)), path, "a segment can't be used")
	}
	return seg, nil, nil
}

// add makes a segment's slots available. Segment 0 counts it first: from the
// count, recovery knows that none is missing.
func (j *Journal) add(seg *segment, first *os.File) {
	if first != nil {
		j.first = first
	}
	j.segments = append(j.segments, seg)
	j.segments[0].field(offSegments).Store(uint64(len(j.segments)))
	j.slots += seg.slots
	if j.problem != nil {
		j.news = append(j.news, func() {
			j.config.Logger.Info("new counters are kept in the journal again", slog.String("folder", j.config.Dir))
		})
	}
	j.problem, j.failedAt = nil, time.Time{}
}

// fail notes why there is no further segment, and when to try again.
func (j *Journal) fail(p *Problem) {
	j.failedAt = time.Now()
	j.note(p)
}

// stall notes that a segment takes too long. It may still come; until then
// nobody waits for it again.
func (j *Journal) stall() {
	j.note(&Problem{Reason: Slow, Path: j.config.Dir,
		Detail: "the disk takes long to make a segment; counters are kept on the heap until it has"})
}

func (j *Journal) stalled() bool { return j.problem != nil && j.problem.Reason == Slow }

// note keeps the problem. A change of reason is logged, its repetition is not.
func (j *Journal) note(p *Problem) {
	if j.problem == nil || j.problem.Reason != p.Reason {
		j.news = append(j.news, func() {
			j.config.Logger.Warn("the journal can't grow: counters beyond its free slots are kept on the heap and would be lost with this process",
				slog.String("reason", string(p.Reason)), slog.Any("error", p))
		})
	}
	j.problem = p
}
