package stripesim

import (
	"time"
)

// changeItems applies items[] and reports whether the billing cycle must begin
// anew: in classic billing a switch to another interval does that.
func (s *Server) changeItems(sub *subscription, u update, at time.Time) (reset bool) {
	prorate := u.prorate
	if sub.status == "trialing" {
		prorate = "none"
	}
	for _, ch := range u.items {
		switch {
		case ch.item == nil:
			s.addItem(sub, ch, prorate, at)
		case ch.deleted:
			s.removeItem(sub, ch.item, prorate, at)
		default:
			reset = s.changeItem(sub, ch, prorate, at) || reset
		}
	}
	return reset && !sub.flexible
}

// addItem puts an item into the running period; usage before now is not its.
func (s *Server) addItem(sub *subscription, ch itemChange, prorate string, at time.Time) {
	it := s.newItem(sub, ch, at)
	it.start, it.end = at, nextBoundary(sub.anchor, it.price.recurring, at)
	if len(sub.items) > 1 && !sub.flexible {
		it.start, it.end = sub.items[0].start, sub.items[0].end
	}
	if sub.status == "trialing" {
		it.end = sub.trialEnd
	}
	if prorate != "none" {
		s.chargeRemaining(sub, it, it.price, it.quantity, at)
	}
}

// removeItem drops an item. Classic billing never invoices its unbilled usage;
// flexible billing makes an invoice item of it unless prorations are off.
func (s *Server) removeItem(sub *subscription, it *item, prorate string, at time.Time) {
	if sub.flexible && prorate != "none" {
		segments := it.earlier
		if it.price.metered() {
			segments = append(segments, segment{price: it.price, from: it.usageFrom, to: at})
		}
		for _, seg := range segments {
			s.chargeUsage(sub, seg, at)
		}
	}
	if prorate != "none" {
		s.creditUnused(sub, it, it.price, it.quantity, at)
	}
	sub.items = without(sub.items, it)
	s.items.remove(it.id)
}

// changeItem changes price, quantity or metadata of an item, and reports
// whether its interval changed.
func (s *Server) changeItem(sub *subscription, ch itemChange, prorate string, at time.Time) bool {
	it := ch.item
	old, oldQuantity := it.price, it.quantity
	it.metadata = ch.metadata
	if ch.quantity != nil {
		it.quantity = *ch.quantity
	}
	if ch.price == old && it.quantity == oldQuantity {
		return false
	}
	if prorate != "none" {
		s.creditUnused(sub, it, old, oldQuantity, at)
	}
	if ch.price != old {
		s.swapUsage(sub, it, at)
		it.price = ch.price
	}
	if !sameInterval(old.recurring, it.price.recurring) {
		if sub.flexible {
			it.start, it.end = at, nextBoundary(sub.anchor, it.price.recurring, at)
		}
		return true
	}
	if prorate != "none" {
		s.chargeRemaining(sub, it, it.price, it.quantity, at)
	}
	return false
}

// swapUsage cuts an item's usage at a change of its price. Classic billing
// bills only what follows; flexible billing bills each stretch at its price.
func (s *Server) swapUsage(sub *subscription, it *item, at time.Time) {
	if it.price.metered() {
		if sub.flexible {
			it.earlier = append(it.earlier, segment{price: it.price, from: it.usageFrom, to: at})
		}
		it.swapped = true
	}
	it.usageFrom = at
}

// creditUnused gives back the rest of a licensed period.
func (s *Server) creditUnused(sub *subscription, it *item, p *price, quantity int64, at time.Time) {
	s.prorate(sub, it, p, quantity, at, -1, "Unused time on ")
}

// chargeRemaining charges the rest of a licensed period.
func (s *Server) chargeRemaining(sub *subscription, it *item, p *price, quantity int64, at time.Time) {
	s.prorate(sub, it, p, quantity, at, 1, "Remaining time on ")
}

// prorate makes a pending invoice item for a licensed price; metered ones are
// never prorated.
func (s *Server) prorate(sub *subscription, it *item, p *price, quantity int64, at time.Time, sign int64, words string) {
	if p.metered() || !it.end.After(at) {
		return
	}
	share := fraction(it.end.Sub(at), it.end.Sub(previousBoundary(sub.anchor, p.recurring, at)))
	amount := priceTotal(p, quantity).Mul(share).Round(0).IntPart() * sign
	if amount == 0 {
		return
	}
	s.placeInvoiceItem(&invoiceItem{
		customer: sub.customer, sub: sub, currency: sub.currency, description: words + p.product.name, from: at, to: it.end,
		price: p, quantity: quantity, unit: p.unitAmount, amount: amount, proration: true,
	}, at)
}

// chargeUsage makes a pending invoice item for usage that no later invoice
// would show.
func (s *Server) chargeUsage(sub *subscription, seg segment, at time.Time) {
	var quantity int64
	if m := seg.price.recurring.meter; m != nil {
		quantity = max(0, s.usage(m, sub.customer.id, seg.from, seg.to, seenAt(at, s.cfg.InvoiceLag)))
	}
	if quantity == 0 {
		return
	}
	s.placeInvoiceItem(&invoiceItem{
		customer: sub.customer, sub: sub, currency: sub.currency, description: "Usage of " + seg.price.product.name,
		from: seg.from, to: seg.to, price: seg.price, quantity: quantity, unit: seg.price.unitAmount,
		amount: priceTotal(seg.price, quantity).Round(0).IntPart(),
	}, at)
}

func (s *Server) getItem(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	it, ok := s.items.get(c.pathID())
	if !ok {
		return nil, missing("subscription item", c.pathID())
	}
	return s.renderItem(it, c.version), nil
}

func (s *Server) listItems(c *call) (object, error) {
	l, subID := c.in.listing(), c.in.required("subscription")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	sub, ok := s.subs.get(subID)
	if !ok {
		return nil, missingParam("subscription", subID, "subscription")
	}
	page, more, err := inOrder(l, sub.items)
	if err != nil {
		return nil, err
	}
	return list("/v1/subscription_items", page, more, func(it *item) object { return s.renderItem(it, c.version) }), nil
}

// readOneItem reads a call on /v1/subscription_items as a change of one item.
func (s *Server) readOneItem(c *call, it *item) (itemChange, string, error) {
	ch := itemChange{item: it, quantity: c.in.integer("quantity"), path: "item"}
	prorate := c.in.enum("proration_behavior", "create_prorations", "create_prorations", "always_invoice", "none")
	priceID := c.in.str("price")
	c.in.ignored("clear_usage", "payment_behavior", "off_session", "proration_date", "billing_thresholds", "tax_rates", "discounts")
	if it != nil {
		ch.price, ch.metadata = it.price, c.in.metadata(it.metadata)
	} else {
		ch.metadata = c.in.metadata(nil)
		c.in.required("price")
	}
	if priceID == "" {
		return ch, prorate, nil
	}
	p, err := s.recurringPrice(priceID, "price")
	ch.price = p
	return ch, prorate, err
}

// changeOneItem applies such a change.
func (s *Server) changeOneItem(c *call, sub *subscription, ch itemChange, prorate string) error {
	u := update{items: []itemChange{ch}, prorate: prorate, metadata: sub.metadata, collection: sub.collection, onMissingPayment: sub.onMissingPayment}
	s.catchUp(sub, c.now)
	at := c.now.Truncate(time.Second)
	if err := sub.checkUpdate(u, at); err != nil {
		return err
	}
	s.applyUpdate(sub, u, at)
	return nil
}

func (s *Server) createItem(c *call) (object, error) {
	subID := c.in.required("subscription")
	ch, prorate, err := s.readOneItem(c, nil)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	sub, ok := s.subs.get(subID)
	if !ok {
		return nil, missingParam("subscription", subID, "subscription")
	}
	if err := s.changeOneItem(c, sub, ch, prorate); err != nil {
		return nil, err
	}
	return s.renderItem(sub.items[len(sub.items)-1], c.version), nil
}

func (s *Server) updateItem(c *call) (object, error) {
	it, ok := s.items.get(c.pathID())
	if !ok {
		return nil, missing("subscription item", c.pathID())
	}
	ch, prorate, err := s.readOneItem(c, it)
	if err != nil {
		return nil, err
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if err := s.changeOneItem(c, it.sub, ch, prorate); err != nil {
		return nil, err
	}
	return s.renderItem(it, c.version), nil
}

func (s *Server) deleteItem(c *call) (object, error) {
	it, ok := s.items.get(c.pathID())
	if !ok {
		return nil, missing("subscription item", c.pathID())
	}
	prorate := c.in.enum("proration_behavior", "create_prorations", "create_prorations", "always_invoice", "none")
	c.in.ignored("clear_usage", "payment_behavior", "proration_date")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if err := s.changeOneItem(c, it.sub, itemChange{item: it, price: it.price, deleted: true, path: "item"}, prorate); err != nil {
		return nil, err
	}
	return object{"id": it.id, "object": "subscription_item", "deleted": true}, nil
}
