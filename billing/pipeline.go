package billing

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	claimMost  = 500                    // links claimed at once
	claimStart = 20 * time.Second       // no call of a claim begins later than this
	storeMost  = 250                    // outcomes stored at once
	storeEach  = 250 * time.Millisecond // how long an outcome waits for others to be stored with
)

// pipeline sends links while the next ones are claimed and the outcomes of the last ones are stored, each as a set:
// neither the database nor Stripe waits for the other. A link is in it from its claim, which is committed before its
// call begins, until its outcome is stored. It holds at most two claims and what the senders have in hand.
type pipeline struct {
	b      *Biller
	meters map[string]meter
	claim  source
	most   int       // links claimed at once
	last   time.Time // nothing is claimed later; zero: always

	queue   chan queued
	results chan sent
	stored  chan struct{} // holds a token after a set was stored

	mu       sync.Mutex // guards what follows
	open     int        // links claimed and not stored
	halted   error      // why Stripe takes nothing from us
	storeErr error
}

// source claims up to most links.
type source func(ctx context.Context, most int) ([]claimed, error)

type queued struct {
	claimed
	until time.Time // no call begins later
}

// send sends what claim hands out, until that is nothing although no link is in flight, or two thirds of ctx's time are
// over. It reports whether sending may go on. What was claimed and not sent when ctx ends, or when the key is refused,
// is stored as not sent.
func (b *Biller) send(ctx context.Context, claim source) (goOn bool, err error) {
	meters, err := b.metersByName(ctx)
	if err != nil {
		return false, err
	}
	// Two seconds' calls are claimed at once, and half a second's wait for their turn: nothing waits so long that its
	// claim, or its place in the budget, is gone.
	perSecond := b.cfg.Stripe.eventsPerSecond()
	p := &pipeline{
		b: b, meters: meters, claim: claim, most: min(claimMost, 2*perSecond),
		last: lastStart(ctx), queue: make(chan queued, claimMost), results: make(chan sent, claimMost), stored: make(chan struct{}, 1),
	}
	var senders, storer sync.WaitGroup
	for range min(b.cfg.Senders, (perSecond+1)/2) {
		senders.Go(func() { p.call(ctx) })
	}
	// What was begun is stored also when our own time is over: the outcomes are known now, and only now.
	storer.Go(func() { p.store(ctx) })
	err = p.feed(ctx)
	close(p.queue)
	senders.Wait()
	close(p.results)
	storer.Wait()
	err = errors.Join(err, p.storeErr)
	if p.halted != nil {
		store, cancel := b.after(ctx)
		defer cancel()
		return false, errors.Join(err, b.stop(store, "unauthorized", "Stripe does not accept the API key: "+p.halted.Error()))
	}
	return err == nil, err
}

// feed claims set after set. A set that was not full leaves nothing to claim until outcomes are stored: they free what
// waits behind them.
func (p *pipeline) feed(ctx context.Context) error {
	for {
		if p.over(ctx) {
			return ctx.Err()
		}
		idle := p.inFlight() == 0
		links, err := p.claim(ctx, p.most)
		if err != nil {
			return err
		}
		p.add(len(links))
		until := time.Now().Add(claimStart)
		for _, l := range links {
			p.queue <- queued{l, until}
		}
		switch {
		case len(links) == p.most:
			continue
		case len(links) == 0 && idle:
			return nil
		}
		select {
		case <-p.stored:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// over reports whether nothing more is to be claimed: our time is nearly over, or something is wrong.
func (p *pipeline) over(ctx context.Context) bool {
	if !p.last.IsZero() && time.Now().After(p.last) {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return ctx.Err() != nil || p.halted != nil || p.storeErr != nil
}

func (p *pipeline) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

func (p *pipeline) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open += n
}

// call makes the calls of queued links, one after the other.
func (p *pipeline) call(ctx context.Context) {
	for q := range p.queue {
		s := sent{claimed: q.claimed, outcome: later, message: "not tried", wait: time.Second}
		if p.may(ctx, q) {
			var cause error
			if s, cause = p.b.sendOne(ctx, q.claimed, p.meters); s.outcome == stopped {
				p.halt(cause)
			}
		}
		p.results <- s
	}
}

func (p *pipeline) may(ctx context.Context, q queued) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.halted == nil && ctx.Err() == nil && time.Now().Before(q.until)
}

func (p *pipeline) halt(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halted = cause
}

// store stores outcomes as sets: full ones at once, others when they have waited, or when they are all that is in flight.
func (p *pipeline) store(ctx context.Context) {
	wait := time.NewTimer(storeEach)
	defer wait.Stop()
	var set []sent
	for {
		late := false
		select {
		case s, ok := <-p.results:
			if !ok {
				p.settle(ctx, set)
				return
			}
			if set = append(set, s); len(set) == 1 {
				wait.Reset(storeEach)
			}
		case <-wait.C:
			late = true
		}
		if len(set) >= storeMost || late || len(set) == p.inFlight() {
			p.settle(ctx, set)
			set = nil
		}
	}
}

// settle stores the outcomes of a set, in bounded time. One that cannot be stored is unknown, and its set alone.
func (p *pipeline) settle(ctx context.Context, set []sent) {
	if len(set) == 0 {
		return
	}
	ctx, cancel := p.b.after(ctx)
	defer cancel()
	err := p.b.storeOutcomes(ctx, set)
	p.mu.Lock()
	p.open -= len(set)
	p.storeErr = errors.Join(p.storeErr, err)
	p.mu.Unlock()
	select {
	case p.stored <- struct{}{}:
	default:
	}
}

func (b *Biller) metersByName(ctx context.Context) (map[string]meter, error) {
	all, err := b.storedMeters(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]meter, len(all))
	for _, m := range all {
		if m.Status == "active" {
			out[m.EventName] = m
		}
	}
	return out, nil
}
