package stripesim

import (
	"time"
)

// longestWait is how long an unacknowledged invoice.created holds a draft.
const longestWait = 72 * time.Hour

// scheduleFinalization sets, or with a zero time clears, automatic finalization.
func (s *Server) scheduleFinalization(inv *invoice, at time.Time) {
	inv.finalizesAt = at
	s.set(&inv.alarm, at, func(at time.Time) { s.finalizeOnTime(inv, at) })
}

// finalizeOnTime waits longer while an endpoint has not acknowledged
// invoice.created.
func (s *Server) finalizeOnTime(inv *invoice, at time.Time) {
	last := inv.created.Add(longestWait)
	if !inv.ignoresWebhooks && inv.announced.pending > 0 && at.Before(last) {
		s.set(&inv.alarm, last, func(at time.Time) { s.finalize(inv, at) })
		return
	}
	s.finalize(inv, at)
}

// acknowledged sets the finalization of a draft to an hour after all endpoints
// had its invoice.created, if that is later than planned.
func (s *Server) acknowledged(inv *invoice, at time.Time) {
	inv.delivered = at
	if inv.status != "draft" || inv.finalizesAt.IsZero() || inv.ignoresWebhooks {
		return
	}
	next := at.Add(time.Hour)
	if last := inv.created.Add(longestWait); next.After(last) {
		next = last
	}
	if next.After(inv.finalizesAt) {
		s.scheduleFinalization(inv, next)
	}
}

// finalize reads the meters for the last time and opens the invoice, then
// collects it.
func (s *Server) finalize(inv *invoice, at time.Time) {
	if inv.status != "draft" {
		return
	}
	s.set(&inv.alarm, time.Time{}, nil)
	s.refresh(inv, at)
	inv.finalizesAt = time.Time{}
	inv.status, inv.finalizedAt, inv.number = "open", at, s.nextNumber(inv.customer)
	if inv.collection == "send_invoice" {
		inv.dueDate = at.AddDate(0, 0, int(inv.daysUntilDue))
	}
	s.emit(at, "invoice.finalized", s.invoiceShape(inv), nil)
	s.collect(inv, at)
}

// collect charges an open invoice, if anything is to be charged automatically.
func (s *Server) collect(inv *invoice, at time.Time) {
	if sub := inv.sub; sub != nil && sub.pause != nil {
		switch sub.pause.behavior {
		case "void":
			s.void(inv, at)
			return
		case "mark_uncollectible":
			s.writeOff(inv, at)
			return
		}
	}
	switch {
	case inv.remaining() == 0:
		s.settleInvoice(inv, at)
	case !inv.autoAdvance || inv.collection != "charge_automatically":
	case inv.sub != nil && inv.sub.ended(): // automatic collection stops with a cancellation
	case inv.awaitsPayment || s.declined[inv.customer.id]:
		s.paymentFails(inv, at)
	default:
		s.charge(inv, at)
	}
}

func (s *Server) charge(inv *invoice, at time.Time) {
	inv.attempts++
	s.settleInvoice(inv, at)
}

// settleInvoice marks an invoice paid, and revives its subscription.
func (s *Server) settleInvoice(inv *invoice, at time.Time) {
	inv.paid = inv.due()
	inv.status, inv.paidAt, inv.autoAdvance = "paid", at, false
	s.emit(at, "invoice.paid", s.invoiceShape(inv), nil)
	s.emit(at, "invoice.payment_succeeded", s.invoiceShape(inv), nil)
	s.revive(inv.sub, at)
}

// revive makes a subscription active again when nothing of it is unpaid.
func (s *Server) revive(sub *subscription, at time.Time) {
	if sub == nil || sub.status != "past_due" && sub.status != "unpaid" && sub.status != "incomplete" {
		return
	}
	for _, inv := range sub.invoices {
		if inv.status == "open" && inv.attempts > 0 {
			return
		}
	}
	before := s.take(s.subscriptionShape(sub))
	sub.status, sub.incompleteUntil = "active", time.Time{}
	s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	s.schedule(sub)
}

func (s *Server) paymentFails(inv *invoice, at time.Time) {
	inv.attempts++
	if !inv.awaitsPayment {
		s.emit(at, "invoice.payment_failed", s.invoiceShape(inv), nil)
	}
	sub := inv.sub
	if sub == nil || sub.ended() {
		return
	}
	if inv.reason == "subscription_create" {
		sub.status, sub.incompleteUntil = "incomplete", at.Add(incompleteLife)
		return // not announced yet: the caller emits customer.subscription.created
	}
	if sub.status == "active" || sub.status == "trialing" {
		before := s.take(s.subscriptionShape(sub))
		sub.status = "past_due"
		s.emit(at, "customer.subscription.updated", s.subscriptionShape(sub), before)
	}
}

func (s *Server) void(inv *invoice, at time.Time) {
	inv.status, inv.voidedAt, inv.autoAdvance = "void", at, false
	s.emit(at, "invoice.voided", s.invoiceShape(inv), nil)
	s.revive(inv.sub, at)
}

func (s *Server) writeOff(inv *invoice, at time.Time) {
	inv.status, inv.uncollectibleAt, inv.autoAdvance = "uncollectible", at, false
	s.emit(at, "invoice.marked_uncollectible", s.invoiceShape(inv), nil)
}
