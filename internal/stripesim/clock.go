package stripesim

import (
	"container/heap"
	"context"
	"fmt"
	"time"
)

// alarm is the next thing that time will do to an object. Setting it again
// replaces what was set before.
type alarm struct{ generation int64 }

type task struct {
	at         time.Time
	order      int64
	alarm      *alarm
	generation int64
	run        func(at time.Time)
	delivery   *delivery
}

// agenda is a queue of tasks by time, then by order of setting.
type agenda []*task

func (t *task) before(o *task) bool {
	if !t.at.Equal(o.at) {
		return t.at.Before(o.at)
	}
	return t.order < o.order
}

// Len is for container/heap.
func (a agenda) Len() int { return len(a) }

// Less is for container/heap.
func (a agenda) Less(i, j int) bool { return a[i].before(a[j]) }

// Swap is for container/heap.
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push is for container/heap.
func (a *agenda) Push(t any) { *a = append(*a, t.(*task)) }

// Pop is for container/heap.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	t := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return t
}

// peek drops tasks whose alarm was set again, and shows the first of the rest.
func (a *agenda) peek() *task {
	for len(*a) > 0 {
		t := (*a)[0]
		if t.alarm == nil || t.alarm.generation == t.generation {
			return t
		}
		heap.Pop(a)
	}
	return nil
}

// set makes run happen when time reaches at; a zero at clears the alarm.
func (s *Server) set(a *alarm, at time.Time, run func(at time.Time)) {
	a.generation++
	if at.IsZero() {
		return
	}
	s.seq++
	heap.Push(&s.agenda, &task{at: at, order: s.seq, alarm: a, generation: a.generation, run: run})
}

// now is the business time of a request.
func (s *Server) now() time.Time {
	if s.cfg.Clock == nil {
		return s.cursor
	}
	return s.cfg.Clock.Now().UTC()
}

// Now is the current business time, so a Server with its own clock is itself a
// clock for the program under test.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

// Advance moves the server's own clock to the given time and performs what
// becomes due on the way, in order and each at its own time, deliveries of
// webhooks included unless Config.ManualDelivery is set. It fails when the
// server follows Config.Clock, when to lies in the past, or when ctx ends;
// then time stands at the last thing done. A webhook receiver must not call it.
func (s *Server) Advance(ctx context.Context, to time.Time) error {
	if s.cfg.Clock != nil {
		return fmt.Errorf("advance the stripe simulator: it follows Config.Clock; move that and call Tick")
	}
	return s.runUntil(ctx, func() time.Time { return to.UTC() })
}

// Tick performs everything that is due at the current time, in order, like
// Advance. A webhook receiver must not call it.
func (s *Server) Tick(ctx context.Context) error {
	return s.runUntil(ctx, s.now)
}

func (s *Server) runUntil(ctx context.Context, target func() time.Time) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	to := target()
	behind := s.cfg.Clock == nil && to.Before(s.cursor)
	cursor := s.cursor
	s.mu.Unlock()
	if behind {
		return fmt.Errorf("advance the stripe simulator: %s lies before its time %s", to.Format(time.RFC3339), cursor.Format(time.RFC3339))
	}
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("advance the stripe simulator: %w", err)
		}
		done, d, at := s.step(to)
		if done {
			return nil
		}
		if d != nil {
			s.attempt(ctx, d, at)
		}
	}
}

// step performs the next due piece of business, or returns the next due
// delivery, which must be made without the lock.
func (s *Server) step(to time.Time) (done bool, d *delivery, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readmit()
	next, post := s.agenda.peek(), s.outbox.peek()
	if s.cfg.ManualDelivery {
		post = nil
	}
	if post != nil && (next == nil || post.before(next)) {
		if post.at.After(to) {
			s.reach(to)
			return true, nil, to
		}
		s.reach(post.at)
		return false, s.takeDelivery(s.cursor), s.cursor
	}
	if next == nil || next.at.After(to) {
		s.reach(to)
		return true, nil, to
	}
	heap.Pop(&s.agenda)
	s.reach(next.at)
	next.run(next.at)
	return false, nil, next.at
}

// SetLag changes Config.SummaryLag and Config.InvoiceLag from now on.
func (s *Server) SetLag(summary, invoice time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.SummaryLag, s.cfg.InvoiceLag = summary, invoice
}

func (s *Server) reach(at time.Time) {
	if at.After(s.cursor) {
		s.cursor = at
	}
}
