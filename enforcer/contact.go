package enforcer

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/usage"
)

// accountOf returns the record of an account, made where it is missing. The name has been checked.
func (e *Enforcer) accountOf(name string) *account {
	a, _ := e.accounts.LoadOrCompute(name, func() (*account, bool) { return &account{name: name}, false })
	return a
}

// current returns the counter that calls spend from now: the one there is, the next period's, or what a first contact
// brings. Where none is to be had it returns nil and the answer.
func (e *Enforcer) current(ctx context.Context, s *slot, stop <-chan time.Time) (*counter, Decision) {
	for {
		now := e.clock.now()
		if c := s.cur.Load(); c != nil && now < c.end.Load() {
			if !c.view.Load().inPlan {
				return nil, e.notInPlan(s)
			}
			return c, Decision{}
		}
		if !e.running.Load() {
			return nil, Decision{Reason: Unavailable, RetryAfter: time.Second}
		}
		known, rolled := e.rollOver(s, now)
		if rolled {
			continue
		}
		if known {
			return nil, e.notInPlan(s)
		}
		if !e.contact(ctx, s, stop) {
			e.stats.unavailable.Add(1)
			return nil, Decision{Reason: Unavailable, RetryAfter: time.Second}
		}
	}
}

func (e *Enforcer) notInPlan(s *slot) Decision {
	t := &Terms{Feature: e.featureOf(s)}
	if k := s.account.known.Load(); k != nil {
		t.Plan = k.plan
	}
	if cat := e.catalog.Load(); cat != nil {
		t.UpgradeURL = cat.UpgradeURL()
	}
	return Decision{Reason: NotInPlan, Terms: t}
}

// rollOver installs the next period's counter where its key is known. known is set when the account's current period
// is known and lacks the feature.
func (e *Enforcer) rollOver(s *slot, now int64) (known, rolled bool) {
	a := s.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := s.cur.Load(); c != nil && now < c.end.Load() {
		return false, true
	}
	k := s.upcoming
	if k.view == nil || now < k.starts() || now >= k.ends() {
		return a.id != 0 && now < a.until(), false
	}
	if k.key == 0 {
		return false, false
	}
	s.upcoming = upcoming{}
	a.known.Store(e.terms.standing(standing{k.view.terms.Plan, k.ends(), k.view.terms.Shadow}))
	e.install(s, k, lease{})
	e.refreshSoon(a)
	return false, true
}

// install makes a key the slot's counter. The caller holds account.mu. A counter whose period has been sealed already
// is sealed at once: its mark has passed.
func (e *Enforcer) install(s *slot, k upcoming, l lease) {
	line := e.journal.Take(k.key, journal.KeyHash(s.account.name, e.featureOf(s), k.view.terms.StartsAt), uint64(l.own))
	c := newCounter(s, k.view, l, line)
	c.reaches(k.ends())
	c.usedAt = e.clock.mono.Load()
	e.register(c)
	c.mu.Lock()
	if e.fenced.Load() { // the answer was on its way when leases were set aside; a later fence finds the counter registered
		c.cutAll()
	}
	owes := c.back > 0
	c.mu.Unlock()
	if !e.running.Load() { // a stop has taken stock, or finds the counter registered
		c.seal()
	}
	if e.cellRule.always {
		e.promote(c)
	}
	s.cur.Store(c)
	if owes {
		e.giveSoon(c)
	}
}

// contact loads an account by one query, however many callers wait for it, and reports false when the call's time is
// up, or the database does not answer, or too many other accounts wait to be loaded.
func (e *Enforcer) contact(ctx context.Context, s *slot, stop <-chan time.Time) bool {
	a := s.account
	a.mu.Lock()
	l := a.loading
	if l == nil {
		l = &loading{account: a, feature: e.featureOf(s), done: make(chan struct{})}
		if e.isAway() || !e.contacts.submit(l) {
			a.mu.Unlock()
			return false
		}
		a.loading = l
	}
	a.mu.Unlock()
	select {
	case <-l.done:
		return l.err == nil
	case <-stop:
	case <-ctx.Done():
	}
	return false
}

var errStale = errors.New("the account's periods do not reach the present: are the clocks of node and database far apart?")

// adoptKeys takes what was loaded into the account's slots: counters of periods that run, keys of those to come. The
// caller holds a.mu.
func (e *Enforcer) adoptKeys(a *account, keys []usage.Key) error {
	if e.isBehind(keys) {
		e.readAgain(a)
		if a.id != 0 {
			return nil // what is there is newer
		}
	}
	now := e.clock.now()
	reached := false
	byIndex := e.features.Load()
	for i := range keys {
		k := &keys[i]
		a.id = k.AccountID
		starts, ends := k.Starts.UnixNano(), k.Ends.UnixNano()
		if starts <= now && now < ends {
			reached = true
			a.known.Store(e.terms.standing(standing{k.Plan, ends, k.Shadow}))
		}
		j := byIndex.index(k.Feature)
		if j < 0 {
			if k.Feature != "" { // else a plan without quotas
				e.stale.Store(true)
				e.changesSoon()
			}
			continue
		}
		s := a.slotLocked(j)
		switch {
		case now >= ends:
		case now >= starts:
			if u := s.upcoming; u.view != nil && (u.key == k.Key || u.starts() <= starts) {
				s.upcoming = upcoming{} // it has begun: from now on its counter, or the database, knows what was counted
			}
			e.adoptCurrent(s, k)
		case s.upcoming.view == nil || starts <= s.upcoming.starts() || s.upcoming.ends() <= now:
			s.upcoming = e.upcomingOf(k)
		}
	}
	if !reached {
		return errStale
	}
	return nil
}

// upcomingOf is what is kept of a key until its period begins.
func (e *Enforcer) upcomingOf(k *usage.Key) upcoming {
	u := upcoming{k.Key, e.viewOf(k)}
	if _, met := e.byKey.load(k.Key); met || leaseOf(k) != (lease{}) {
		u.key = 0 // the period had begun and was moved
	}
	return u
}

// adoptCurrent installs a running period's key, or brings its counter up to date. The lease itself is not touched:
// only the counter's own operations move it.
func (e *Enforcer) adoptCurrent(s *slot, k *usage.Key) {
	c := s.cur.Load()
	if c == nil || c.key() != k.Key {
		if old, ok := e.byKey.load(k.Key); ok { // a period that was cut and opened again
			s.cur.Store(old)
			c = old
		} else {
			e.install(s, upcoming{k.Key, e.viewOf(k)}, leaseOf(k))
			return
		}
	}
	c.view.Store(e.viewOf(k))
	c.reopen()
	if !k.InPlan {
		c.mu.Lock()
		c.cutAll()
		c.mu.Unlock()
		e.giveSoon(c)
	}
	e.schedule(c, k.Ends.UnixNano())
	c.forget()
}
