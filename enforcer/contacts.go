package enforcer

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/usage"
)

const (
	contactBatch = 128    // accounts in one statement
	contactLanes = 2      // statements in flight; the second one only while a whole batch waits for it
	contactQueue = 16_384 // accounts that wait to be loaded, of either kind; calls for one more are unavailable
)

// contacts sends first contacts. What gathers while a statement is in flight goes in the next one.
type contacts struct {
	e *Enforcer

	mu      sync.Mutex
	waiting []*loading // with callers
	later   []*account // known ones whose next period is wanted; they take the room that callers leave
	running int        // lanes
}

// submit queues a first contact, and reports false where the queue is full or the enforcer is ending.
func (x *contacts) submit(l *loading) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.waiting) >= contactQueue {
		return false
	}
	x.waiting = append(x.waiting, l)
	if !x.started() {
		x.waiting = x.waiting[:len(x.waiting)-1]
		return false
	}
	return true
}

// refresh queues an account to be read again, as submit does.
func (x *contacts) refresh(a *account) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.later) >= contactQueue {
		return false
	}
	x.later = append(x.later, a)
	if !x.started() {
		x.later = x.later[:len(x.later)-1]
		return false
	}
	return true
}

// started sees to it that as many lanes are under way as what waits deserves. The caller holds mu.
func (x *contacts) started() bool {
	if x.running < x.deserved() && x.e.spawn(x.run) {
		x.running++
	}
	return x.running > 0
}

// deserved is one lane for anything that waits, and another one for each whole batch of it.
func (x *contacts) deserved() int {
	n := len(x.waiting) + len(x.later)
	return min(n/contactBatch+min(n, 1), contactLanes)
}

// run sends until nothing waits.
func (x *contacts) run() {
	for {
		batch, more := x.take()
		if len(batch) > 0 {
			x.load(batch)
		} else if !more {
			return
		}
	}
}

// take returns the next batch, and reports whether the lane goes on. An account that is being loaded already is looked at
// again later: what another lane is reading may be older than the reason.
func (x *contacts) take() (batch []*loading, more bool) {
	x.mu.Lock()
	if x.running > max(x.deserved(), 1) {
		x.running--
		x.mu.Unlock()
		return nil, false
	}
	n := min(len(x.waiting), contactBatch)
	batch = x.waiting[:n:n]
	x.waiting = x.waiting[n:]
	rest := min(len(x.later), contactBatch-n)
	later := x.later[:rest:rest]
	x.later = x.later[rest:]
	more = n+rest > 0
	if !more {
		x.running--
	}
	x.mu.Unlock()
	for _, a := range later {
		a.mu.Lock()
		if a.loading == nil {
			a.loading = &loading{account: a, done: make(chan struct{})}
			batch = append(batch, a.loading)
		} else {
			x.e.refreshSoon(a)
		}
		a.mu.Unlock()
	}
	return batch, more
}

// load runs first contacts. It goes on when their callers have left: the next ones find the accounts. A batch that the
// database refuses is halved until the account that it is about stands alone.
func (x *contacts) load(batch []*loading) {
	keys, err := x.fetch(batch)
	if err != nil && len(batch) > 1 && isRefusal(err) {
		x.load(batch[:len(batch)/2])
		x.load(batch[len(batch)/2:])
		return
	}
	if err != nil && !isRefusal(err) && !errors.Is(err, usage.ErrNoCatalog) {
		x.e.noteAway(err)
	}
	for _, l := range batch {
		x.e.finish(l, keys[l.account.name], err)
	}
}

// fetch reads the keys of a batch, by account.
func (x *contacts) fetch(batch []*loading) (map[string][]usage.Key, error) {
	e := x.e
	ctx, cancel := context.WithTimeout(e.life, firstContactWait)
	defer cancel()
	e.stats.contacts.Add(1)
	keys, err := usage.Contacts(ctx, e.db, e.node, e.judges(), e.clock.time(), x.calls(batch))
	if err != nil {
		return nil, err
	}
	e.noteAnswer()
	by := make(map[string][]usage.Key, len(batch))
	for i := 0; i < len(keys); {
		n := i + 1
		for n < len(keys) && keys[n].AccountID == keys[i].AccountID {
			n++
		}
		by[keys[i].Account] = keys[i:n]
		i = n
	}
	return by, nil
}

// calls asks for one unit each and names no caller that spends it at once: one may want more than that, or have left. What
// is granted is loose, and another node's call for it calls it back.
func (x *contacts) calls(batch []*loading) []usage.ContactCall {
	calls := make([]usage.ContactCall, len(batch))
	for i, l := range batch {
		calls[i] = usage.ContactCall{Account: l.account.name, Feature: l.feature, Units: 1, Want: minFirstLease}
	}
	return calls
}

// isRefusal tells what is wrong with the data, or stood in the way of another transaction, from what is wrong with the
// database: that one has answered.
func isRefusal(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || errors.Is(err, usage.ErrNoCatalog) {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "40", "P0":
		return true
	}
	return false
}

// finish hands a first contact to its account and wakes who waits for it.
func (e *Enforcer) finish(l *loading, keys []usage.Key, err error) {
	a := l.account
	a.mu.Lock()
	if err == nil {
		err = e.adoptKeys(a, keys)
	}
	a.loading = nil
	a.mu.Unlock()
	l.err = err
	close(l.done)
	if err != nil && l.feature == "" {
		e.refreshSoon(a) // nobody waits for it
	}
	if errors.Is(err, usage.ErrNoCatalog) || errors.Is(err, errStale) || isRefusal(err) {
		e.cfg.Logger.Warn("weir: an account can't be loaded", "account", a.name, "error", err)
	}
}
