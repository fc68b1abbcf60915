package enforcer

import (
	"strings"
	"sync"

	"github.com/weirhq/weir/usage"
)

// view is what a decision needs beside the counter's own count. Never changed once stored.
type view struct {
	*conditions
	figures
}

// conditions are what a key's terms mean for its calls. Accounts with the same ones share them.
type conditions struct {
	terms     *Terms
	limit     int64 // the terms' included units, and whether there are such: here because decisions read them
	ceiling   int64
	unlimited bool
	inPlan    bool
	strict    bool
	watched   bool // a clock is read at every call
	proceed   bool // a spent lease goes on while the database is away
}

// figures are what the database has stored, as of the last answer.
type figures struct{ others, folded, free, overage, adjusted int64 }

// shared keeps one copy of what many accounts have: a plan's terms in a month that they share, with the view of a key
// under which nothing was stored yet. At its bound it starts afresh; what it gave out stays valid.
type shared struct {
	mu        sync.Mutex
	views     map[sharedKey]*view
	standings map[standing]*standing
}

// sharedKey is a view by what it says. The terms' address is left out: they are here by value.
type sharedKey struct {
	terms      Terms
	conditions conditions
}

const mostShared = 1024

// of returns the view of a fresh key under these terms and conditions.
func (s *shared) of(t Terms, c conditions) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sharedKey{t, c}
	if known, ok := s.views[key]; ok {
		return known
	}
	if s.views == nil || len(s.views) >= mostShared {
		s.views = make(map[sharedKey]*view)
	}
	t.Plan, t.Feature = strings.Clone(t.Plan), strings.Clone(t.Feature)
	c.terms, key.terms = &t, t
	v := &view{conditions: &c}
	s.views[key] = v
	return v
}

// standing is the shared copy of what was loaded, with a name that pins no row.
func (s *shared) standing(of standing) *standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.standings[of]; ok {
		return known
	}
	if s.standings == nil || len(s.standings) >= mostShared {
		s.standings = make(map[standing]*standing)
	}
	own := of
	own.plan = strings.Clone(of.plan)
	s.standings[own] = &own
	return &own
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
		if p, ok := catalog.Plan(k.Plan); ok && p.UpgradeURL != "" {
			own.UpgradeURL = p.UpgradeURL
		}
	}
	v := e.terms.of(own, conditions{
		limit: own.Included, unlimited: own.Unlimited, inPlan: k.InPlan, strict: k.Enforce == "strict", watched: e.clock.custom != nil, proceed: k.WhenAway == "continue", ceiling: k.Ceiling,
	})
	if f := (figures{k.Others, k.Folded, k.Free, k.Overage, k.Adjusted}); f != (figures{}) {
		return &view{v.conditions, f}
	}
	return v
}

// with returns the view with newer figures. Answers may arrive in another order than they were read: what other
// nodes stored never falls, so the larger one stands.
func (v *view) with(f usage.Figures) *view {
	n := figures{max(v.others, f.Others), f.Folded, f.Free, f.Overage, f.Adjusted}
	if n == v.figures {
		return v
	}
	return &view{v.conditions, n}
}

// leased reports whether calls are answered from a lease: the plan has the feature, and leaves no call to the database.
func (c *conditions) leased() bool { return c.inPlan && !c.strict }

// learn takes newer figures into the view, and never undoes terms that another goroutine has just stored.
func (c *counter) learn(f usage.Figures) {
	for {
		v := c.view.Load()
		n := v.with(f)
		if n == v || c.view.CompareAndSwap(v, n) {
			return
		}
	}
}

// decide builds the decision of an admitted call, or the standing of the account where none was made.
func (v *view) decide(own int64) (d Decision) {
	v.into(&d, own)
	return d
}

// into is decide where a call's answer stands already: d is the zero Decision.
func (v *view) into(d *Decision, own int64) {
	counted := v.others + own
	d.Allowed, d.Reason, d.Used, d.Terms = true, OK, counted+v.adjusted, v.terms
	if d.Unlimited = v.unlimited; !d.Unlimited {
		v.limits(d, counted)
	}
}

func (v *view) limits(d *Decision, counted int64) {
	fresh, room := max(0, counted-v.folded), max(0, v.limit-v.free)
	d.Limit, d.Remaining, d.Overage = v.limit, max(0, room-fresh), v.overage+max(0, fresh-room)
}
