package stripesim

import (
	"fmt"
	"time"
)

type invoice struct {
	record
	customer     *customer
	sub          *subscription // nil for manual ones
	status       string
	reason       string
	collection   string
	daysUntilDue int64
	autoAdvance  bool
	number       string
	currency     string
	description  string
	metadata     map[string]string
	parts        []*part

	periodStart, periodEnd time.Time
	finalizesAt            time.Time // zero: nothing is scheduled
	alarm                  alarm
	announced              *event // invoice.created, whose delivery may delay finalization
	delivered              time.Time
	excludePending         bool // leave the customer's pending items for another invoice
	ignoresWebhooks        bool // a deadline set by the caller waits for no acknowledgement

	finalizedAt, paidAt, voidedAt, uncollectibleAt, dueDate time.Time

	attempts      int64
	paid          int64
	credited      int64 // by credit notes, before payment
	creditedAfter int64 // by credit notes, after payment
	awaitsPayment bool  // payment_behavior=default_incomplete
}

func (inv *invoice) lines() []*line {
	var out []*line
	for _, p := range inv.parts {
		out = append(out, p.lines...)
	}
	return out
}

func (inv *invoice) total() int64 {
	var sum int64
	for _, l := range inv.lines() {
		sum += l.amount
	}
	return sum
}

// due is what is to be paid: a negative total is owed to the customer.
func (inv *invoice) due() int64 { return max(0, inv.total()-inv.credited) }

func (inv *invoice) remaining() int64 {
	if inv.status == "void" {
		return 0
	}
	return max(0, inv.due()-inv.paid)
}

// hostedURL is where the customer looks at the invoice: nowhere while it is a draft.
func (inv *invoice) hostedURL() any {
	if inv.status == "draft" {
		return nil
	}
	return "https://invoice.stripe.com/i/" + inv.id
}

func (s *Server) invoiceShape(inv *invoice) render {
	return func(v version) object { return s.renderInvoice(inv, v) }
}

func (s *Server) renderInvoice(inv *invoice, v version) object {
	total := inv.total()
	out := object{
		"id": inv.id, "object": "invoice", "account_country": "US", "account_name": "Simulator", "account_tax_ids": nil,
		"amount_due": inv.due(), "amount_paid": inv.paid, "amount_remaining": inv.remaining(), "amount_shipping": 0,
		"application": nil, "attempt_count": inv.attempts, "attempted": inv.attempts > 0, "auto_advance": inv.autoAdvance,
		"automatic_tax": object{"enabled": false, "liability": nil, "status": nil}, "automatically_finalizes_at": nil,
		"billing_reason": inv.reason, "collection_method": inv.collection, "created": inv.created.Unix(),
		"currency": inv.currency, "custom_fields": nil, "customer": inv.customer.id, "customer_email": nullable(inv.customer.email),
		"customer_name": nullable(inv.customer.name), "customer_tax_exempt": "none", "customer_tax_ids": []any{},
		"default_payment_method": nil, "default_source": nil, "default_tax_rates": []any{}, "description": nullable(inv.description),
		"discounts": []any{}, "due_date": unix(inv.dueDate), "effective_at": unix(inv.finalizedAt), "ending_balance": nil,
		"footer": nil, "from_invoice": nil, "hosted_invoice_url": inv.hostedURL(), "invoice_pdf": nil, "issuer": object{"type": "self"},
		"last_finalization_error": nil, "latest_revision": nil, "lines": s.renderLineList(inv, v), "livemode": s.live(),
		"metadata": pairs(inv.metadata), "next_payment_attempt": nil, "number": nullable(inv.number), "on_behalf_of": nil,
		"period_end": inv.periodEnd.Unix(), "period_start": inv.periodStart.Unix(),
		"post_payment_credit_notes_amount": inv.creditedAfter, "pre_payment_credit_notes_amount": inv.credited,
		"starting_balance": 0, "statement_descriptor": nil, "status": inv.status,
		"status_transitions": object{
			"finalized_at": unix(inv.finalizedAt), "marked_uncollectible_at": unix(inv.uncollectibleAt),
			"paid_at": unix(inv.paidAt), "voided_at": unix(inv.voidedAt),
		},
		"subtotal": total, "subtotal_excluding_tax": total, "test_clock": nil, "total": total, "total_discount_amounts": []any{},
		"total_excluding_tax": total, "webhooks_delivered_at": unix(inv.delivered),
	}
	if !s.cfg.HideDeadline && inv.status == "draft" {
		out["automatically_finalizes_at"] = unix(inv.finalizesAt)
	}
	s.addInvoiceParent(inv, v, out)
	return out
}

// addInvoiceParent names the subscription where the version has it.
func (s *Server) addInvoiceParent(inv *invoice, v version, out object) {
	if v.basil() {
		out["parent"], out["total_taxes"] = nil, []any{}
		if inv.sub != nil {
			out["parent"] = object{
				"type": "subscription_details", "quote_details": nil,
				"subscription_details": object{"metadata": pairs(inv.sub.metadata), "subscription": inv.sub.id},
			}
		}
		return
	}
	out["paid"], out["paid_out_of_band"] = inv.status == "paid", false
	out["charge"], out["payment_intent"], out["discount"], out["quote"] = nil, nil, nil, nil
	out["tax"], out["total_tax_amounts"] = nil, []any{}
	out["subscription"], out["subscription_details"] = nil, object{"metadata": nil}
	if inv.sub != nil {
		out["subscription"] = inv.sub.id
		out["subscription_details"] = object{"metadata": pairs(inv.sub.metadata)}
	}
}

func (s *Server) renderLineList(inv *invoice, v version) object {
	lines := inv.lines()
	page, more, _ := inOrder(listing{limit: 10}, lines)
	out := list("/v1/invoices/"+inv.id+"/lines", page, more, func(l *line) object { return s.renderLine(inv, l, v) })
	out["total_count"] = len(lines)
	return out
}

// draft makes an invoice for a subscription; issue brings it on its way.
func (s *Server) draft(sub *subscription, reason string, at time.Time) *invoice {
	inv := &invoice{
		record: s.newRecord("in", 24, at), customer: sub.customer, sub: sub, status: "draft", reason: reason,
		collection: sub.collection, daysUntilDue: sub.daysUntilDue, autoAdvance: true, currency: sub.currency,
		periodStart: at, periodEnd: at,
	}
	return inv
}

// wait is how long a new invoice stays a draft.
type wait struct {
	draft bool
	grace time.Duration
}

var immediately = wait{}

func after(grace time.Duration) wait { return wait{draft: true, grace: grace} }

// grace is the account's grace period, which holds for automatic collection
// only.
func (s *Server) grace(sub *subscription) wait {
	if sub.collection == "send_invoice" {
		return after(time.Hour)
	}
	return after(s.cfg.GracePeriod)
}

// issue stores a new invoice with the customer's pending items of its currency,
// announces it, and schedules or makes its finalization.
func (s *Server) issue(inv *invoice, at time.Time, w wait) {
	s.takePending(inv)
	s.refresh(inv, at)
	s.store(inv)
	switch {
	case !s.advances(inv):
		inv.autoAdvance = false
	case w.draft:
		s.scheduleFinalization(inv, at.Add(w.grace))
	}
	inv.announced = &event{}
	if s.wanted("invoice.created") {
		inv.announced = s.build(at, "invoice.created", s.invoiceShape(inv), nil)
		inv.announced.invoice = inv
		s.publish(at, inv.announced)
	}
	if inv.autoAdvance && !w.draft {
		s.finalize(inv, at)
	}
}

func (s *Server) store(inv *invoice) {
	s.invoices.add(inv)
	inv.customer.invoices = append(inv.customer.invoices, inv)
	if inv.sub != nil {
		inv.sub.invoices = append(inv.sub.invoices, inv)
		inv.sub.latestInvoice = inv
	}
}

// advances tells whether a new invoice goes on by itself: not for an unpaid
// subscription, nor while collection is paused as drafts.
func (s *Server) advances(inv *invoice) bool {
	if inv.sub == nil {
		return inv.autoAdvance
	}
	paused := inv.sub.pause != nil && inv.sub.pause.behavior == "keep_as_draft"
	return inv.autoAdvance && inv.sub.status != "unpaid" && !paused
}

// refresh brings the lines up to date with the meters.
func (s *Server) refresh(inv *invoice, at time.Time) {
	for _, p := range inv.parts {
		s.measure(p, at)
		s.rebuild(p, inv)
	}
}

func (s *Server) nextNumber(cus *customer) string {
	cus.invoiceNumber++
	return fmt.Sprintf("%s-%04d", cus.id[len(cus.id)-8:], cus.invoiceNumber)
}
