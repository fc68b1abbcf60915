package enforcer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/usage"
)

// changesSoon asks the changer to read what changed.
func (e *Enforcer) changesSoon() {
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// firstChangePause is how long the changer rests after a failure; each further one doubles it, up to the distance of two
// heartbeats. Who is asked again at once by what has failed would ask without a pause.
const firstChangePause = 20 * time.Millisecond

// changer applies plan, period, override and catalog changes.
func (e *Enforcer) changer() {
	pause := firstChangePause
	for {
		select {
		case <-e.life.Done():
			return
		case <-e.changed:
		}
		ctx, cancel := context.WithTimeout(e.life, flushTimeout)
		err := e.applyChanges(ctx)
		cancel()
		if err != nil {
			if e.life.Err() == nil && e.warnAway() {
				e.cfg.Logger.Warn("weir: changes can't be read now; the enforcer tries again", "error", err)
			}
			select {
			case <-e.life.Done():
				return
			case <-time.After(pause):
			}
			pause = min(2*pause, heartbeatEvery)
			continue
		}
		pause = firstChangePause
		e.kick() // the mark has moved
	}
}

// loadBatch is how many accounts are loaded again in one query.
const loadBatch = 200

// applyChanges loads again what changed since the last number that this node has applied, and moves that number when
// every counter concerned is cut or brought up to date.
func (e *Enforcer) applyChanges(ctx context.Context) (err error) {
	latest, ids, err := usage.Changes(ctx, e.db, e.applied.Load())
	if err != nil {
		return err
	}
	// Before the accounts are looked at: what is loaded later than that knows that it is behind.
	e.seen.Store(max(latest, e.seen.Load()))
	touched := e.takeBehind()
	defer func() {
		if err != nil {
			e.readAgain(slices.Collect(maps.Keys(touched))...)
		}
	}()
	if ids == nil || e.stale.Swap(false) {
		if err := e.readCatalog(ctx); err != nil {
			e.stale.Store(true)
			return err
		}
		e.accounts.Range(func(_ string, a *account) bool {
			touched[a] = true
			return true
		})
	} else {
		of := make(map[int64]bool, len(ids))
		for _, id := range ids {
			of[id] = true
		}
		e.accounts.Range(func(_ string, a *account) bool {
			a.mu.Lock()
			if of[a.id] {
				touched[a] = true
			}
			a.mu.Unlock()
			return true
		})
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(touched)), loadBatch) {
		if err := e.reload(ctx, some); err != nil {
			return err
		}
	}
	for {
		was := e.applied.Load()
		if latest <= was || e.applied.CompareAndSwap(was, latest) {
			return nil
		}
	}
}

// isBehind reports whether keys were read before a change that this node applies, or has applied, without them.
func (e *Enforcer) isBehind(keys []usage.Key) bool {
	seen := e.seen.Load()
	for i := range keys {
		if keys[i].Change < seen {
			return true
		}
	}
	return false
}

// readAgain asks the changer to load accounts afresh.
func (e *Enforcer) readAgain(accounts ...*account) {
	if len(accounts) == 0 {
		return
	}
	e.behindMu.Lock()
	for _, a := range accounts {
		e.behind[a] = true
	}
	e.behindMu.Unlock()
	e.changesSoon()
}

// reads notes which accounts the changer is reading.
func (e *Enforcer) reads(accounts []*account) {
	reading := make(map[*account]bool, len(accounts))
	for _, a := range accounts {
		reading[a] = true
	}
	e.behindMu.Lock()
	e.reading = reading
	e.behindMu.Unlock()
}

// isRead reports whether an account's rows are on their way here: they may be older than what is stored by now. The
// caller holds a.mu.
func (e *Enforcer) isRead(a *account) bool {
	e.behindMu.Lock()
	defer e.behindMu.Unlock()
	return a.loading != nil || e.reading[a]
}

func (e *Enforcer) takeBehind() map[*account]bool {
	e.behindMu.Lock()
	defer e.behindMu.Unlock()
	all := e.behind
	e.behind = make(map[*account]bool)
	return all
}

func (e *Enforcer) reload(ctx context.Context, accounts []*account) error {
	e.reads(accounts)
	defer e.reads(nil)
	ids := make([]int64, 0, len(accounts))
	for _, a := range accounts {
		a.mu.Lock()
		if a.id != 0 {
			ids = append(ids, a.id)
		}
		a.mu.Unlock()
	}
	if len(ids) == 0 {
		return nil
	}
	keys, err := usage.Load(ctx, e.db, e.node, ids, e.clock.time())
	if err != nil {
		return err
	}
	byAccount := make(map[int64][]usage.Key, len(ids))
	for _, k := range keys {
		byAccount[k.AccountID] = append(byAccount[k.AccountID], k)
	}
	for _, a := range accounts {
		a.mu.Lock()
		if a.id != 0 {
			e.replace(a, byAccount[a.id])
		}
		a.mu.Unlock()
	}
	return nil
}

// replace brings an account's counters in line with what was loaded: a counter whose period was cut is sealed, one
// whose key is gone too, the others get their new terms. The caller holds a.mu.
func (e *Enforcer) replace(a *account, keys []usage.Key) {
	now := e.clock.now()
	running := make(map[int64]bool, len(keys))
	for i := range keys {
		if keys[i].Starts.UnixNano() <= now && now < keys[i].Ends.UnixNano() {
			running[keys[i].Key] = true
		}
	}
	a.each(func(s *slot) {
		s.upcoming = upcoming{}
		if c := s.cur.Load(); c != nil && !running[c.key()] {
			e.endNow(c)
			s.cur.CompareAndSwap(c, nil)
		}
	})
	if err := e.adoptKeys(a, keys); err != nil {
		a.id = 0 // nothing of it reaches the present: the next call loads it afresh
		e.outdate(a)
	}
}

// endNow seals a counter before its time and sends its last count.
func (e *Enforcer) endNow(c *counter) {
	e.dueMu.Lock()
	e.unscheduleLocked(c)
	c.reaches(min(c.end.Load(), e.clock.business.Load()))
	e.dueMu.Unlock()
	c.seal()
	e.markDirty(c)
	e.dueMu.Lock()
	e.ended = append(e.ended, c)
	e.dueMu.Unlock()
}

// refreshSoon loads the period after the next one, at a moment of its own, so that a boundary that many accounts
// share is no herd; where that can't be, it tries again as much later.
func (e *Enforcer) refreshSoon(a *account) {
	time.AfterFunc(time.Duration(e.jitter()*float64(refreshWithin)), func() {
		if e.life.Err() == nil && (e.isAway() || !e.contacts.refresh(a)) {
			e.refreshSoon(a)
		}
	})
}

const refreshWithin = 10 * time.Second

func (e *Enforcer) readCatalog(ctx context.Context) error {
	p, err := usage.LatestCatalog(ctx, e.db)
	if err != nil {
		return err
	}
	return e.setCatalog(p)
}
