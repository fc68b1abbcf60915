package stripesim

import (
	"time"
)

// cancelSubscription ends a subscription now. Without invoice_now, whose
// default is false, usage that no invoice shows yet is gone.
func (s *Server) cancelSubscription(c *call) (object, error) {
	sub, ok := s.liveSubscription(c, c.pathID())
	if !ok {
		return nil, missing("subscription", c.pathID())
	}
	invoiceNow, prorate := c.in.flag("invoice_now", false), c.in.flag("prorate", false)
	details := c.in.sub("cancellation_details")
	comment, feedback := details.str("comment"), details.str("feedback")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if sub.ended() {
		return nil, missing("subscription", c.pathID())
	}
	at := c.now.Truncate(time.Second)
	sub.comment, sub.feedback = comment, feedback
	trial := sub.status == "trialing"
	if prorate {
		for _, it := range sub.items {
			s.creditUnused(sub, it, it.price, it.quantity, at)
		}
	}
	var inv *invoice
	if invoiceNow {
		inv = s.draft(sub, "subscription_update", at)
		inv.periodStart, inv.periodEnd = sub.items[0].start, at
		for _, it := range sub.items {
			s.billUsage(inv, it, at, trial)
		}
	}
	sub.canceledAt = at
	s.endSubscription(sub, at, "canceled")
	if inv != nil && (len(inv.parts) > 0 || s.hasPending(sub)) {
		s.issue(inv, at, immediately)
	}
	return s.renderSubscription(sub, c.version), nil
}

// resumeSubscription brings a paused subscription back with a new anchor.
func (s *Server) resumeSubscription(c *call) (object, error) {
	sub, ok := s.liveSubscription(c, c.pathID())
	if !ok {
		return nil, missing("subscription", c.pathID())
	}
	anchor := c.in.enum("billing_cycle_anchor", "now", "now", "unchanged")
	c.in.enum("proration_behavior", "create_prorations", "create_prorations", "always_invoice", "none")
	c.in.ignored("proration_date")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if sub.status != "paused" {
		return nil, invalid("Only paused subscriptions can be resumed; this one is %s.", sub.status)
	}
	at := c.now.Truncate(time.Second)
	before := s.take(s.subscriptionShape(sub))
	sub.status = "active"
	if anchor == "now" {
		sub.anchor = at
	}
	inv := s.draft(sub, "subscription_update", at)
	for _, it := range sub.items {
		it.start, it.usageFrom, it.end = at, at, nextBoundary(sub.anchor, it.price.recurring, at)
		billLicensed(inv, it, false)
	}
	s.emit(at, "customer.subscription.resumed", s.subscriptionShape(sub), before)
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	if len(inv.parts) > 0 {
		s.issue(inv, at, immediately)
	}
	s.schedule(sub)
	return s.renderSubscription(sub, c.version), nil
}

// migrateSubscription turns classic billing into flexible billing, for good.
func (s *Server) migrateSubscription(c *call) (object, error) {
	sub, ok := s.liveSubscription(c, c.pathID())
	if !ok {
		return nil, missing("subscription", c.pathID())
	}
	if !c.version.from(versionBillingMode) {
		return nil, invalid("Unrecognized request URL for this API version.")
	}
	mode := c.in.sub("billing_mode")
	mode.enum("type", "", "flexible")
	mode.required("type")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	before := s.take(s.subscriptionShape(sub))
	sub.flexible, sub.flexibleAt = true, c.now
	s.emit(c.now, "customer.subscription.updated", s.subscriptionShape(sub), before)
	return s.renderSubscription(sub, c.version), nil
}

// ForceStatus puts a subscription into a status, as dunning settings or the
// Dashboard would, and sends the events of that change. "canceled" and
// "incomplete_expired" end it without an invoice. It reports whether the
// status exists, and the subscription too and had not ended.
func (s *Server) ForceStatus(subscriptionID, status string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, ok := s.subs.get(subscriptionID)
	if !ok || sub.ended() || !knownStatus(status) {
		return false
	}
	at := s.now().Truncate(time.Second)
	if status == "canceled" {
		sub.cancelReason = "payment_failed"
		s.endSubscription(sub, at, status)
		return true
	}
	before := s.take(s.subscriptionShape(sub))
	was := sub.status
	sub.status = status
	switch {
	case status == "incomplete_expired":
		sub.endedAt = at
	case status == "incomplete":
		sub.incompleteUntil = at.Add(incompleteLife)
	case status == "paused":
		s.emit(at, "customer.subscription.paused", s.subscriptionShape(sub), before)
	case was == "paused":
		s.emit(at, "customer.subscription.resumed", s.subscriptionShape(sub), before)
	}
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	s.schedule(sub)
	return true
}

func knownStatus(status string) bool {
	switch status {
	case "incomplete", "incomplete_expired", "trialing", "active", "past_due", "canceled", "unpaid", "paused":
		return true
	}
	return false
}

// PortalCancel cancels a subscription at its period's end as the customer
// portal does: flexible billing sets cancel_at alone, classic billing sets
// cancel_at_period_end too. It reports whether there was anything to cancel.
func (s *Server) PortalCancel(subscriptionID string) bool {
	return s.portal(subscriptionID, func(sub *subscription, at time.Time) {
		sub.cancelAt, sub.cancelAtPeriodEnd = sub.lastEnd(), !sub.flexible
		sub.canceledAt, sub.cancelReason = at, "cancellation_requested"
	})
}

// PortalRenew takes PortalCancel back.
func (s *Server) PortalRenew(subscriptionID string) bool {
	return s.portal(subscriptionID, func(sub *subscription, _ time.Time) {
		sub.cancelAt, sub.cancelAtPeriodEnd = time.Time{}, false
		sub.canceledAt, sub.cancelReason = time.Time{}, ""
	})
}

func (s *Server) portal(subscriptionID string, change func(*subscription, time.Time)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub, ok := s.subs.get(subscriptionID)
	if !ok || sub.ended() {
		return false
	}
	at := s.now().Truncate(time.Second)
	before := s.take(s.subscriptionShape(sub))
	change(sub, at)
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	s.schedule(sub)
	return true
}
