// Package clock tells business time: the instants that periods, stamps and histories are decided by.
//
// In production that is the database's clock, so that the skew of a machine's own clock moves no boundary. A demo or a
// test simulates it. Waits, heartbeats and time-outs use wall time and have no place here.
package clock

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Clock tells business time. Now is safe for concurrent use.
type Clock interface{ Now() time.Time }

// Database follows the database's clock: this machine's, moved by an offset that Sync measures. Before the first Sync
// it is this machine's. Safe for concurrent use.
type Database struct {
	read func(context.Context) (time.Time, error)

	mu     sync.RWMutex
	offset time.Duration
	synced time.Time
}

// syncEvery is how often Run measures the offset.
const syncEvery = time.Second

// NewDatabase returns a clock that measures its offset by read, which asks the database for its business time.
func NewDatabase(read func(context.Context) (time.Time, error)) *Database {
	return &Database{read: read}
}

// Now is business time, in UTC.
func (d *Database) Now() time.Time {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return time.Now().Add(d.offset).UTC()
}

// Sync measures the offset once.
func (d *Database) Sync(ctx context.Context) error {
	sent := time.Now()
	at, err := d.read(ctx)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	received := time.Now()
	middle := sent.Add(received.Sub(sent) / 2)
	d.mu.Lock()
	d.offset, d.synced = at.Sub(middle.Round(0)), received
	d.mu.Unlock()
	return nil
}

// Run measures the offset every second until ctx ends. A database that does not answer leaves the last offset.
func (d *Database) Run(ctx context.Context) {
	t := time.NewTicker(syncEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		once, cancel := context.WithTimeout(ctx, syncEvery)
		_ = d.Sync(once) // readiness is told by who needs the database, not by its clock
		cancel()
	}
}

// Offset is the last measured distance of the database's clock from this machine's, and when it was measured.
func (d *Database) Offset() (offset time.Duration, measured time.Time) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.offset, d.synced
}

// Simulated is a clock for demos and tests. It goes on like a wall clock and can be set. Safe for concurrent use.
type Simulated struct {
	mu   sync.RWMutex
	at   time.Time
	wall time.Time
}

// NewSimulated returns a clock that shows at now.
func NewSimulated(at time.Time) *Simulated { return &Simulated{at: at.UTC(), wall: time.Now()} }

// Now is simulated time, in UTC.
func (s *Simulated) Now() time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.at.Add(time.Since(s.wall))
}

// Set moves the clock. It never goes back: an instant that has passed already leaves it as it is.
func (s *Simulated) Set(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.at.Add(time.Since(s.wall)); at.Before(now) {
		return
	}
	s.at, s.wall = at.UTC(), time.Now()
}
