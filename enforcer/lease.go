package enforcer

import (
	"context"
	"slices"
	"time"
)

// extendSoon asks in the background for a lease that is half spent, so that a busy account does not meet the slow
// path until its ceiling is near.
func (e *Enforcer) extendSoon(c *counter) {
	for was := c.alarm().Load(); !c.alarm().CompareAndSwap(was, was&clean); was = c.alarm().Load() {
		if was&^clean == 0 {
			return // it waits already
		}
	}
	select {
	case e.extends <- c:
	default: // many are waiting; the slow path asks when the word is empty
	}
}

// extender works off the half-spent leases. What waits goes in one statement.
func (e *Enforcer) extender() {
	for {
		select {
		case <-e.life.Done():
			return
		case c := <-e.extends:
			if e.isAway() || e.fenced.Load() || !c.tryLock() {
				continue
			}
			if e.clock.now() >= c.end.Load() || c.isSealed() {
				c.unlock()
				continue
			}
			e.exchanges.submit(c.operation(request{}, e.want(c), false))
		}
	}
}

// recalled answers a call for what is loose under a key: give back what is left, also when it is nothing.
func (e *Enforcer) recalled(key int64) {
	c, ok := e.byKey.load(key)
	if !ok {
		return
	}
	c.mu.Lock()
	busy := c.recalling || c.tight
	if !busy {
		c.recalling = true
	}
	c.mu.Unlock()
	if busy {
		return
	}
	e.stats.recalls.Add(1)
	e.spawn(func() {
		defer func() {
			c.mu.Lock()
			c.recalling = false
			c.mu.Unlock()
		}()
		e.give(c, func() bool { return !c.tight })
	})
}

// giveSoon returns what a counter holds in back.
func (e *Enforcer) giveSoon(c *counter) {
	if e.isAway() || e.fenced.Load() {
		return
	}
	e.spawn(func() { e.give(c, func() bool { return c.back > 0 || c.over > 0 }) })
}

// give returns everything that is left, if it is still wanted once the operation lock is had.
func (e *Enforcer) give(c *counter, wanted func() bool) {
	timer := time.NewTimer(exchangeTimeout)
	defer timer.Stop()
	if !c.lock(timer.C, e.life.Done()) {
		return
	}
	c.mu.Lock()
	want := wanted()
	c.mu.Unlock()
	if !want || !e.isKnown(c) {
		c.unlock()
		return
	}
	ex := c.operation(request{}, 0, true)
	e.exchanges.submit(ex)
	<-ex.done
}

// isKnown reports whether a counter is the one of its key: what was dropped holds nothing, and the lease is another's.
// While the caller holds the operation lock it stays so, unless the key itself is gone.
func (e *Enforcer) isKnown(c *counter) bool {
	known, ok := e.byKey.load(c.key())
	return ok && known == c
}

// returnIdle gives back leases that nothing was spent from for a while, so that units are not called back when other
// nodes need them, and what cuts have left in the counters' hands.
func (e *Enforcer) returnIdle() { e.returnUnspent(e.patience()) }

// patience is for how long a lease may lie idle. A node that is alone keeps it until it is about to forget it: nobody
// needs the units, and each give would be followed by an ask.
func (e *Enforcer) patience() time.Duration {
	if e.nodes.Load() > 1 {
		return idleAfter
	}
	return forgetAfter
}

func (e *Enforcer) returnUnspent(after time.Duration) {
	mono := e.clock.mono.Load()
	wanted := func(c *counter) bool { // under mu
		idle := !c.tight && !c.sealed && c.left() > 0 && c.usedAt > 0 && mono-c.usedAt > int64(after)
		return idle || c.back > 0
	}
	var all []*counter
	e.byKey.each(func(c *counter) {
		if e.forgetIdle(c, mono-int64(forgetAfter)) {
			return
		}
		c.mu.Lock()
		if !c.busy && wanted(c) {
			all = append(all, c)
		}
		c.mu.Unlock()
	})
	if len(all) == 0 || !e.returning.CompareAndSwap(false, true) {
		return // the next look finds them again
	}
	started := e.spawn(func() {
		defer e.returning.Store(false)
		for some := range slices.Chunk(all, exchangeBatch) {
			if e.isAway() || e.life.Err() != nil {
				return
			}
			e.giveAll(some, wanted)
		}
	})
	if !started {
		e.returning.Store(false)
	}
}

// giveAll returns what is left in those counters that are free and still wanted, a statement's worth at once, and waits
// for the answers: however many leases are idle, callers share the way with one statement of them.
func (e *Enforcer) giveAll(some []*counter, wanted func(*counter) bool) {
	var sent []*exchange
	for _, c := range some {
		if !c.tryLock() {
			continue
		}
		c.mu.Lock()
		want := wanted(c)
		c.mu.Unlock()
		if !want || !e.isKnown(c) {
			c.unlock()
			continue
		}
		ex := c.operation(request{}, 0, true)
		e.exchanges.submit(ex)
		sent = append(sent, ex)
	}
	for _, ex := range sent {
		<-ex.done
	}
}

// forgetIdle drops a counter that holds nothing and from which nothing was spent since an instant. The account's lock
// keeps a reload from opening it again in between. While the account is being read it stays: a counter that begins from
// rows of before its lease went back would spend that lease again.
func (e *Enforcer) forgetIdle(c *counter, since int64) bool {
	a := c.slot.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.isRead(a) || !c.retireIdle(since) {
		return false
	}
	c.line.Hide() // the next counter of the key begins at this one's total: recovery must not add the two
	e.forgetCounter(c)
	e.outdate(a) // a feature without a counter is no longer one that the plan lacks: the next call loads the account
	return true
}

const (
	idleAfter     = time.Minute      // a lease goes back
	forgetAfter   = 10 * time.Minute // a counter that holds nothing is dropped; the account's record stays
	idleScanEvery = 10 * time.Second
)

// fence cuts every lease when the database has not answered for so long that they may be reaped.
func (e *Enforcer) fence() {
	if e.fenced.Swap(true) {
		return
	}
	e.cfg.Logger.Warn("weir: the database has not answered for most of the lease time; leases are set aside", "lease_time", e.leaseTime)
	e.byKey.each(func(c *counter) {
		c.mu.Lock()
		c.cutAll()
		c.mu.Unlock()
	})
}

// drop forgets a counter whose key is gone: the account is loaded again by the next call.
func (e *Enforcer) drop(c *counter) {
	a := c.slot.account
	a.mu.Lock()
	defer a.mu.Unlock()
	c.seal()
	e.forgetCounter(c)
	c.slot.upcoming = upcoming{}
	e.outdate(a)
}

// flushLoop sends batches and heartbeats until the enforcer stops.
func (e *Enforcer) flushLoop() {
	every := min(e.cfg.FlushInterval, heartbeatEvery)
	timer := time.NewTicker(every)
	defer timer.Stop()
	idle := time.NewTicker(idleScanEvery)
	defer idle.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-idle.C:
			if !e.isAway() {
				e.returnIdle()
			}
			continue
		case <-timer.C:
		case <-e.kicked:
		}
		ctx, cancel := context.WithTimeout(e.life, flushTimeout)
		err := e.flush(ctx)
		cancel()
		if err != nil && e.life.Err() == nil && e.warnAway() {
			e.cfg.Logger.Warn("weir: usage can't be stored now; counting goes on", "error", err)
		}
	}
}

const flushTimeout = 5 * time.Second
