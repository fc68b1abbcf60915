package enforcer

import (
	"context"
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
	if !want {
		c.unlock()
		return
	}
	ex := c.operation(request{}, 0, true)
	e.exchanges.submit(ex)
	<-ex.done
}

// returnIdle gives back leases that nothing was spent from for a while, so that units are not called back when other
// nodes need them.
func (e *Enforcer) returnIdle() {
	mono := e.clock.mono.Load()
	e.byKey.each(func(c *counter) {
		if e.forgetIdle(c, mono-int64(forgetAfter)) {
			return
		}
		c.mu.Lock()
		idle := !c.tight && !c.sealed && !c.busy && c.left() > 0 && c.usedAt > 0 && mono-c.usedAt > int64(idleAfter)
		owes := c.back > 0 && !c.busy
		c.mu.Unlock()
		if idle {
			e.spawn(func() { e.give(c, func() bool { return !c.tight && mono-c.usedAt > int64(idleAfter) }) })
		} else if owes {
			e.giveSoon(c)
		}
	})
}

// forgetIdle drops a counter that holds nothing and from which nothing was spent since an instant. The account's lock
// keeps a reload from opening it again in between.
func (e *Enforcer) forgetIdle(c *counter, since int64) bool {
	a := c.slot.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.retireIdle(since) {
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
	c.seal()
	e.forgetCounter(c)
	a := c.slot.account
	a.mu.Lock()
	c.slot.upcoming = upcoming{}
	e.outdate(a)
	a.mu.Unlock()
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
