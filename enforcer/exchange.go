package enforcer

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/usage"
)

const (
	exchangeBatch   = 64              // keys in one statement
	exchangeTimeout = 5 * time.Second // of a statement; the outcome is then unknown, and the version tells later
)

// exchange is one operation of a counter with the database: an ask, an extend or a give. It owns the counter's
// operation lock until it is completed, also when its caller has gone.
type exchange struct {
	c      *counter
	give   bool
	call   usage.LeaseCall
	req    request // of a grant, what is spent or held for the caller at once
	extend bool    // no caller waits for it
	epoch  uint16

	done   chan struct{}
	gone   bool // the caller left; guarded by c.mu
	over   bool // completed; guarded by c.mu
	paid   bool // the grant was credited, its caller's units with it
	answer usage.LeaseAnswer
	err    error
}

// exchanges sends operations to the database. What gathers while statements are in flight goes in one.
type exchanges struct {
	e *Enforcer

	// fail is nil, or a test's: it may turn the answer of a statement that was carried out into an error.
	fail func() error

	mu      sync.Mutex
	asks    []*exchange
	gives   []*exchange
	running int
}

const exchangeLanes = 2 // statements in flight

func (x *exchanges) submit(ex *exchange) {
	x.mu.Lock()
	if ex.give {
		x.gives = append(x.gives, ex)
	} else {
		x.asks = append(x.asks, ex)
	}
	start := x.running < exchangeLanes
	if start {
		x.running++
	}
	x.mu.Unlock()
	if start && !x.e.spawn(x.run) {
		x.run() // the enforcer is ending: what waits is told so
	}
}

// run sends until nothing waits. Gives go first: others wait for them.
func (x *exchanges) run() {
	for {
		x.mu.Lock()
		batch, give := x.gives, true
		if len(batch) == 0 {
			batch, give = x.asks, false
		}
		if len(batch) == 0 {
			x.running--
			x.mu.Unlock()
			return
		}
		n := min(len(batch), exchangeBatch)
		rest := batch[n:]
		batch = batch[:n:n]
		if give {
			x.gives = rest
		} else {
			x.asks = rest
		}
		x.mu.Unlock()
		x.send(batch, give)
	}
}

func (x *exchanges) send(batch []*exchange, give bool) {
	e := x.e
	calls := make([]usage.LeaseCall, len(batch))
	for i, ex := range batch {
		calls[i] = ex.call
	}
	ctx, cancel := context.WithTimeout(e.life, exchangeTimeout)
	defer cancel()
	e.stats.exchanges.Add(1)
	var answers []usage.LeaseAnswer
	var err error
	if give {
		answers, err = usage.Give(ctx, e.db, e.node, calls)
	} else {
		answers, err = usage.Ask(ctx, e.db, e.node, e.judges(), calls)
	}
	if err == nil && x.fail != nil {
		err = x.fail()
	}
	if err == nil && len(answers) != len(batch) {
		err = errShortAnswer
	}
	if err != nil {
		e.noteAway(err)
	} else {
		e.noteAnswer()
	}
	for i, ex := range batch {
		var a usage.LeaseAnswer
		if err == nil {
			a = answers[i]
		}
		ex.complete(e, a, err)
	}
}

// wait blocks until the operation is completed, and reports false when the caller leaves before.
func (ex *exchange) wait(stop <-chan time.Time, done <-chan struct{}) bool {
	select {
	case <-ex.done:
		return true
	case <-stop:
	case <-done:
	}
	ex.c.mu.Lock()
	defer ex.c.mu.Unlock()
	if ex.over {
		return true
	}
	ex.gone = true
	return false
}

// complete applies the database's answer to the counter, frees the operation lock, and tells the caller.
func (ex *exchange) complete(e *Enforcer, a usage.LeaseAnswer, err error) {
	c := ex.c
	ex.answer, ex.err = a, err
	owes, changed := false, false
	c.mu.Lock()
	if err == nil {
		switch a.Status {
		case usage.LeaseOK, usage.LeaseEnded:
			owes, changed = ex.apply(e, a)
		case usage.LeaseAdopt:
			c.adopt(a)
			owes = c.back > 0
		case usage.LeaseRejoin, usage.LeaseUnknown:
			// Nothing was done; the caller sees the status.
		}
	}
	ex.over = true
	c.mu.Unlock()
	if changed {
		e.markDirty(c) // before the caller knows: a Flush after its call sends what it spent
	}
	if owes {
		e.giveSoon(c)
	}
	c.unlock()
	close(ex.done)
}

// apply credits what was granted, unless nobody waits for it or a cut came meanwhile: then all of it goes back.
// The caller holds mu.
func (ex *exchange) apply(e *Enforcer, a usage.LeaseAnswer) (owes, changed bool) {
	c := ex.c
	c.back -= ex.call.Back
	c.over -= ex.call.Over
	c.ver, c.lim, c.tight = *a.Ver, *a.Lim, *a.Tight
	if a.Got > 0 {
		// A seal or a fence may also have come between the caller's last look and its question.
		if (ex.gone && !ex.extend) || ex.epoch != c.epoch || c.sealed || e.fenced.Load() {
			c.back += a.Got
			return true, false
		}
		credit(c.word(), uint64(ex.req.spend), uint64(a.Got-ex.req.spend-ex.req.hold))
		c.hold(ex.req.hold)
		c.checkpoint()
		c.setLow(a.Got / 2)
		if h := c.cells(); h != nil && e.cellRule.always && c.left() >= e.cellRule.enough() {
			h.active.Store(true)
		}
		c.gate()
		ex.paid = true
		return false, ex.req.spend > 0
	}
	if c.told {
		return false, false // the caller asks again
	}
	if ex.call.Units > 0 && a.Bound != nil {
		r := &refusal{until: e.clock.mono.Load() + int64(time.Second), bound: *a.Bound, reason: QuotaExceeded}
		if a.Used != nil {
			r.used = *a.Used
		}
		c.remember(r)
	} else if ex.call.Units > 0 && a.Silent {
		c.remember(&refusal{until: e.clock.mono.Load() + int64(time.Second), bound: ex.call.Units - 1, reason: Unavailable})
	}
	return false, false
}

// remember keeps a refusal and shuts the fast path behind it. The caller holds mu.
func (c *counter) remember(r *refusal) {
	v := c.view.Load()
	r.firm = v.leased() && !v.terms.Shadow && !v.watched
	c.refusal.Store(r)
	c.gate()
}

// adopt takes over the stored lease after an answer was lost, or after others settled it: everything that is neither
// spent nor held is in back, to be returned or asked for again. The caller holds mu and the operation lock.
func (c *counter) adopt(a usage.LeaseAnswer) {
	c.cutAll()
	c.ver, c.lim, c.tight = *a.Ver, *a.Lim, *a.Tight
	rest := c.lim - c.total() - c.held()
	c.back, c.over = max(0, rest), max(0, -rest)
}

// operation makes the exchange that the holder of the operation lock submits. A request for nothing extends and cuts nothing;
// otherwise everything this node owns goes into the pot: no hold-and-wait.
func (c *counter) operation(r request, want int64, give bool) *exchange {
	units := r.need
	ex := &exchange{c: c, give: give, req: r, extend: units == 0 && !give, done: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ex.extend {
		c.cut()
	}
	room := maxLeft - 1 - c.left() - units
	ex.epoch, c.told = c.epoch, false
	ex.call = usage.LeaseCall{
		Key: c.key(), Ver: c.ver, Back: c.back, Over: c.over, Units: units,
		Want: min(want, max(room, units)),
	}
	if r.spend+r.hold > 0 {
		ex.call.Waiting = min(max(c.waiting(), units), maxLeft-1) // a grant may be as large
	}
	return ex
}
