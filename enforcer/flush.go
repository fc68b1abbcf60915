package enforcer

import (
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirhq/weir/usage"
)

// markDirty puts a counter on the list of the next batch, once.
func (e *Enforcer) markDirty(c *counter) {
	for {
		was := c.alarm().Load()
		if was&clean == 0 {
			return
		}
		if c.alarm().CompareAndSwap(was, was&^clean) {
			break
		}
	}
	for {
		head := e.dirty.Load()
		c.next.Store(head)
		if e.dirty.CompareAndSwap(head, c) {
			return
		}
	}
}

// collect takes the list of changed counters. A counter's flag falls before its word is read: what is counted later
// marks it again.
func (e *Enforcer) collect() []*counter {
	var all []*counter
	for c := e.dirty.Swap(nil); c != nil; {
		next := c.next.Swap(nil)
		c.alarm().Or(clean)
		all = append(all, c)
		c = next
	}
	return all
}

// Flush sends what was counted and waits until the database has stored it.
func (e *Enforcer) Flush(ctx context.Context) error {
	if !e.started.Load() {
		return ErrUnavailable
	}
	return e.flush(ctx)
}

// flush sends one batch with heartbeat and mark. One at a time: a later batch is never stored before an earlier one
// of the same node has failed or succeeded.
func (e *Enforcer) flush(ctx context.Context) error {
	select {
	case e.flushing <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("flush: %w", ctx.Err())
	}
	defer func() { <-e.flushing }()

	e.clock.tick()
	sealed := e.sealDue()
	applied := e.applied.Load()
	held := e.heldOver() // before the counts: what was settled since is in them
	changed := e.collect()
	slices.SortFunc(changed, func(a, b *counter) int { return cmp.Compare(a.key(), b.key()) }) // costs the database least
	sent := e.clock.elapsed()
	b := usage.Batch{Node: e.node, At: e.clock.time(), Sealed: time.Unix(0, sealed).UTC(), Applied: applied}
	for _, c := range changed {
		b.Keys = append(b.Keys, c.key())
		b.Upto = append(b.Upto, c.total())
	}
	b.Held = held
	e.stats.flushes.Add(1)
	a, err := usage.Flush(ctx, e.db, b)
	if err != nil {
		for _, c := range changed {
			e.markDirty(c)
		}
		e.noteAway(err)
		return err
	}
	e.acknowledge(a, changed, b.Upto, sent)
	return nil
}

// heldOver lists keys whose period has ended while reservations are open under them.
func (e *Enforcer) heldOver() []int64 {
	e.dueMu.Lock()
	defer e.dueMu.Unlock()
	var keys []int64
	for _, c := range e.ended {
		c.mu.Lock()
		if c.held() > 0 {
			keys = append(keys, c.key())
		}
		c.mu.Unlock()
	}
	return keys
}

// stored notes a total that the database has acknowledged, and keeps the counter's recent rate. Both instants are
// monotonic.
func (c *counter) stored(total, mono int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if took := mono - c.usedAt; took > 0 && total > c.acked {
		per := min(total-c.acked, 1<<32) * int64(time.Second) / max(took, int64(10*time.Millisecond))
		if took < int64(20*time.Second) {
			per = (int64(c.rate.Load()) + per) / 2
		}
		c.rate.Store(uint32(min(per, math.MaxUint32)))
	}
	c.acked, c.usedAt = max(c.acked, total), mono
}

func (e *Enforcer) acknowledge(a usage.BatchAnswer, changed []*counter, upto []int64, sent time.Duration) {
	e.clock.learn(a.Clock, sent, e.clock.elapsed())
	e.lastBeat.Store(int64(sent))
	e.nodes.Store(a.Nodes)
	e.rates.limiter.SetNodes(int(a.Nodes))
	e.rates.limiter.Sweep(e.clock.rateTime())
	e.noteAnswer()
	e.fenced.Store(!a.Live || e.rejoining.Load())
	e.awayFlag.Store(false)
	for i, c := range changed {
		c.stored(upto[i], int64(sent))
	}
	for _, f := range a.Figures {
		if c, ok := e.byKey.load(f.Key); ok {
			c.learn(f)
		}
	}
	for _, k := range a.Recalled {
		e.recalled(k)
	}
	if a.Heartbeat <= e.heartbeat.Swap(a.Heartbeat) && a.Live {
		e.noteLoss()
	}
	switch {
	case !a.Live:
		e.rejoinSoon(a.State)
	case e.unsettled.Load():
		e.resettleSoon()
	}
	if a.Change > e.applied.Load() || e.stale.Load() {
		e.changesSoon()
	}
	e.settleEnded()
}

// dueHeap orders counters by the end of their period. Each counter knows its place, so that it can move or leave.
type dueHeap []*counter

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].end.Load() < h[j].end.Load() }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].duePlace, h[j].duePlace = int32(i+1), int32(j+1)
}

// Push is heap's.
func (h *dueHeap) Push(x any) {
	c := x.(*counter)
	*h = append(*h, c)
	c.duePlace = int32(len(*h))
}

// Pop is heap's.
func (h *dueHeap) Pop() any {
	old := *h
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	c.duePlace = 0
	return c
}

// register makes a counter known, and seals it at once when the mark has passed its end already.
func (e *Enforcer) register(c *counter) {
	e.byKey.store(c)
	e.schedule(c, c.end.Load())
}

// schedule sets a counter's end, and puts it where that belongs.
func (e *Enforcer) schedule(c *counter, end int64) {
	e.dueMu.Lock()
	defer e.dueMu.Unlock()
	c.reaches(end)
	if end <= e.sealed {
		e.unscheduleLocked(c)
		c.seal()
		e.ended = append(e.ended, c)
		return
	}
	if c.duePlace > 0 {
		heap.Fix(&e.due, int(c.duePlace-1))
	} else {
		heap.Push(&e.due, c)
	}
}

func (e *Enforcer) unscheduleLocked(c *counter) {
	if c.duePlace > 0 {
		heap.Remove(&e.due, int(c.duePlace-1))
	}
}

// sealDue seals every counter whose period has ended, and returns the instant up to which all are sealed. Their last
// counts go with the batch that is collected next.
func (e *Enforcer) sealDue() int64 {
	now := e.clock.now()
	e.dueMu.Lock()
	defer e.dueMu.Unlock()
	for len(e.due) > 0 && e.due[0].end.Load() <= now {
		c := heap.Pop(&e.due).(*counter)
		c.seal()
		e.markDirty(c)
		e.ended = append(e.ended, c)
	}
	e.sealed = max(e.sealed, now)
	return e.sealed
}

// settleEnded forgets counters whose period has ended once everything of them is stored, and returns what they held.
func (e *Enforcer) settleEnded() {
	e.dueMu.Lock()
	waiting := e.ended
	e.ended = nil
	e.dueMu.Unlock()
	var still []*counter
	for _, c := range waiting {
		switch e.settleOne(c) {
		case endedReopened, endedForgotten:
		case endedOwes:
			e.giveSoon(c)
			still = append(still, c)
		case endedWaits:
			still = append(still, c)
		}
	}
	e.dueMu.Lock()
	e.ended = append(e.ended, still...)
	e.dueMu.Unlock()
}

// What became of a counter whose period has ended.
const (
	endedReopened  = iota // its end was moved
	endedForgotten        // everything of it is stored
	endedOwes             // units of it are still to be returned
	endedWaits            // for an answer, for what is read, or for a reservation that can still be settled
)

// settleOne looks at one of them. The account's lock keeps a reload from opening it again in between, the operation lock
// an operation from moving its lease once another counter may have taken it over.
func (e *Enforcer) settleOne(c *counter) int {
	a := c.slot.account
	a.mu.Lock()
	defer a.mu.Unlock()
	if !c.tryLock() {
		return endedWaits
	}
	defer c.unlock()
	c.mu.Lock()
	stored := c.acked >= c.total() && c.held() == 0 && c.promised() == 0
	owes := c.back > 0 || c.over > 0
	reopened := !c.sealed
	c.mu.Unlock()
	switch {
	case reopened:
		return endedReopened
	case !stored:
		return endedWaits
	case owes:
		return endedOwes
	case e.isRead(a): // a counter that begins from it would begin below what this one has stored
		return endedWaits
	}
	c.hide() // a period that is opened again begins at this total: recovery must not add the two
	e.forgetCounter(c)
	return endedForgotten
}

// forgetCounter drops a counter from the registers, unless another one has taken its place.
func (e *Enforcer) forgetCounter(c *counter) {
	e.dueMu.Lock()
	e.unscheduleLocked(c)
	if !c.freed {
		c.freed = true
		c.free(e.journal)
	}
	e.dueMu.Unlock()
	e.byKey.remove(c)
	c.slot.cur.CompareAndSwap(c, nil)
}
