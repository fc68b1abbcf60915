package billing

import (
	"slices"
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const (
	lateRenewal  = time.Minute      // how soon a subscription is read again whose period is over at Stripe
	renewalGrace = 10 * time.Minute // for how long a renewal's webhook is waited for
)

// stand derives the state from the item that decides. fault keeps overage from being billed: the price is unknown.
func (f *facts) stand(d *derived, b base, fault bool) {
	start, end := b.sub.period(b.item)
	if start.IsZero() || !start.Before(end) {
		d.say("no_period", b.sub.ID, "subscription %s came without a period of its items: nothing was changed", b.sub.ID)
		return
	}
	plan, billable := f.standing(d, b)
	until := b.sub.until(end)
	if !f.now.Before(end) || (!until.IsZero() && !f.now.Before(until)) {
		if b.sub.Status == "paused" {
			f.leave(d)
			d.state.Until = end
			return
		}
		// Stripe is late: the clock has rolled the account over, and the next read confirms it.
		d.recheck = f.now.Add(lateRenewal)
		return
	}
	d.apply = true
	d.state = usage.PlanState{Plan: plan.Name, Quantity: max(b.item.Quantity, 1), Until: until}
	f.allowance(d, b, plan, start, end)
	f.bill(d, b, plan, billable && !fault, fault)
	// What follows is predicted until a read confirms it: at the end of a part of a longer period, which no webhook
	// tells, and otherwise a while after the webhook of the renewal should have come.
	next := d.state.Ends
	if next.Equal(end) {
		next = end.Add(renewalGrace)
	}
	if d.recheck.IsZero() || next.Before(d.recheck) {
		d.recheck = next
	}
}

// until is when the subscription is set to end; zero: it is not.
func (s *subscription) until(end time.Time) time.Time {
	if s.CancelAt > 0 {
		return unix(s.CancelAt)
	}
	if s.CancelAtPeriodEnd {
		return end
	}
	return time.Time{}
}

// standing is the plan that the subscription's state leaves, and whether overage may be billed in it.
func (f *facts) standing(d *derived, b base) (plan plans.Plan, billable bool) {
	switch b.sub.Status {
	case "active":
		return b.plan, b.sub.PauseCollection == nil
	case "trialing":
		return b.plan, false
	case "past_due":
		ends := b.sub.pastDueSince.Add(b.plan.PastDueGrace)
		if f.now.Before(ends) {
			d.recheck = ends
			return b.plan, b.sub.PauseCollection == nil
		}
	}
	// unpaid, paused, past_due beyond its grace, and whatever Stripe adds: the default plan in the same period, so that
	// nothing is lost or minted when it is paid again.
	return f.catalog.DefaultPlan(), false
}

// allowance cuts the allowance's period: the item's own where it is no longer than the plan's interval, else one of
// the plan's interval from the same anchor, within the item's.
func (f *facts) allowance(d *derived, b base, plan plans.Plan, start, end time.Time) {
	own, want := b.item.Price.months(), intervalMonths(plan.Interval)
	anchor := unix(b.sub.BillingCycleAnchor)
	d.state.Months = max(own, 1)
	d.state.Starts, d.state.Ends = start, end
	if own > want && b.sub.Status != "trialing" {
		d.state.Months = want
		if !onBoundary(anchor, want, start) {
			anchor = start
		}
		s, e := naturalPeriod(anchor, want, f.now)
		d.state.Starts, d.state.Ends = maxTime(s, start), minTime(e, end)
	}
	// What follows is predicted from an anchor that has a boundary at the end.
	for _, a := range []time.Time{anchor, d.state.Starts, d.state.Ends} {
		if onBoundary(a, d.state.Months, d.state.Ends) {
			d.state.Anchor = a
			return
		}
	}
}

// bill finds where each feature's overage goes, and what stands against billing it.
func (f *facts) bill(d *derived, b base, plan plans.Plan, billable, fault bool) {
	var windows []time.Time
	for _, q := range plan.Quotas() {
		if !q.BillOverage {
			continue
		}
		ft, _ := f.catalog.Feature(q.Feature)
		seg, ok := f.item(d, ft, plan)
		if ok && b.item.Quantity > 1 && !q.PerQuantity {
			d.say("quantity", b.sub.ID, "the base item of subscription %s has quantity %d, but plan %s grants per subscription: nothing is reported until the plan says per: quantity or the quantity is 1",
				b.sub.ID, b.item.Quantity, plan.Name)
			ok = false
		}
		if ok && !f.now.Before(seg.WindowEnd) {
			d.apply, d.recheck = false, f.now.Add(lateRenewal)
			return
		}
		if seg.Item != "" {
			d.segments[q.Feature] = seg
			windows = append(windows, seg.WindowEnd)
		}
		switch {
		case billable && ok:
			d.state.Billable = append(d.state.Billable, q.Feature)
		case billable || fault:
			d.state.Awaiting = append(d.state.Awaiting, q.Feature)
		}
	}
	if len(windows) > 1 && slices.ContainsFunc(windows, func(t time.Time) bool { return !t.Equal(windows[0]) }) {
		d.say("windows_differ", f.customer, "metered items of %s have different billing periods: nothing is reported until they agree", f.customer)
		d.state.Awaiting, d.state.Billable = append(d.state.Awaiting, d.state.Billable...), nil
	}
	for _, s := range d.segments {
		if !s.WindowStart.Equal(d.state.Starts) || !s.WindowEnd.Equal(d.state.Ends) {
			d.state.Window = usage.Window{Start: s.WindowStart, End: s.WindowEnd}
		}
	}
}

// item finds the one live item on a feature's meter. ok is false, and a finding says why, when there is none, more
// than one, or its price is not what the file says.
func (f *facts) item(d *derived, ft plans.Feature, plan plans.Plan) (seg segment, ok bool) {
	type hit struct {
		s  *subscription
		it *item
	}
	var hits []hit
	for i := range f.subs {
		s := &f.subs[i]
		if s.ended() || s.Status == "incomplete" {
			continue
		}
		for j := range s.Items.Data {
			if it := &s.Items.Data[j]; f.eventName(&it.Price) == ft.Meter {
				hits = append(hits, hit{s, it})
			}
		}
	}
	if len(hits) == 0 {
		d.say("item_missing", f.customer+"/"+ft.Meter, "%s is on plan %s, but no live subscription item of it is on meter %s: its overage is recorded and not billed. Add the metered price to the subscription",
			f.customer, plan.Name, ft.Meter)
		return seg, false
	}
	if len(hits) > 1 {
		d.hold[ft.Name] = true
		d.say("two_items", f.customer+"/"+ft.Meter, "%d live items of %s are on meter %s: each would bill the same usage. Nothing is reported until one is left", len(hits), f.customer, ft.Meter)
		return seg, false
	}
	s, it := hits[0].s, hits[0].it
	start, end := s.period(it)
	if start.IsZero() || !start.Before(end) {
		d.say("no_period", s.ID, "subscription %s came without a period of its items: nothing was changed", s.ID)
		return seg, false
	}
	m := f.meters[it.Price.Recurring.Meter]
	seg = segment{
		Subscription: s.ID, Item: it.ID, Price: it.Price.ID, Product: string(it.Price.Product), Currency: it.Price.Currency,
		TaxBehavior: it.Price.TaxBehavior, UnitAmount: it.Price.UnitAmountDecimal, Meter: m.EventName,
		WindowStart: start, WindowEnd: end, Since: unix(it.Created),
	}
	q, _ := plan.Quota(ft.Name)
	return seg, f.sound(d, &it.Price, m, q)
}

// sound reports whether a metered price charges what the file says, linearly, on a meter that sums.
func (f *facts) sound(d *derived, p *price, m meter, q plans.Quota) bool {
	switch {
	case m.Status != "active":
		d.say("meter", m.EventName, "meter %s is %s: nothing is reported on it", m.EventName, m.Status)
	case m.DefaultAggregation.Formula != "sum":
		d.say("meter", m.EventName, "meter %s aggregates by %s: only a sum meter bills what is reported", m.EventName, m.DefaultAggregation.Formula)
	case m.EventTimeWindow != "":
		d.say("meter", m.EventName, "meter %s keeps one event per %s: only a raw meter bills what is reported", m.EventName, m.EventTimeWindow)
	case p.transforms():
		d.say("price", p.ID, "price %s divides quantities (transform_quantity): nothing is reported on it", p.ID)
	case p.BillingScheme == "tiered":
		d.say("price", p.ID, "price %s has tiers: reporting only the excess would give a free first tier twice. Nothing is reported on it", p.ID)
	case !q.Price.FromStripe() && !sameAmount(p.UnitAmountDecimal, q.Price.UnitAmount()):
		d.say("price", p.ID, "price %s charges %s per unit, the plan file says %s: nothing is reported on it until they agree", p.ID, p.UnitAmountDecimal, q.Price.UnitAmountDecimal())
	case !q.Price.FromStripe() && f.catalog.Currency() != "" && p.Currency != f.catalog.Currency():
		d.say("price", p.ID, "price %s is in %s, the plan file in %s: nothing is reported on it until they agree", p.ID, p.Currency, f.catalog.Currency())
	default:
		return true
	}
	return false
}

func sameAmount(stripe string, file decimal.Decimal) bool {
	v, err := decimal.NewFromString(stripe)
	return err == nil && v.Equal(file)
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
