package stripesim

import (
	"fmt"

	"github.com/shopspring/decimal"
)

type creditNote struct {
	record
	invoice                  *invoice
	lines                    []*creditLine
	total                    int64
	reason, memo             string
	metadata                 map[string]string
	refund, credit, external int64
	number                   string
	after                    bool // made when the invoice was paid
	voided                   bool
}

type creditLine struct {
	record
	of          *line // nil for custom lines
	quantity    int64
	amount      int64
	unit        decimal.Decimal
	description string
}

func (s *Server) renderCreditNote(cn *creditNote) object {
	kind, status := "pre_payment", "issued"
	if cn.after {
		kind = "post_payment"
	}
	if cn.voided {
		status = "void"
	}
	page, more, _ := inOrder(listing{limit: 10}, cn.lines)
	return object{
		"id": cn.id, "object": "credit_note", "amount": cn.total, "amount_shipping": 0, "created": cn.created.Unix(),
		"currency": cn.invoice.currency, "customer": cn.invoice.customer.id, "customer_balance_transaction": nil, "discount_amount": 0,
		"discount_amounts": []any{}, "effective_at": cn.created.Unix(), "invoice": cn.invoice.id,
		"lines":    list("/v1/credit_notes/"+cn.id+"/lines", page, more, s.renderCreditLine),
		"livemode": s.live(), "memo": nullable(cn.memo), "metadata": pairs(cn.metadata), "number": cn.number,
		"out_of_band_amount": cn.external, "pdf": "", "reason": nullable(cn.reason), "refund": nil, "shipping_cost": nil,
		"status": status, "subtotal": cn.total, "subtotal_excluding_tax": cn.total, "tax_amounts": []any{}, "total": cn.total,
		"total_excluding_tax": cn.total, "type": kind, "voided_at": nil,
	}
}

func (s *Server) renderCreditLine(l *creditLine) object {
	out := object{
		"id": l.id, "object": "credit_note_line_item", "amount": l.amount, "amount_excluding_tax": l.amount,
		"description": nullable(l.description), "discount_amount": 0, "discount_amounts": []any{}, "livemode": s.live(),
		"quantity": l.quantity, "tax_amounts": []any{}, "tax_rates": []any{}, "type": "custom_line_item",
		"unit_amount": minor(l.unit), "unit_amount_decimal": l.unit.String(), "unit_amount_excluding_tax": l.unit.String(),
	}
	if l.of != nil {
		out["type"], out["invoice_line_item"] = "invoice_line_item", l.of.id
	}
	return out
}

func (s *Server) createCreditNote(c *call) (object, error) {
	cn, err := s.readCreditNote(c)
	if err != nil {
		return nil, err
	}
	if err := cn.check(); err != nil {
		return nil, err
	}
	s.issueCreditNote(cn, c)
	return s.renderCreditNote(cn), nil
}

// previewCreditNote answers what a credit note would be, however it would be given back.
func (s *Server) previewCreditNote(c *call) (object, error) {
	cn, err := s.readCreditNote(c)
	if err != nil {
		return nil, err
	}
	cn.record.created, cn.after = c.now, cn.invoice.status == "paid"
	return s.renderCreditNote(cn), nil
}

func (s *Server) readCreditNote(c *call) (*creditNote, error) {
	in := c.in
	cn := &creditNote{
		memo: in.str("memo"), metadata: in.metadata(nil),
		reason: in.enum("reason", "", "duplicate", "fraudulent", "order_change", "product_unsatisfactory"),
		refund: in.integerOr("refund_amount", 0), credit: in.integerOr("credit_amount", 0), external: in.integerOr("out_of_band_amount", 0),
	}
	invoiceID, whole := in.required("invoice"), in.integer("amount")
	in.ignored("email_type", "effective_at")
	inv, ok := s.invoices.get(invoiceID)
	if !ok {
		return nil, missingParam("invoice", invoiceID, "invoice")
	}
	for _, at := range in.list("lines") {
		l, err := inv.readCreditLine(at)
		if err != nil {
			return nil, err
		}
		cn.lines = append(cn.lines, l)
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	for _, l := range cn.lines {
		cn.total += l.amount
	}
	switch {
	case len(cn.lines) == 0 && whole == nil:
		return nil, invalid("You must pass one of amount or lines.")
	case len(cn.lines) > 0 && whole != nil && *whole != cn.total:
		return nil, invalid("The amount %d is not the sum of the lines, %d.", *whole, cn.total).withParam("amount")
	case len(cn.lines) == 0:
		cn.total = *whole
	}
	cn.invoice = inv
	return cn, nil
}

// readCreditLine prices one line: by quantity of an invoice's line, or by
// amount.
func (inv *invoice) readCreditLine(in *node) (*creditLine, error) {
	l := &creditLine{description: in.str("description"), quantity: in.integerOr("quantity", 1)}
	kind, lineID, amount := in.enum("type", "", "invoice_line_item", "custom_line_item"), in.str("invoice_line_item"), in.integer("amount")
	quantified := in.has("quantity")
	unit, unitGiven := in.amount("unit_amount")
	in.required("type")
	in.ignored("tax_amounts", "tax_rates")
	if kind == "custom_line_item" {
		l.unit = unit
		l.amount = decimal.NewFromInt(l.quantity).Mul(unit).Round(0).IntPart()
		if !unitGiven {
			return nil, invalid("A custom_line_item needs unit_amount.").withParam(in.path("unit_amount"))
		}
		return l, nil
	}
	for _, each := range inv.lines() {
		if each.id == lineID {
			l.of = each
		}
	}
	if l.of == nil {
		return nil, missingParam("invoice line item", lineID, in.path("invoice_line_item"))
	}
	l.unit = l.of.unit
	switch {
	case amount != nil && quantified:
		return nil, invalid("Give amount or quantity of a line, not both.").withParam(in.path("amount"))
	case amount != nil:
		l.amount, l.quantity = *amount, 0
	case quantified && l.quantity < l.of.quantity:
		l.amount = decimal.NewFromInt(l.quantity).Mul(l.unit).Round(0).IntPart()
	default:
		l.amount = l.of.amount
	}
	if l.quantity+l.of.creditedQuantity > l.of.quantity || l.amount+l.of.credited > l.of.amount || l.quantity < 0 || l.amount < 0 {
		return nil, invalid("The line %s has %d of %d units and %d of %d left to credit.", lineID,
			l.of.quantity-l.of.creditedQuantity, l.of.quantity, l.of.amount-l.of.credited, l.of.amount).withParam(in.path("quantity"))
	}
	return l, nil
}

func (cn *creditNote) check() error {
	inv := cn.invoice
	switch inv.status {
	case "draft":
		return invalid("You can't create a credit note for a draft invoice: change the draft instead.").withParam("invoice")
	case "void":
		return invalid("You can't create a credit note for a voided invoice.").withParam("invoice")
	}
	if cn.total <= 0 {
		return invalid("A credit note's total must be positive.")
	}
	paidBy := cn.refund + cn.credit + cn.external
	if cn.after = inv.status == "paid"; cn.after {
		if left := inv.paid - inv.creditedAfter; cn.total > left {
			return invalid("The credit note of %d exceeds what is left of the invoice, %d.", cn.total, left)
		}
		if paidBy != cn.total {
			return invalid("The sum of credit_amount, refund_amount and out_of_band_amount must equal the credit note's total, %d.", cn.total)
		}
		return nil
	}
	if paidBy != 0 {
		return invalid("An open invoice's credit note lowers its amount due: refund_amount, credit_amount and out_of_band_amount must be 0.")
	}
	if left := inv.remaining(); cn.total > left {
		return invalid("The credit note of %d exceeds what is left of the invoice, %d.", cn.total, left)
	}
	return nil
}

func (s *Server) issueCreditNote(cn *creditNote, c *call) {
	cn.record = s.newRecord("cn", 24, c.now)
	inv := cn.invoice
	cn.number = fmt.Sprintf("%s-CN-%02d", inv.number, len(s.creditNotes.rows)+1)
	for _, l := range cn.lines {
		l.record = s.newRecord("cnli", 24, c.now)
		if l.of != nil {
			l.of.credited += l.amount
			l.of.creditedQuantity += l.quantity
		}
	}
	s.creditNotes.add(cn)
	before := s.take(s.invoiceShape(inv))
	if cn.after {
		inv.creditedAfter += cn.total
	} else {
		inv.credited += cn.total
	}
	s.emit(c.now, "credit_note.created", func(version) object { return s.renderCreditNote(cn) }, nil)
	s.emit(c.now, "invoice.updated", s.invoiceShape(inv), before)
	if inv.status == "open" && inv.remaining() == 0 {
		s.settleInvoice(inv, c.now)
	}
}

func (s *Server) getCreditNote(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cn, ok := s.creditNotes.get(c.pathID())
	if !ok {
		return nil, missing("credit note", c.pathID())
	}
	return s.renderCreditNote(cn), nil
}

func (s *Server) listCreditNotes(c *call) (object, error) {
	l, invoiceID, customerID, within := c.in.listing(), c.in.str("invoice"), c.in.str("customer"), c.in.span("created")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(cn *creditNote) bool {
		return (invoiceID == "" || cn.invoice.id == invoiceID) && (customerID == "" || cn.invoice.customer.id == customerID) && within(cn.created)
	}
	page, more, err := newestFirst(l, s.creditNotes.rows, s.creditNotes.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/credit_notes", page, more, s.renderCreditNote), nil
}

func (s *Server) listCreditLines(c *call) (object, error) {
	l := c.in.listing()
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cn, ok := s.creditNotes.get(c.pathID())
	if !ok {
		return nil, missing("credit note", c.pathID())
	}
	page, more, err := inOrder(l, cn.lines)
	if err != nil {
		return nil, err
	}
	return list("/v1/credit_notes/"+cn.id+"/lines", page, more, s.renderCreditLine), nil
}
