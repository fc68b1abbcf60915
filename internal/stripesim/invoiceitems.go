package stripesim

import (
	"strings"
	"time"

	"github.com/shopspring/decimal"
)

// invoiceItem is a single charge or credit that waits for the customer's next
// invoice, or was put on a draft.
type invoiceItem struct {
	record
	customer    *customer
	sub         *subscription
	invoice     *invoice // nil while pending
	currency    string
	description string
	metadata    map[string]string
	from, to    time.Time
	price       *price
	quantity    int64
	unit        decimal.Decimal
	amount      int64
	proration   bool
}

func (s *Server) renderInvoiceItem(ii *invoiceItem, v version) object {
	out := object{
		"id": ii.id, "object": "invoiceitem", "amount": ii.amount, "currency": ii.currency, "customer": ii.customer.id,
		"date": ii.created.Unix(), "description": nullable(ii.description), "discountable": !ii.proration, "discounts": []any{},
		"invoice": nil, "livemode": s.live(), "metadata": pairs(ii.metadata),
		"period": object{"start": ii.from.Unix(), "end": ii.to.Unix()}, "proration": ii.proration, "quantity": ii.quantity,
		"tax_rates": []any{}, "test_clock": nil,
	}
	if ii.invoice != nil {
		out["invoice"] = ii.invoice.id
	}
	var sub any
	if ii.sub != nil {
		sub = ii.sub.id
	}
	if v.basil() {
		out["parent"], out["pricing"] = nil, nil
		if ii.sub != nil {
			out["parent"] = object{"type": "subscription_details", "subscription_details": object{"subscription": sub, "subscription_item": nil}}
		}
		if ii.price != nil {
			out["pricing"] = object{
				"type": "price_details", "unit_amount_decimal": ii.unit.String(),
				"price_details": object{"price": ii.price.id, "product": ii.price.product.id},
			}
		}
		return out
	}
	out["subscription"], out["plan"], out["price"] = sub, nil, nil
	out["unit_amount"], out["unit_amount_decimal"] = minor(ii.unit), ii.unit.String()
	if ii.price != nil {
		out["price"] = s.renderPrice(ii.price)
	}
	return out
}

func (s *Server) invoiceItemShape(ii *invoiceItem) render {
	return func(v version) object { return s.renderInvoiceItem(ii, v) }
}

func (s *Server) createInvoiceItem(c *call) (object, error) {
	in := c.in
	ii := &invoiceItem{
		description: in.str("description"), metadata: in.metadata(nil), quantity: in.integerOr("quantity", 1), currency: strings.ToLower(in.str("currency")),
		from: c.now, to: c.now,
	}
	if in.has("period") {
		period := in.sub("period")
		period.required("start")
		period.required("end")
		ii.from, ii.to = period.instant("start"), period.instant("end")
		if ii.to.Before(ii.from) {
			c.form.fail(invalid("Invalid period: end must not be before start.").withParam("period[end]"))
		}
	}
	customerID, invoiceID, subID, priceID := in.required("customer"), in.str("invoice"), in.str("subscription"), in.str("price")
	amount := in.integer("amount")
	unit, unitGiven := in.amount("unit_amount")
	data := in.sub("price_data")
	dataCurrency, dataProduct := strings.ToLower(data.str("currency")), data.str("product")
	dataTax := data.enum("tax_behavior", "unspecified", "unspecified", "inclusive", "exclusive")
	dataUnit, dataGiven := data.amount("unit_amount")
	in.ignored("discountable", "tax_behavior", "tax_code", "tax_rates", "discounts")
	given := 0
	for _, one := range []bool{amount != nil, unitGiven, priceID != "", in.has("price_data")} {
		if one {
			given++
		}
	}
	if given != 1 {
		c.form.fail(invalid("You must pass exactly one of amount, unit_amount, price or price_data."))
	}
	if in.has("price_data") && (dataCurrency == "" || dataProduct == "" || !dataGiven) {
		c.form.fail(invalid("Missing required param: price_data needs currency, product and unit_amount.").withCode("parameter_missing").withParam("price_data"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	var err error
	switch {
	case priceID != "":
		ii.price, err = s.oneTimePrice(priceID)
	case dataGiven:
		ii.price, err = s.inlinePrice(dataProduct, dataCurrency, dataTax, dataUnit, c.now)
	case amount != nil:
		ii.unit, ii.amount, ii.quantity = decimal.NewFromInt(*amount), *amount, 1
	default:
		ii.unit = unit
	}
	if err != nil {
		return nil, err
	}
	if ii.price != nil {
		ii.unit, ii.currency = ii.price.unitAmount, ii.price.currency
	}
	if err := s.attachInvoiceItem(ii, customerID, invoiceID, subID); err != nil {
		return nil, err
	}
	if amount == nil {
		ii.amount = decimal.NewFromInt(ii.quantity).Mul(ii.unit).Round(0).IntPart()
	}
	s.placeInvoiceItem(ii, c.now)
	return s.renderInvoiceItem(ii, c.version), nil
}

// attachInvoiceItem resolves what an item belongs to. A draft, or a pending
// item's invoice, must have the item's currency.
func (s *Server) attachInvoiceItem(ii *invoiceItem, customerID, invoiceID, subID string) error {
	cus, err := s.liveCustomer(customerID, "customer")
	if err != nil {
		return err
	}
	ii.customer = cus
	if ii.currency == "" {
		ii.currency = cus.currency
	}
	if ii.currency == "" {
		ii.currency = "usd"
	}
	if subID != "" {
		sub, ok := s.subs.get(subID)
		if !ok || sub.customer != cus {
			return missingParam("subscription", subID, "subscription")
		}
		if sub.ended() && invoiceID == "" {
			return invalid("The subscription %s is canceled: an invoice item on it would never be invoiced.", subID).withParam("subscription")
		}
		ii.sub = sub
	}
	if invoiceID == "" {
		return nil
	}
	inv, ok := s.invoices.get(invoiceID)
	switch {
	case !ok || inv.customer != cus:
		return missingParam("invoice", invoiceID, "invoice")
	case inv.status != "draft":
		return invalid("The invoice %s is no longer editable: it is %s.", invoiceID, inv.status).withCode("invoice_not_editable").withParam("invoice")
	case inv.currency != ii.currency:
		return invalid("The currency %s of the invoice item is not the invoice's, %s.", ii.currency, inv.currency).withParam("currency")
	}
	ii.invoice = inv
	return nil
}

// placeInvoiceItem stores an item on its draft, or among the pending ones.
func (s *Server) placeInvoiceItem(ii *invoiceItem, at time.Time) {
	ii.record = s.newRecord("ii", 24, at)
	s.invoiceItems.add(ii)
	if ii.invoice == nil {
		ii.customer.pending = append(ii.customer.pending, ii)
	} else {
		s.include(ii.invoice, ii)
	}
	s.emit(at, "invoiceitem.created", s.invoiceItemShape(ii), nil)
	if ii.invoice != nil {
		s.emit(at, "invoice.updated", s.invoiceShape(ii.invoice), nil)
	}
}

func (s *Server) include(inv *invoice, ii *invoiceItem) {
	ii.invoice = inv
	amount := ii.amount
	p := &part{
		kind: partInvoiceItem, invoiceItem: ii, price: ii.price, from: ii.from, to: ii.to, quantity: ii.quantity, fixed: &amount,
		unit: ii.unit, proration: ii.proration, description: ii.description, metadata: ii.metadata,
	}
	inv.add(p)
	s.rebuild(p, inv)
}

// takePending moves the customer's pending items onto an invoice: those of its
// currency, and of its subscription or of none.
func (s *Server) takePending(inv *invoice) {
	if inv.excludePending {
		return
	}
	var left []*invoiceItem
	for _, ii := range inv.customer.pending {
		if ii.currency != inv.currency || ii.sub != nil && ii.sub != inv.sub {
			left = append(left, ii)
			continue
		}
		s.include(inv, ii)
	}
	inv.customer.pending = left
}

func (s *Server) oneTimePrice(id string) (*price, error) {
	p, ok := s.prices.get(id)
	if !ok {
		return nil, missingParam("price", id, "price")
	}
	if p.recurring != nil {
		return nil, invalid("The price specified is set to `type=recurring` but this field only accepts prices with `type=one_time`.").withParam("price")
	}
	return p, nil
}

// inlinePrice makes the inactive one-time price that price_data stands for.
func (s *Server) inlinePrice(productID, currency, tax string, unit decimal.Decimal, at time.Time) (*price, error) {
	product, ok := s.products.get(productID)
	if !ok {
		return nil, missingParam("product", productID, "price_data[product]")
	}
	p := &price{record: s.newRecord("price", 24, at), product: product, currency: currency, unitAmount: unit, taxBehavior: tax}
	s.prices.add(p)
	return p, nil
}

func (s *Server) getInvoiceItem(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	ii, ok := s.invoiceItems.get(c.pathID())
	if !ok {
		return nil, missing("invoiceitem", c.pathID())
	}
	return s.renderInvoiceItem(ii, c.version), nil
}

// deleteInvoiceItem works until its invoice is finalized.
func (s *Server) deleteInvoiceItem(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	ii, ok := s.invoiceItems.get(c.pathID())
	if !ok {
		return nil, missing("invoiceitem", c.pathID())
	}
	if ii.invoice != nil && ii.invoice.status != "draft" {
		return nil, invalid("The invoice item is attached to an invoice that is no longer editable.").withCode("invoice_not_editable")
	}
	ii.customer.pending = without(ii.customer.pending, ii)
	if inv := ii.invoice; inv != nil {
		kept := inv.parts[:0:0]
		for _, p := range inv.parts {
			if p.invoiceItem != ii {
				kept = append(kept, p)
			}
		}
		inv.parts = kept
	}
	s.invoiceItems.remove(ii.id)
	s.emit(c.now, "invoiceitem.deleted", s.invoiceItemShape(ii), nil)
	return object{"id": ii.id, "object": "invoiceitem", "deleted": true}, nil
}

func (s *Server) listInvoiceItems(c *call) (object, error) {
	l, customerID, invoiceID, pending := c.in.listing(), c.in.str("customer"), c.in.str("invoice"), c.in.boolean("pending")
	within := c.in.span("created")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(ii *invoiceItem) bool {
		return (customerID == "" || ii.customer.id == customerID) && (invoiceID == "" || ii.invoice != nil && ii.invoice.id == invoiceID) &&
			(pending == nil || *pending == (ii.invoice == nil)) && within(ii.created)
	}
	page, more, err := newestFirst(l, s.invoiceItems.rows, s.invoiceItems.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/invoiceitems", page, more, func(ii *invoiceItem) object { return s.renderInvoiceItem(ii, c.version) }), nil
}
