package clock

import (
	"sync"
	"time"
)

// Followed is a clock that is read over a network: it goes on by the time that has elapsed here, and each reading narrows
// by how much it may differ. Between two readings neither a step of this machine's time of day nor a slow answer moves
// it. The zero value began with 1970. Safe for concurrent use.
type Followed struct {
	mu     sync.Mutex
	read   bool
	offset time.Duration // since 1970, less what has elapsed here
}

// Set makes it show an instant, until it is read for the first time.
func (f *Followed) Set(at time.Time, elapsed time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read, f.offset = false, time.Duration(at.UnixNano())-elapsed
}

// Learn takes a reading that was made between two moments of what has elapsed here. The clock is moved as little as
// the reading asks for, and the first one takes it for made at the last moment: it is rather behind than ahead.
func (f *Followed) Learn(at time.Time, sent, received time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	least, most := time.Duration(at.UnixNano())-received, time.Duration(at.UnixNano())-sent
	if !f.read {
		f.offset, f.read = least, true
	}
	f.offset = min(max(f.offset, least), most)
}

// At is what it shows, in nanoseconds since 1970.
func (f *Followed) At(elapsed time.Duration) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.offset + elapsed)
}
