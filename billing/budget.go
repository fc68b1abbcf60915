package billing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Stripe allows an account 100 calls a second in live mode and 25 in test mode, 25 to each endpoint, and counts meter
// events apart in live mode (1,000 a second). We take at most half of what is shared with the rest of the business.
const (
	liveEvents, testEvents = 1000, 15
	liveReads, testReads   = 20, 5
	maxEndpoints           = 64
	longestWait            = 5 * time.Second
)

// errBudget says that the budget is spent for longer than a call waits; the work stays due.
type errBudget struct{ wait time.Duration }

func (e *errBudget) Error() string {
	return fmt.Sprintf("the budget of calls to Stripe is spent for %s", e.wait)
}

type budget struct {
	events, all *rate.Limiter
	each        int

	mu        sync.Mutex // guards endpoints
	endpoints map[string]*rate.Limiter
}

func newBudget(live bool, cfg ClientConfig) *budget {
	events, reads := cfg.EventsPerSecond, cfg.ReadsPerSecond
	if events == 0 {
		events = testEvents
		if live {
			events = liveEvents
		}
	}
	if reads == 0 {
		reads = testReads
		if live {
			reads = liveReads
		}
	}
	together := reads * 5 / 2
	return &budget{
		// Bursts of a tenth of a second: Stripe's own bucket is a second's, shared with what was sent before.
		events: rate.NewLimiter(rate.Limit(events), max(1, events/10)), all: rate.NewLimiter(rate.Limit(together), max(1, together/10)),
		each: reads, endpoints: make(map[string]*rate.Limiter),
	}
}

func (b *budget) take(ctx context.Context, endpoint string, event bool) error {
	if event {
		return wait(ctx, b.events)
	}
	if err := wait(ctx, b.endpoint(endpoint)); err != nil {
		return err
	}
	return wait(ctx, b.all)
}

func (b *budget) endpoint(name string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.endpoints[name]
	if !ok {
		if len(b.endpoints) >= maxEndpoints { // names are this package's own; it never happens
			clear(b.endpoints)
		}
		l = rate.NewLimiter(rate.Limit(b.each), max(1, b.each/10))
		b.endpoints[name] = l
	}
	return l
}

// wait takes one place, or says how long it would take where that is too long.
func wait(ctx context.Context, l *rate.Limiter) error {
	r := l.Reserve()
	d := r.Delay()
	if d > longestWait {
		r.Cancel()
		return &errBudget{wait: d}
	}
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		r.Cancel()
		return ctx.Err()
	}
}
