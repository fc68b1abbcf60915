package stripesim

import (
	"time"
)

// update is a parsed change of a subscription.
type update struct {
	items       []itemChange
	metadata    map[string]string
	description *string
	prorate     string
	anchorNow   bool

	cancelAtPeriodEnd *bool
	cancelAt          *time.Time // zero: unset
	trialEnd          *time.Time // now: end at once
	pause             *pauseCollection
	unpause           bool
	collection        string
	daysUntilDue      *int64
	paymentMethod     *string
	onMissingPayment  string
	comment, feedback *string
}

func (s *Server) updateSubscription(c *call) (object, error) {
	sub, ok := s.liveSubscription(c, c.pathID())
	if !ok {
		return nil, missing("subscription", c.pathID())
	}
	u, err := s.readUpdate(c, sub)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	at := c.now.Truncate(time.Second)
	if err := sub.checkUpdate(u, at); err != nil {
		return nil, err
	}
	s.applyUpdate(sub, u, at)
	return s.renderSubscription(sub, c.version), nil
}

func (n *node) optional(key string) *string {
	text, ok := n.value(key)
	if !ok {
		return nil
	}
	return &text
}

func (s *Server) readUpdate(c *call, sub *subscription) (update, error) {
	in := c.in
	u := update{
		metadata: in.metadata(sub.metadata), description: in.optional("description"),
		prorate:           in.enum("proration_behavior", "create_prorations", "create_prorations", "always_invoice", "none"),
		anchorNow:         in.enum("billing_cycle_anchor", "unchanged", "now", "unchanged") == "now",
		cancelAtPeriodEnd: in.boolean("cancel_at_period_end"),
		collection:        in.enum("collection_method", sub.collection, "charge_automatically", "send_invoice"),
		daysUntilDue:      in.integer("days_until_due"), paymentMethod: in.optional("default_payment_method"),
		onMissingPayment: in.sub("trial_settings").sub("end_behavior").enum("missing_payment_method", sub.onMissingPayment, "create_invoice", "pause", "cancel"),
	}
	details := in.sub("cancellation_details")
	u.comment, u.feedback = details.optional("comment"), details.optional("feedback")
	if in.has("cancel_at") {
		at := in.instant("cancel_at")
		u.cancelAt = &at
	}
	if in.has("trial_end") {
		at := c.now.Truncate(time.Second)
		if text, _ := in.value("trial_end"); text != "now" {
			at = in.instant("trial_end")
		}
		u.trialEnd = &at
	}
	if in.has("pause_collection") {
		p := in.sub("pause_collection")
		u.unpause = p.set
		if !p.set {
			u.pause = &pauseCollection{behavior: p.enum("behavior", "", "keep_as_draft", "mark_uncollectible", "void"), resumes: p.instant("resumes_at")}
			p.required("behavior")
		}
	}
	in.ignored("payment_settings", "payment_behavior", "off_session", "automatic_tax", "default_source", "invoice_settings", "proration_date")
	var err error
	u.items, err = s.readItems(c, sub)
	return u, err
}

func (sub *subscription) checkUpdate(u update, now time.Time) error {
	if sub.ended() {
		only := len(u.items) == 0 && !u.anchorNow && u.cancelAt == nil && u.cancelAtPeriodEnd == nil && u.trialEnd == nil
		if !only || u.pause != nil || u.unpause {
			return invalid("A canceled subscription can only update its cancellation_details and metadata.")
		}
		return nil
	}
	if len(u.items) > 0 {
		if err := sub.checkItems(u.items); err != nil {
			return err
		}
	}
	switch {
	case u.cancelAt != nil && !u.cancelAt.IsZero() && !u.cancelAt.After(now):
		return invalid("cancel_at must be in the future.").withParam("cancel_at")
	case u.cancelAt != nil && !u.cancelAt.IsZero() && u.cancelAtPeriodEnd != nil && *u.cancelAtPeriodEnd:
		return invalid("You cannot pass both cancel_at and cancel_at_period_end.")
	case u.trialEnd != nil && u.trialEnd.Before(now):
		return invalid("Invalid timestamp: must be an integer Unix timestamp in the future.").withParam("trial_end")
	case u.anchorNow && u.trialEnd != nil:
		return invalid("You cannot pass both billing_cycle_anchor and trial_end.")
	}
	return nil
}

// applyUpdate changes a subscription. Whatever is to be billed at once goes on
// one invoice, which is final at once.
func (s *Server) applyUpdate(sub *subscription, u update, at time.Time) {
	before := s.take(s.subscriptionShape(sub))
	sub.metadata, sub.collection, sub.onMissingPayment = u.metadata, u.collection, u.onMissingPayment
	for to, from := range map[*string]*string{
		&sub.description: u.description, &sub.defaultPaymentMethod: u.paymentMethod, &sub.comment: u.comment, &sub.feedback: u.feedback,
	} {
		if from != nil {
			*to = *from
		}
	}
	if u.daysUntilDue != nil {
		sub.daysUntilDue = *u.daysUntilDue
	}
	if u.pause != nil || u.unpause {
		sub.pause = u.pause
	}
	reset := u.anchorNow
	inv := s.draft(sub, "subscription_update", at)
	if len(u.items) > 0 {
		reset = s.changeItems(sub, u, at) || reset
	}
	if u.trialEnd != nil {
		s.moveTrial(sub, inv, *u.trialEnd, at)
	} else if reset {
		s.resetCycle(sub, inv, u.prorate, at)
	}
	s.changeCancellation(sub, u, inv, at)
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	if len(inv.parts) > 0 || u.prorate == "always_invoice" && s.hasPending(sub) {
		s.issue(inv, at, immediately)
	}
	s.schedule(sub)
}

func (s *Server) hasPending(sub *subscription) bool {
	for _, ii := range sub.customer.pending {
		if ii.sub == nil || ii.sub == sub {
			return true
		}
	}
	return false
}

// changeCancellation sets or unsets a scheduled end. A classic subscription
// that is to end before its period does starts a new cycle now.
func (s *Server) changeCancellation(sub *subscription, u update, inv *invoice, at time.Time) {
	switch {
	case u.cancelAtPeriodEnd != nil && *u.cancelAtPeriodEnd:
		sub.cancelAtPeriodEnd, sub.cancelAt = true, sub.lastEnd()
	case u.cancelAtPeriodEnd != nil && sub.cancelAtPeriodEnd, u.cancelAt != nil && u.cancelAt.IsZero():
		sub.cancelAtPeriodEnd, sub.cancelAt = false, time.Time{}
		sub.restorePeriods()
	case u.cancelAt != nil:
		sub.cancelAtPeriodEnd, sub.cancelAt = false, *u.cancelAt
		sub.restorePeriods()
		if !sub.flexible && sub.status != "trialing" && sub.cancelAt.Before(sub.lastEnd()) {
			s.resetCycle(sub, inv, u.prorate, at)
		}
		sub.cutPeriods()
	default:
		if sub.cancelAtPeriodEnd {
			sub.cancelAt = sub.lastEnd()
		}
		return
	}
	sub.canceledAt, sub.cancelReason = at, "cancellation_requested"
	if sub.cancelAt.IsZero() {
		sub.canceledAt, sub.cancelReason = time.Time{}, ""
	}
}

// restorePeriods undoes cutPeriods.
func (sub *subscription) restorePeriods() {
	if sub.status == "trialing" || sub.flexible {
		return
	}
	for _, it := range sub.items {
		it.end = nextBoundary(sub.anchor, it.price.recurring, it.start)
	}
}

// moveTrial sets the end of the trial, and with it the end of every item's
// period. Ended at once, the new cycle begins now.
func (s *Server) moveTrial(sub *subscription, inv *invoice, end, at time.Time) {
	if end.After(at) {
		if sub.trialStart.IsZero() {
			sub.trialStart = at
		}
		sub.status, sub.trialEnd, sub.anchor, sub.trialNoticed = "trialing", end, end, false
		for _, it := range sub.items {
			it.end = end
		}
		return
	}
	if sub.status != "trialing" {
		return
	}
	sub.trialEnd = at
	s.resetCycle(sub, inv, "none", at)
	sub.status = "active"
}

// resetCycle ends the current periods now, bills their usage, and begins new
// ones with a new anchor.
func (s *Server) resetCycle(sub *subscription, inv *invoice, prorate string, at time.Time) {
	trial := sub.status == "trialing"
	inv.periodStart, inv.periodEnd = sub.items[0].start, at
	for _, it := range sub.items {
		if prorate != "none" && !trial {
			s.creditUnused(sub, it, it.price, it.quantity, at)
		}
		s.billUsage(inv, it, at, trial)
	}
	sub.anchor = at
	for _, it := range sub.items {
		it.start, it.usageFrom, it.swapped = at, at, false
		it.end = nextBoundary(at, it.price.recurring, at)
	}
	sub.cutPeriods()
	for _, it := range sub.items {
		billLicensed(inv, it, false)
	}
}
