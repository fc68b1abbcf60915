package enforcer

import (
	"strings"
	"sync"

	"github.com/weirhq/weir/usage"
)

// sharedTerms keeps one copy of terms that many accounts have: a plan's in a month that they share. At its bound it
// starts afresh; what it gave out stays valid.
type sharedTerms struct {
	mu    sync.Mutex
	known map[Terms]*Terms
}

const mostShared = 1024

func (s *sharedTerms) of(t Terms) *Terms {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.known[t]; ok {
		return known
	}
	if s.known == nil || len(s.known) >= mostShared {
		s.known = make(map[Terms]*Terms)
	}
	t.Plan, t.Feature = strings.Clone(t.Plan), strings.Clone(t.Feature)
	s.known[t] = &t
	return &t
}

// viewOf makes the view of a loaded key.
func (e *Enforcer) viewOf(k *usage.Key) *view {
	catalog := e.catalog.Load()
	own := Terms{
		Plan: k.Plan, Feature: k.Feature, StartsAt: k.Starts.UTC(), ResetsAt: k.Ends.UTC(),
		BillsAbove: k.BillsOverage(), Unlimited: k.Included == nil, Maximum: -1, Shadow: k.Shadow,
	}
	if k.Included != nil {
		own.Included = *k.Included
	}
	if k.Maximum != nil {
		own.Maximum = *k.Maximum
	}
	if catalog != nil {
		own.UpgradeURL = catalog.UpgradeURL()
		if p, ok := catalog.Plan(k.Plan); ok {
			own.Shadow = own.Shadow || p.Shadow
			if p.UpgradeURL != "" {
				own.UpgradeURL = p.UpgradeURL
			}
		}
	}
	t := e.terms.of(own)
	return &view{
		terms: t, limit: t.Included, unlimited: t.Unlimited, inPlan: k.InPlan, strict: k.Enforce == "strict", proceed: k.WhenAway == "continue", ceiling: k.Ceiling,
		others: k.Others, folded: k.Folded, free: k.Free, overage: k.Overage, adjusted: k.Adjusted,
	}
}

// with returns the view with newer figures. Answers may arrive in another order than they were read: what other
// nodes stored never falls, so the larger one stands.
func (v *view) with(f usage.Figures) *view {
	n := *v
	n.others = max(v.others, f.Others)
	n.folded, n.free, n.overage, n.adjusted = f.Folded, f.Free, f.Overage, f.Adjusted
	return &n
}

// learn takes newer figures into the view, and never undoes terms that another goroutine has just stored.
func (c *counter) learn(f usage.Figures) {
	for {
		v := c.view.Load()
		if c.view.CompareAndSwap(v, v.with(f)) {
			return
		}
	}
}
