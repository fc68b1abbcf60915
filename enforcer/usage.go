package enforcer

import (
	"context"
	"time"

	"github.com/weirhq/weir/usage"
)

// Usage tells an account's standing for a feature and counts nothing: what is stored of all nodes, and what this node
// has counted since. Allowed says whether one more unit would pass. While the database is away it is what this node
// knows. Errors are those of Consume.
func (e *Enforcer) Usage(ctx context.Context, account, feature string) (Decision, error) {
	a, i, err := e.check(account, feature, 0)
	if err != nil {
		return Decision{}, err
	}
	s := a.slotAt(i)
	stop := time.NewTimer(e.cfg.MaxWait)
	defer stop.Stop()
	c, d := e.current(ctx, s, stop.C)
	if c == nil {
		return d, nil
	}
	if !e.isAway() {
		if err := e.refresh(ctx, c); err != nil {
			e.noteAway(err)
		}
	}
	v := c.view.Load()
	d = v.decide(c.total())
	if !v.canPass(c) {
		d.Allowed, d.Reason = false, QuotaExceeded
	}
	return d, nil
}

// canPass reports whether the ceiling has room for one more unit, as far as this node knows.
func (v *view) canPass(c *counter) bool {
	return c.leftNow() > 0 || v.others+c.total() < v.ceiling
}

// refresh reads what other nodes have stored under the counter's key. The terms are left to who applies changes: an
// answer that was read before a change may come after it.
func (e *Enforcer) refresh(ctx context.Context, c *counter) error {
	ctx, cancel := context.WithTimeout(ctx, firstContactWait)
	defer cancel()
	keys, err := usage.Load(ctx, e.db, e.node, []int64{c.slot.account.loadedID()}, e.clock.time())
	if err != nil {
		return err
	}
	for i := range keys {
		if keys[i].Key == c.key() {
			k := &keys[i]
			c.learn(usage.Figures{Key: k.Key, Others: k.Others, Folded: k.Folded, Free: k.Free, Overage: k.Overage, Adjusted: k.Adjusted})
		}
	}
	return nil
}

func (a *account) loadedID() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.id
}
