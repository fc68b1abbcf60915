package api

import (
	"crypto/rand"
	"sync"
	"time"

	"github.com/weirhq/weir/enforcer"
)

const (
	// keptFor is how long a reservation can be settled or cancelled, and its outcome asked again: longer than the
	// enforcer keeps one open, since work that took longer is settled all the same.
	keptFor = 30 * time.Minute
	// maxKept bounds the reservations in memory, closed ones included. Past it the oldest closed one is forgotten; the
	// enforcer bounds the open ones below it.
	maxKept = 200_000
	// maxSpared is how many open ones are passed over, at each new one, in the search for a closed one to forget.
	maxSpared = 64
)

// reservations remembers what was reserved by the ids that callers were given. They are random: an id is the right to
// settle. Safe for concurrent use.
type reservations struct {
	mu   sync.Mutex
	byID map[string]*reservation
	// order holds them by age, oldest first, but for open ones that were passed over; those that are forgotten leave by
	// the front.
	order []*reservation
}

// reservation is one of them. Its own lock serialises settle and cancel, of which the first counts.
type reservation struct {
	id   string
	made time.Time
	held *enforcer.Reservation

	mu    sync.Mutex
	state string // "open", "settled", "cancelled"
}

func newReservations() *reservations {
	return &reservations{byID: make(map[string]*reservation)}
}

// add remembers a reservation at an instant.
func (rs *reservations) add(held *enforcer.Reservation, now time.Time) *reservation {
	r := &reservation{id: rand.Text(), made: now, held: held, state: "open"}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for spared := 0; len(rs.order) > 0 && (now.Sub(rs.order[0].made) > keptFor || len(rs.order) >= maxKept); {
		oldest := rs.order[0]
		rs.order[0] = nil
		rs.order = rs.order[1:]
		if spared < maxSpared && now.Sub(oldest.made) <= keptFor && oldest.mayBeOpen() {
			spared++
			rs.order = append(rs.order, oldest)
			continue
		}
		delete(rs.byID, oldest.id)
	}
	rs.byID[r.id] = r
	rs.order = append(rs.order, r)
	return r
}

// mayBeOpen reports whether it is open, or just being settled or cancelled.
func (r *reservation) mayBeOpen() bool {
	if !r.mu.TryLock() {
		return true
	}
	defer r.mu.Unlock()
	return r.state == "open"
}

// find returns the reservation of an id, or nil.
func (rs *reservations) find(id string) *reservation {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byID[id]
}
