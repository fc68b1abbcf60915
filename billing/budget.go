package billing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Stripe allows an account 100 calls a second in live mode and 25 in test mode, 25 to each endpoint, and counts meter
// events apart in live mode (1,000 a second). We take at most half of what is shared with the rest of the business.
const (
	liveEvents, testEvents = 1000, 12
	liveReads, testReads   = 20, 5
	maxEndpoints           = 64
	longestWait            = 5 * time.Second
)

// errBudget says that the budget is spent for longer than a call waits, or could not be read: nothing was called, and
// the work stays due.
type errBudget struct {
	wait  time.Duration
	cause error // nil: it is spent
}

func (e *errBudget) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("no place in the budget of calls to Stripe: %s", e.cause)
	}
	return fmt.Sprintf("the budget of calls to Stripe is spent for %s", e.wait)
}

func (e *errBudget) Unwrap() error { return e.cause }

// lender lends up to most calls of an endpoint's limit in the running second, and says how much of the second is left.
// All processes that share Stripe's limits ask one lender.
type lender func(ctx context.Context, endpoint string, most, limit int) (granted int, rest time.Duration, err error)

// budget is this process's share: its own pace, and what the lender grants of what all may do together.
type budget struct {
	events, all *bucket
	each        int
	lend        atomic.Pointer[lender] // nil: this process is the only one

	mu        sync.Mutex // guards endpoints
	endpoints map[string]*bucket
}

// bucket is the budget of one endpoint.
type bucket struct {
	name  string
	limit int // a second
	pace  *rate.Limiter

	turn  chan struct{} // holds one token; who has it may touch what follows
	left  int
	until time.Time // what is left is gone then
}

func newBucket(name string, limit int) *bucket {
	// Bursts of a tenth of a second: Stripe's own bucket is a second's, shared with what was sent before.
	return &bucket{name: name, limit: limit, pace: rate.NewLimiter(rate.Limit(limit), max(1, limit/10)), turn: make(chan struct{}, 1)}
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
	return &budget{
		events: newBucket("meter events", events), all: newBucket("all", reads*5/2), each: reads, endpoints: make(map[string]*bucket),
	}
}

func (b *budget) eventsPerSecond() int { return b.events.limit }

// take waits for a place. Any error says that nothing was called.
func (b *budget) take(ctx context.Context, endpoint string, event bool) error {
	err := b.takeAll(ctx, endpoint, event)
	if b := (*errBudget)(nil); err == nil || errors.As(err, &b) {
		return err
	}
	return &errBudget{wait: time.Second, cause: err}
}

func (b *budget) takeAll(ctx context.Context, endpoint string, event bool) error {
	if event {
		return b.takeOf(ctx, b.events)
	}
	if err := b.takeOf(ctx, b.endpoint(endpoint)); err != nil {
		return err
	}
	return b.takeOf(ctx, b.all)
}

func (b *budget) takeOf(ctx context.Context, k *bucket) error {
	if err := wait(ctx, k.pace); err != nil {
		return err
	}
	if lend := b.lend.Load(); lend != nil {
		return k.borrow(ctx, *lend)
	}
	return nil
}

// borrow takes one call of what was lent, or borrows more: a tenth of a second's calls at a time, so that several
// processes get theirs. It waits for the next second when this one's are spent, and gives up after longestWait.
func (k *bucket) borrow(ctx context.Context, lend lender) error {
	ctx, stop := context.WithTimeoutCause(ctx, longestWait, &errBudget{wait: time.Second})
	defer stop()
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for {
		now := time.Now()
		if k.left > 0 && now.Before(k.until) {
			k.left--
			return nil
		}
		granted, rest, err := lend(ctx, k.name, max(1, k.limit/10), k.limit)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return &errBudget{wait: time.Second, cause: err}
		}
		if k.left, k.until = granted, now.Add(rest); granted > 0 {
			continue
		}
		if err := sleep(ctx, rest); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *budget) endpoint(name string) *bucket {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, ok := b.endpoints[name]
	if !ok {
		if len(b.endpoints) >= maxEndpoints { // names are this package's own; it never happens
			clear(b.endpoints)
		}
		k = newBucket(name, b.each)
		b.endpoints[name] = k
	}
	return k
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
	if err := sleep(ctx, d); err != nil {
		r.Cancel()
		return err
	}
	return nil
}
