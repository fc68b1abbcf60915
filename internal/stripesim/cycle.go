package stripesim

import (
	"time"
)

const (
	incompleteLife = 23 * time.Hour
	trialNotice    = 3 * 24 * time.Hour
)

// nextDue is when time next does something to the subscription; zero is never.
func (sub *subscription) nextDue() time.Time {
	var next time.Time
	if sub.ended() {
		return next
	}
	consider := func(at time.Time) {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	consider(sub.incompleteUntil)
	consider(sub.cancelAt)
	if sub.cycles() {
		_, end := sub.period()
		consider(end)
	}
	if sub.status == "trialing" && !sub.trialNoticed {
		consider(sub.trialEnd.Add(-trialNotice))
	}
	if sub.pause != nil {
		consider(sub.pause.resumes)
	}
	return next
}

// schedule sets the subscription's alarm to the next thing that time does to it.
func (s *Server) schedule(sub *subscription) {
	s.set(&sub.alarm, sub.nextDue(), func(at time.Time) {
		s.timePasses(sub, at)
		s.schedule(sub)
	})
}

// catchUp does what is overdue to a subscription before a call changes it: with
// a shared clock that can be ahead of the last tick.
func (s *Server) catchUp(sub *subscription, now time.Time) {
	due := sub.nextDue()
	if due.IsZero() || due.After(now) {
		return
	}
	caller := s.caller
	s.caller = nil // what follows is no effect of the call
	for ; !due.IsZero() && !due.After(now); due = sub.nextDue() {
		s.timePasses(sub, due)
	}
	s.caller = caller
	s.schedule(sub)
}

// liveSubscription is the subscription that a call is about to change.
func (s *Server) liveSubscription(c *call, id string) (*subscription, bool) {
	sub, ok := s.subs.get(id)
	if ok {
		s.catchUp(sub, c.now)
	}
	return sub, ok
}

// timePasses does the one thing that is due to a subscription.
func (s *Server) timePasses(sub *subscription, at time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(at) }
	_, end := sub.period()
	switch {
	case due(sub.incompleteUntil):
		s.expireIncomplete(sub, at)
	case sub.pause != nil && due(sub.pause.resumes):
		before := s.take(s.subscriptionShape(sub))
		sub.pause = nil
		s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	case due(sub.cancelAt):
		s.cancelOnTime(sub, at)
	case sub.cycles() && due(end):
		s.renew(sub, at)
	case sub.status == "trialing" && !sub.trialNoticed:
		sub.trialNoticed = true
		s.emit(at, "customer.subscription.trial_will_end", s.subscriptionShape(sub), nil)
	}
}

func (s *Server) expireIncomplete(sub *subscription, at time.Time) {
	before := s.take(s.subscriptionShape(sub))
	sub.incompleteUntil = time.Time{}
	sub.status, sub.endedAt = "incomplete_expired", at
	if inv := sub.latestInvoice; inv != nil && inv.status == "open" {
		s.void(inv, at)
	}
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
}

// renew ends the periods that are over and begins the next ones: one draft with
// last period's usage and next period's licensed fees.
func (s *Server) renew(sub *subscription, at time.Time) {
	before := s.take(s.subscriptionShape(sub))
	trial := sub.status == "trialing"
	if trial && s.endTrial(sub, at, before) {
		return
	}
	start, _ := sub.period()
	inv := s.draft(sub, "subscription_cycle", at)
	inv.periodStart, inv.periodEnd = start, at
	var over []*item
	for _, it := range sub.items {
		if !it.end.After(at) {
			over = append(over, it)
		}
	}
	for _, it := range over {
		s.billUsage(inv, it, at, trial)
		it.start, it.usageFrom, it.swapped = it.end, it.end, false
		it.end = nextBoundary(sub.anchor, it.price.recurring, it.start)
	}
	sub.cutPeriods()
	if sub.cancelAtPeriodEnd {
		sub.cancelAt = sub.lastEnd()
	}
	for _, it := range over {
		billLicensed(inv, it, false)
	}
	s.issue(inv, at, s.grace(sub))
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
}

// endTrial makes a trial active, or pauses or cancels the subscription when
// there is no way to pay; it reports whether that ended the renewal.
func (s *Server) endTrial(sub *subscription, at time.Time, before shapes) bool {
	if !s.declined[sub.customer.id] || sub.onMissingPayment == "create_invoice" {
		sub.status = "active"
		return false
	}
	if sub.onMissingPayment == "cancel" {
		sub.canceledAt = at
		s.endSubscription(sub, at, "canceled")
		return true
	}
	sub.status = "paused"
	s.emit(at, "customer.subscription.paused", s.subscriptionShape(sub), before)
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	return true
}

// cancelOnTime ends a subscription at its cancel_at: the last usage is billed,
// and no further invoice follows.
func (s *Server) cancelOnTime(sub *subscription, at time.Time) {
	start, _ := sub.period()
	trial := sub.status == "trialing"
	var inv *invoice
	if sub.cycles() && (sub.metered() || len(sub.customer.pending) > 0) {
		inv = s.draft(sub, "subscription_cycle", at)
		inv.periodStart, inv.periodEnd = start, at
		for _, it := range sub.items {
			s.billUsage(inv, it, at, trial)
		}
	}
	s.endSubscription(sub, at, "canceled")
	if inv != nil {
		s.issue(inv, at, s.grace(sub))
	}
}

func (sub *subscription) metered() bool {
	for _, it := range sub.items {
		if it.price.metered() || len(it.earlier) > 0 {
			return true
		}
	}
	return false
}

// endSubscription sets the terminal status. Automatic collection of what the
// subscription still owes stops.
func (s *Server) endSubscription(sub *subscription, at time.Time, status string) {
	sub.status, sub.endedAt = status, at
	if sub.canceledAt.IsZero() {
		sub.canceledAt = at
	}
	if sub.cancelReason == "" {
		sub.cancelReason = "cancellation_requested"
	}
	sub.incompleteUntil = time.Time{}
	s.schedule(sub)
	s.emit(at, "customer.subscription.deleted", s.subscriptionShape(sub), nil)
}

// openingInvoice bills the first period's licensed fees at once. Classic billing
// shows a metered item as a line of zero, flexible billing not at all.
func (s *Server) openingInvoice(sub *subscription, o opening, at time.Time) {
	inv := s.draft(sub, "subscription_create", at)
	inv.periodStart, inv.periodEnd = at, at
	trial := sub.status == "trialing"
	for _, it := range sub.items {
		if it.price.metered() {
			if !sub.flexible {
				inv.add(&part{kind: partSubscription, item: it, price: it.price, from: it.start, to: it.end, frozen: true})
			}
			continue
		}
		if !o.anchor.IsZero() && !trial {
			billStub(inv, it, o.prorate, at)
			continue
		}
		billLicensed(inv, it, trial)
	}
	if len(inv.parts) == 0 && len(sub.customer.pending) == 0 {
		return
	}
	if sub.collection == "send_invoice" {
		s.issue(inv, at, s.grace(sub))
		return
	}
	if o.pays == "default_incomplete" {
		inv.awaitsPayment = true
	}
	s.issue(inv, at, immediately)
}

// billStub charges the part of a period before a later anchor.
func billStub(inv *invoice, it *item, prorate string, at time.Time) {
	if prorate == "none" {
		return
	}
	whole := it.end.Sub(previousBoundary(it.sub.anchor, it.price.recurring, at))
	share := fraction(it.end.Sub(at), whole)
	amount := priceTotal(it.price, it.quantity).Mul(share).Round(0).IntPart()
	inv.add(&part{
		kind: partSubscription, item: it, price: it.price, from: at, to: it.end, quantity: it.quantity,
		fixed: &amount, proration: true, description: it.price.product.name,
	})
}
