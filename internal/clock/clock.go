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

// Database follows the database's clock as Sync reads it. Before the first Sync it is this machine's. Safe for concurrent
// use.
type Database struct {
	read  func(context.Context) (time.Time, error)
	start time.Time
	clock Followed
}

// syncEvery is how often Run reads the database's clock.
const syncEvery = time.Second

// NewDatabase returns a clock that is read by read, which asks the database for its business time.
func NewDatabase(read func(context.Context) (time.Time, error)) *Database {
	d := &Database{read: read, start: time.Now()}
	d.clock.Set(d.start, 0)
	return d
}

// Now is business time, in UTC.
func (d *Database) Now() time.Time { return time.Unix(0, d.clock.At(time.Since(d.start))).UTC() }

// Sync reads the database's clock once.
func (d *Database) Sync(ctx context.Context) error {
	sent := time.Since(d.start)
	at, err := d.read(ctx)
	if err != nil {
		return fmt.Errorf("read the database's clock: %w", err)
	}
	d.clock.Learn(at, sent, time.Since(d.start))
	return nil
}

// Run reads the database's clock every second until ctx ends. While the database does not answer the clock goes on.
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
