package billing

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// facts are what plan sync derives from. Derivation is pure: the same facts give the same state.
type facts struct {
	catalog  *plans.Catalog
	matched  map[string]string // price id → plan that it selected before
	meters   map[string]meter  // by id
	subs     []subscription    // all of the customer, ended ones too
	last     string            // the account's plan so far; empty: the default one
	deleted  bool              // the customer is deleted
	now      time.Time
	customer string
}

// derived is what follows from the facts for the account.
type derived struct {
	ours     bool // something of the customer concerns us
	apply    bool // state is to be applied; false: Stripe is late, or nothing may be decided
	state    usage.PlanState
	segments map[string]segment // by feature: where its overage goes
	hold     map[string]bool    // features whose segment stays as it is: what it would report now would be billed twice
	matched  map[string]string  // price id → plan, as selected now
	findings []finding
	recheck  time.Time // look again then; zero: no need
	early    time.Time // a period ended then, at Stripe
}

// segment is where a feature's overage is billed.
type segment struct {
	Subscription, Item, Price, Product, Currency, TaxBehavior, UnitAmount, Meter string
	WindowStart, WindowEnd, Since                                                time.Time
}

// base is the item that selects the plan.
type base struct {
	sub  *subscription
	item *item
	plan plans.Plan
}

// derive is the table of docs/plan-changes.md.
func derive(f *facts) derived {
	d := derived{segments: map[string]segment{}, hold: map[string]bool{}, matched: map[string]string{}}
	bases, unknown := f.match(&d)
	if f.deleted {
		d.say("customer_deleted", f.customer, "the customer was deleted at Stripe, and its subscriptions with it: the account is on the default plan and unmapped reports are parked")
	}
	live := slices.DeleteFunc(slices.Clone(bases), func(b base) bool { return b.sub.ended() || b.sub.Status == "incomplete" })
	openUnknown := slices.ContainsFunc(unknown, func(s *subscription) bool { return !s.ended() && s.Status != "incomplete" })
	switch {
	case len(live) > 0:
		b, ok := f.choose(&d, live)
		if !ok {
			return d
		}
		f.stand(&d, b, false)
	case openUnknown:
		f.keepLast(&d, unknown)
	default:
		f.leave(&d)
	}
	return d
}

func (d *derived) say(kind, subject, format string, args ...any) {
	d.findings = append(d.findings, finding{kind: kind, subject: subject, message: fmt.Sprintf(format, args...)})
}

// planFor finds a price's plan: by id, by what it selected before, then by lookup key. Never by its place.
func (f *facts) planFor(p *price) (plans.Plan, bool) {
	if plan, ok := f.catalog.PlanForPrice(p.ID); ok {
		return plan, true
	}
	if name, ok := f.matched[p.ID]; ok {
		if plan, ok := f.catalog.Plan(name); ok {
			return plan, true
		}
	}
	if p.LookupKey == "" {
		return plans.Plan{}, false
	}
	return f.catalog.PlanForPrice(p.LookupKey)
}

// match sorts the subscriptions into those that select a plan and those that concern us but select none.
func (f *facts) match(d *derived) (bases []base, unknown []*subscription) {
	for i := range f.subs {
		s := &f.subs[i]
		found, metered := false, false
		for j := range s.Items.Data {
			it := &s.Items.Data[j]
			if plan, ok := f.planFor(&it.Price); ok {
				d.matched[it.Price.ID] = plan.Name
				bases = append(bases, base{s, it, plan})
				found = true
			}
			metered = metered || f.eventName(&it.Price) != ""
		}
		if found || metered || s.Metadata["account_id"] != "" {
			d.ours = true
		}
		if !found {
			unknown = append(unknown, s)
		}
	}
	return bases, unknown
}

// eventName is the event name of the price's meter where the catalog has a feature on it.
func (f *facts) eventName(p *price) string {
	if !p.metered() {
		return ""
	}
	m, ok := f.meters[p.Recurring.Meter]
	if !ok {
		return ""
	}
	for _, ft := range f.catalog.Features() {
		if ft.Meter == m.EventName {
			return m.EventName
		}
	}
	return ""
}

// choose picks the item that decides: one plan over all live subscriptions, else the last plan stays.
func (f *facts) choose(d *derived, live []base) (base, bool) {
	names := map[string]bool{}
	for _, b := range live {
		names[b.plan.Name] = true
	}
	if len(names) > 1 {
		keep := slices.DeleteFunc(slices.Clone(live), func(b base) bool { return b.plan.Name != f.last })
		all := make([]string, 0, len(names))
		for n := range names {
			all = append(all, n)
		}
		slices.Sort(all)
		d.say("plan_conflict", f.customer, "live subscriptions of %s select the plans %v at once: the account keeps %s until one of them ends", f.customer, all, orDefault(f.last))
		if len(keep) == 0 {
			return base{}, false
		}
		live = keep
	}
	// Of several with one plan: the better standing, then the older one.
	slices.SortStableFunc(live, func(a, b base) int {
		return cmp.Or(cmp.Compare(rank(a.sub.Status), rank(b.sub.Status)), cmp.Compare(a.sub.Created, b.sub.Created))
	})
	return live[0], true
}

func rank(status string) int {
	return slices.Index([]string{"active", "trialing", "past_due", "paused", "unpaid"}, status)
}

func orDefault(plan string) string {
	if plan == "" {
		return "the default plan"
	}
	return plan
}

// keepLast is for prices that no plan names: the account keeps its plan, its period moves on, and what it uses beyond
// is recorded until the plan file is mended.
func (f *facts) keepLast(d *derived, unknown []*subscription) {
	for _, s := range unknown {
		if s.ended() || s.Status == "incomplete" || len(s.Items.Data) == 0 {
			continue
		}
		it := &s.Items.Data[0]
		for j := range s.Items.Data {
			if !s.Items.Data[j].Price.metered() {
				it = &s.Items.Data[j]
				break
			}
		}
		if d.ours || f.last != "" {
			d.say("unknown_price", it.Price.ID, "subscription %s has price %s (lookup key %q), which no plan names: the account keeps %s. Add the price to a plan, publish it, and run worker sync",
				s.ID, it.Price.ID, it.Price.LookupKey, orDefault(f.last))
		}
		plan, ok := f.catalog.Plan(f.last)
		if f.last == "" || !ok {
			continue
		}
		f.stand(d, base{s, it, plan}, true)
		return
	}
}

// leave is for a customer without any subscription that stands.
func (f *facts) leave(d *derived) {
	d.apply = true
	d.state = usage.PlanState{Quantity: 1, Months: 1}
	for i := range f.subs {
		if t := unix(f.subs[i].EndedAt); f.subs[i].ended() && t.After(d.state.Until) && !t.After(f.now) {
			d.state.Until = t
		}
	}
	d.early = d.state.Until
}
