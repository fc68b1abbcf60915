package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	defaultSegmentSlots = 4096
	defaultPatience     = 250 * time.Millisecond
	retryAfter          = 5 * time.Second // between attempts while no segment can be had
)

// Config says where a journal lives and whose it is.
type Config struct {
	// Dir is made with mode 0700 where it is missing; DefaultDir is the usual one.
	Dir string
	// Installation is the random id of the database that the counts belong to.
	Installation [16]byte
	// Node is positive and never used again, not by this process either.
	Node int64
	// SegmentSlots is how many slots a file has, at most 16,384; zero means 4,096.
	SegmentSlots int
	// Patience is how long Take waits for a disk; zero means 250 ms.
	Patience time.Duration
	// Logger gets one line when counters start to live on the heap and one when
	// that ends; nil discards them.
	Logger *slog.Logger
}

// Journal hands out slots. It is safe for concurrent use.
type Journal struct {
	config  Config
	heap    bool
	created time.Time

	mu       sync.Mutex
	segments []*segment
	slots    int           // in all segments
	next     int           // slots from here on were never taken
	free     []uint32      // slots that were released
	onHeap   int           // heap slots taken now
	spilled  uint64        // heap slots ever handed out
	growing  chan struct{} // not nil while a segment is made; closed afterwards
	problem  *Problem      // why there is no further segment
	failedAt time.Time
	closed   bool
	first    *os.File       // segment 0, locked; set once
	work     sync.WaitGroup // the making of a segment; nothing starts once closed
	news     []func()       // log lines to write once the mutex is free

	// make makes segment n. A field, so that a test can stall the disk.
	make func(n int) (*segment, *os.File, *Problem)
}

// unlock frees the mutex and then logs what happened under it: a log handler
// may block, or ask for Stats.
func (j *Journal) unlock() {
	news := j.news
	j.news = nil
	j.mu.Unlock()
	for _, log := range news {
		log()
	}
}

// Open starts the journal of a new node and makes its first segment. A folder
// that can't be used, or a node that has files already, is an error, always a
// *Problem. A segment that can't be had is not: then slots are on the heap,
// Stats says why, and Take tries again every few seconds.
func Open(config Config) (*Journal, error) {
	if p := config.prepare(); p != nil {
		return nil, p
	}
	j := &Journal{config: config, created: time.Now()}
	j.make = j.makeSegment
	j.mu.Lock()
	done := j.grow()
	j.unlock()
	<-done
	if p := j.Stats().Problem; p != nil && (p.Reason == NodeInUse || p.Reason == BadFilesystem) {
		return nil, p
	}
	return j, nil
}

// prepare checks the configuration, fills its defaults and makes the folder.
func (c *Config) prepare() *Problem {
	if p := supported(); p != nil {
		return p
	}
	invalid := func(detail string) *Problem { return &Problem{Reason: InvalidConfig, Path: c.Dir, Detail: detail} }
	if c.SegmentSlots == 0 {
		c.SegmentSlots = defaultSegmentSlots
	}
	if c.Patience == 0 {
		c.Patience = defaultPatience
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Dir == "":
		return invalid("no folder is named")
	case c.Installation == [16]byte{}:
		return invalid("the installation id is empty")
	case c.Node <= 0:
		return invalid(fmt.Sprintf("node id %d is not positive", c.Node))
	case c.Patience < 0:
		return invalid("the patience is negative")
	case c.SegmentSlots < 0 || c.SegmentSlots > maxSegmentSlots:
		return invalid(fmt.Sprintf("%d slots in a segment; 1 to %d are possible", c.SegmentSlots, maxSegmentSlots))
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return fault(err, c.Dir, "the folder for journals can't be made")
	}
	if p := checkDir(c.Dir); p != nil {
		return p
	}
	return checkFilesystem(c.Dir)
}

// Heap is a journal without files: all its slots are on the heap.
func Heap() *Journal {
	return &Journal{
		heap:    true,
		config:  Config{Logger: slog.New(slog.DiscardHandler)},
		problem: &Problem{Reason: HeapOnly, Detail: "counts are kept on the heap, as configured"},
	}
}

// Close ends the journal; later Takes are on the heap. With remove, the caller
// guarantees that every count is stored elsewhere, and the files are deleted;
// without, they stay for recovery, and what is counted after Close is lost.
// Segments with a slot that was never released stay mapped until the process
// ends, so that a late store to it is no fault. A second Close does nothing.
func (j *Journal) Close(remove bool) error {
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.unlock()
	if closed {
		return nil
	}
	j.work.Wait()
	j.mu.Lock()
	defer j.unlock()
	j.problem = &Problem{Reason: Closed, Path: j.config.Dir, Detail: "the journal was closed"}
	var errs []error
	if j.first != nil {
		if remove {
			errs = append(errs, settle(j.config.Dir, j.config.Node, uint32(len(j.segments)), j.first))
		}
		errs = append(errs, unlockAndClose(j.first))
	}
	for _, seg := range j.segments {
		if seg.taken == 0 {
			errs = append(errs, unmap(seg.mem))
			seg.mem = nil
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the journal of node %d in %q: %w", j.config.Node, j.config.Dir, err)
	}
	return nil
}

// Stats is a moment of a journal.
type Stats struct {
	Segments int    // files mapped
	Slots    int    // slots in them
	Taken    int    // of those, taken
	OnHeap   int    // slots taken on the heap
	Spilled  uint64 // slots ever handed out on the heap
	Bytes    int64  // mapped
	// Problem is why new slots are on the heap, or will be when the free ones
	// are used up; nil: they are not. Its Reason is fit for a metric's label.
	Problem *Problem
}

// Stats is cheap enough for every scrape of a metric.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.unlock()
	stats := Stats{
		Segments: len(j.segments), Slots: j.slots, Taken: j.slots - j.available(),
		OnHeap: j.onHeap, Spilled: j.spilled, Problem: j.problem,
	}
	for _, seg := range j.segments {
		stats.Bytes += int64(len(seg.mem))
	}
	return stats
}
