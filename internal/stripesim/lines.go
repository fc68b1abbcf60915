package stripesim

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"
)

type partKind int

const (
	partSubscription partKind = iota
	partInvoiceItem
)

// part is one thing that an invoice charges for. It shows as one line, or with
// graduated tiers as one line per tier.
type part struct {
	kind        partKind
	item        *item        // for partSubscription
	invoiceItem *invoiceItem // for partInvoiceItem
	price       *price       // nil for invoice items with a bare amount
	meter       *meter       // read for the quantity, unless frozen
	from, to    time.Time
	quantity    int64
	free        bool   // a trial's: shown, and costs nothing
	frozen      bool   // the quantity is no longer read from the meter
	fixed       *int64 // an amount that no price gives
	unit        decimal.Decimal
	proration   bool
	description string
	metadata    map[string]string
	lines       []*line
}

type line struct {
	record
	part             *part
	quantity, amount int64
	unit             decimal.Decimal
	description      string
	credited         int64 // amount taken back by credit notes
	creditedQuantity int64
}

func (inv *invoice) add(p *part) { inv.parts = append(inv.parts, p) }

// rebuild makes the lines of a part anew, and keeps the ids of those it had.
func (s *Server) rebuild(p *part, inv *invoice) {
	var all []charge
	switch {
	case p.fixed != nil:
		all = []charge{{quantity: p.quantity, amount: *p.fixed, unit: p.unit}}
	case p.price != nil:
		all = charges(p.price, p.quantity)
	default:
		amount := decimal.NewFromInt(p.quantity).Mul(p.unit).Round(0).IntPart()
		all = []charge{{quantity: p.quantity, amount: amount, unit: p.unit}}
	}
	if p.free {
		all = []charge{{quantity: p.quantity, label: "Free trial"}}
	}
	old := p.lines
	p.lines = make([]*line, 0, len(all))
	for i, c := range all {
		l := &line{part: p}
		if i < len(old) {
			l = old[i]
		} else {
			l.record = s.newRecord("il", 24, inv.created)
		}
		l.quantity, l.amount, l.unit = c.quantity, c.amount, c.unit
		l.description = p.describe(c)
		p.lines = append(p.lines, l)
	}
}

func (p *part) describe(c charge) string {
	switch {
	case p.description != "":
		return p.description
	case p.price == nil:
		return ""
	case p.free && p.meter == nil:
		return "Trial period for " + p.price.product.name
	case p.free:
		return fmt.Sprintf("Free trial for %d × %s", c.quantity, p.price.product.name)
	case c.label != "":
		return fmt.Sprintf("%d × %s (%s)", c.quantity, p.price.product.name, c.label)
	}
	return fmt.Sprintf("%d × %s", c.quantity, p.price.product.name)
}

func (s *Server) renderLine(inv *invoice, l *line, v version) object {
	p := l.part
	out := object{
		"id": l.id, "object": "line_item", "amount": l.amount, "currency": inv.currency, "description": nullable(l.description),
		"discount_amounts": []any{}, "discountable": !p.proration, "discounts": []any{}, "invoice": inv.id, "livemode": s.live(),
		"metadata": pairs(p.metadata), "period": object{"start": p.from.Unix(), "end": p.to.Unix()}, "quantity": l.quantity,
		"pretax_credit_amounts": []any{},
	}
	if v.basil() {
		s.addLineParent(l, v, out)
		return out
	}
	out["amount_excluding_tax"] = l.amount
	out["plan"], out["price"], out["proration"] = nil, nil, p.proration
	out["proration_details"] = object{"credited_items": nil}
	out["subscription"], out["tax_amounts"], out["tax_rates"] = nil, []any{}, []any{}
	out["type"], out["unit_amount_excluding_tax"] = "subscription", l.unit.String()
	if p.price != nil {
		out["price"] = s.renderPrice(p.price)
		if p.price.recurring != nil {
			out["plan"] = s.renderPlan(p.price)
		}
	}
	if p.kind == partInvoiceItem {
		out["type"], out["invoice_item"] = "invoiceitem", p.invoiceItem.id
		if p.invoiceItem.sub != nil {
			out["subscription"] = p.invoiceItem.sub.id
		}
		return out
	}
	out["subscription"], out["subscription_item"] = p.item.sub.id, p.item.id
	return out
}

// addLineParent is the shape from 2025-03-31.basil on.
func (s *Server) addLineParent(l *line, v version, out object) {
	p := l.part
	out["taxes"], out["subscription"], out["pricing"] = []any{}, nil, nil
	if v.from("2026-03-25") {
		out["quantity_decimal"] = decimal.NewFromInt(l.quantity).String()
	}
	if p.price != nil {
		out["pricing"] = object{
			"type": "price_details", "unit_amount_decimal": l.unit.String(),
			"price_details": object{"price": p.price.id, "product": p.price.product.id},
		}
	}
	details := object{"proration": p.proration, "proration_details": object{"credited_items": nil}, "invoice_item": nil, "subscription": nil}
	if p.kind == partInvoiceItem {
		details["invoice_item"] = p.invoiceItem.id
		if p.invoiceItem.sub != nil {
			details["subscription"] = p.invoiceItem.sub.id
		}
		out["parent"] = object{"type": "invoice_item_details", "invoice_item_details": details, "subscription_item_details": nil}
		return
	}
	details["subscription"], details["subscription_item"] = p.item.sub.id, p.item.id
	out["parent"] = object{"type": "subscription_item_details", "subscription_item_details": details, "invoice_item_details": nil}
}
