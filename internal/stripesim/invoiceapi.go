package stripesim

import (
	"time"
)

func (s *Server) invoiceByPath(c *call) (*invoice, error) {
	inv, ok := s.invoices.get(c.pathID())
	if !ok {
		return nil, missing("invoice", c.pathID())
	}
	return inv, nil
}

func (s *Server) getInvoice(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	return s.renderInvoice(inv, c.version), nil
}

func (s *Server) listInvoices(c *call) (object, error) {
	l, status := c.in.listing(), c.in.enum("status", "", "draft", "open", "paid", "uncollectible", "void")
	customerID, subID, collection := c.in.str("customer"), c.in.str("subscription"), c.in.str("collection_method")
	created, due := c.in.span("created"), c.in.span("due_date")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	rows := s.invoices.rows
	if customerID != "" {
		cus, ok := s.customers.get(customerID)
		if !ok {
			return nil, missingParam("customer", customerID, "customer")
		}
		rows = cus.invoices
	}
	if subID != "" {
		sub, ok := s.subs.get(subID)
		if !ok {
			return nil, missingParam("subscription", subID, "subscription")
		}
		rows = sub.invoices
	}
	keep := func(inv *invoice) bool {
		return (status == "" || status == inv.status) && (collection == "" || collection == inv.collection) &&
			(customerID == "" || inv.customer.id == customerID) && created(inv.created) && due(inv.dueDate)
	}
	page, more, err := newestFirst(l, rows, s.invoices.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/invoices", page, more, func(inv *invoice) object { return s.renderInvoice(inv, c.version) }), nil
}

func (s *Server) listInvoiceLines(c *call) (object, error) {
	l := c.in.listing()
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	page, more, err := inOrder(l, inv.lines())
	if err != nil {
		return nil, err
	}
	url := "/v1/invoices/" + inv.id + "/lines"
	return list(url, page, more, func(l *line) object { return s.renderLine(inv, l, c.version) }), nil
}

// createInvoice makes a manual draft; without auto_advance it stays one.
func (s *Server) createInvoice(c *call) (object, error) {
	inv := &invoice{
		status: "draft", reason: "manual", description: c.in.str("description"), metadata: c.in.metadata(nil),
		collection:   c.in.enum("collection_method", "charge_automatically", "charge_automatically", "send_invoice"),
		daysUntilDue: c.in.integerOr("days_until_due", 0), currency: c.in.str("currency"),
	}
	inv.autoAdvance = c.in.flag("auto_advance", false)
	pending := c.in.enum("pending_invoice_items_behavior", "exclude", "include", "exclude")
	customerID, subID := c.in.required("customer"), c.in.str("subscription")
	c.in.ignored("footer", "statement_descriptor", "payment_settings", "custom_fields")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cus, err := s.liveCustomer(customerID, "customer")
	if err != nil {
		return nil, err
	}
	inv.record, inv.customer = s.newRecord("in", 24, c.now), cus
	inv.periodStart, inv.periodEnd = c.now, c.now
	if subID != "" {
		sub, ok := s.subs.get(subID)
		if !ok || sub.customer != cus {
			return nil, missingParam("subscription", subID, "subscription")
		}
		inv.sub, inv.currency, inv.reason = sub, sub.currency, "manual"
		pending = "include"
	}
	if inv.currency == "" {
		inv.currency = cus.currency
	}
	if inv.currency == "" {
		inv.currency = "usd"
	}
	inv.excludePending = pending == "exclude"
	s.issue(inv, c.now, after(time.Hour))
	return s.renderInvoice(inv, c.version), nil
}

func (s *Server) updateInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	metadata, advance := c.in.metadata(inv.metadata), c.in.boolean("auto_advance")
	description, described := c.in.value("description")
	deadline, err := inv.readDeadline(c)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status != "draft" && (described || !deadline.IsZero()) {
		return nil, invalid("Finalized invoices can't be updated in this way.")
	}
	before := s.take(s.invoiceShape(inv))
	inv.metadata = metadata
	if described {
		inv.description = description
	}
	if advance != nil {
		s.setAdvance(inv, *advance, c.now)
	}
	if !deadline.IsZero() {
		inv.ignoresWebhooks = true
		s.scheduleFinalization(inv, deadline)
	}
	s.emit(c.now, "invoice.updated", s.invoiceShape(inv), before)
	return s.renderInvoice(inv, c.version), nil
}

// readDeadline reads automatically_finalizes_at, which can be set since
// 2024-10-28.acacia while auto_advance is on. A time of the caller's switches
// the wait for invoice.created off.
func (inv *invoice) readDeadline(c *call) (time.Time, error) {
	if !c.version.from("2024-10-28") {
		return time.Time{}, nil
	}
	at := c.in.instant("automatically_finalizes_at")
	if at.IsZero() {
		return at, nil
	}
	if !inv.autoAdvance || !at.After(c.now) {
		return at, invalid("automatically_finalizes_at needs auto_advance and a time in the future.").withParam("automatically_finalizes_at")
	}
	return at, nil
}

// setAdvance switches automatic finalization; switched on again, it is an hour
// away.
func (s *Server) setAdvance(inv *invoice, on bool, now time.Time) {
	if inv.autoAdvance == on {
		return
	}
	inv.autoAdvance = on
	switch {
	case inv.status == "draft" && on:
		s.scheduleFinalization(inv, now.Add(time.Hour))
	case inv.status == "draft":
		s.scheduleFinalization(inv, time.Time{})
	case inv.status == "open" && on:
		s.collect(inv, now)
	}
}

func (s *Server) finalizeInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	advance := c.in.boolean("auto_advance")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status != "draft" {
		return nil, invalid("This invoice is already finalized, you can't re-finalize a non-draft invoice.").withCode("invoice_not_editable")
	}
	if advance != nil {
		inv.autoAdvance = *advance
	}
	s.finalize(inv, c.now)
	return s.renderInvoice(inv, c.version), nil
}

func (s *Server) payInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	outside := c.in.flag("paid_out_of_band", false)
	c.in.ignored("payment_method", "source", "off_session", "forgive", "mandate")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status == "draft" {
		inv.autoAdvance = false
		s.finalize(inv, c.now)
	}
	switch {
	case inv.status == "paid":
		return nil, invalid("Invoice is already paid").withCode("invoice_already_paid")
	case inv.status == "void":
		return nil, invalid("You cannot pay a voided invoice.")
	case s.declined[inv.customer.id] && !outside:
		s.paymentFails(inv, c.now)
		return nil, &apiError{status: 402, typ: "card_error", code: "card_declined", message: "Your card was declined."}
	}
	inv.awaitsPayment = false
	s.charge(inv, c.now)
	return s.renderInvoice(inv, c.version), nil
}

func (s *Server) voidInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status != "open" && inv.status != "uncollectible" {
		return nil, invalid("You can only pass in open or uncollectible invoices. This invoice is %s.", inv.status)
	}
	s.void(inv, c.now)
	return s.renderInvoice(inv, c.version), nil
}

func (s *Server) writeOffInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status != "open" {
		return nil, invalid("You can only mark an open invoice as uncollectible. This invoice is %s.", inv.status)
	}
	s.writeOff(inv, c.now)
	return s.renderInvoice(inv, c.version), nil
}

// deleteInvoice works for manual drafts only.
func (s *Server) deleteInvoice(c *call) (object, error) {
	inv, err := s.invoiceByPath(c)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if inv.status != "draft" || inv.sub != nil {
		return nil, invalid("You can only delete draft invoices that no subscription made.")
	}
	s.scheduleFinalization(inv, time.Time{})
	for _, p := range inv.parts {
		if p.invoiceItem != nil {
			s.invoiceItems.remove(p.invoiceItem.id)
		}
	}
	s.invoices.remove(inv.id)
	inv.customer.invoices = without(inv.customer.invoices, inv)
	s.emit(c.now, "invoice.deleted", s.invoiceShape(inv), nil)
	return object{"id": inv.id, "object": "invoice", "deleted": true}, nil
}
