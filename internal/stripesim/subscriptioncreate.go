package stripesim

import (
	"time"
)

const mostItems = 20

// itemChange is one entry of items[] in a request.
type itemChange struct {
	item     *item // nil to add one
	price    *price
	quantity *int64
	deleted  bool
	metadata map[string]string
	path     string
}

// readItems resolves items[] against the subscription (nil while creating).
func (s *Server) readItems(c *call, sub *subscription) ([]itemChange, error) {
	var out []itemChange
	for _, in := range c.in.list("items") {
		ch := itemChange{path: in.name, deleted: in.flag("deleted", false), quantity: in.integer("quantity")}
		itemID, priceID := in.str("id"), in.str("price")
		if priceID == "" {
			priceID = in.str("plan")
		}
		in.ignored("clear_usage", "billing_thresholds", "discounts", "tax_rates")
		if itemID != "" {
			it, ok := s.items.get(itemID)
			if !ok || sub == nil || it.sub != sub {
				return nil, missingParam("subscription item", itemID, in.path("id"))
			}
			ch.item, ch.price = it, it.price
			ch.metadata = in.metadata(it.metadata)
		} else {
			ch.metadata = in.metadata(nil)
		}
		if priceID != "" {
			p, err := s.recurringPrice(priceID, in.path("price"))
			if err != nil {
				return nil, err
			}
			ch.price = p
		}
		out = append(out, ch)
	}
	return out, nil
}

func (s *Server) recurringPrice(id, param string) (*price, error) {
	p, ok := s.prices.get(id)
	switch {
	case !ok:
		return nil, missingParam("price", id, param)
	case p.recurring == nil:
		return nil, invalid("The price specified is set to `type=one_time` but this field only accepts prices with `type=recurring`.").withParam(param)
	case !p.active:
		return nil, invalid("The price specified is inactive. This field only accepts active prices.").withParam(param)
	}
	return p, nil
}

// checkItems refuses what the items would be after the changes.
func (sub *subscription) checkItems(changes []itemChange) error {
	after := make([]*price, 0, len(sub.items)+len(changes))
	touched := make(map[*item]bool)
	for _, ch := range changes {
		touched[ch.item] = true
		switch {
		case ch.deleted:
			continue
		case ch.price == nil:
			return invalid("Missing required param: %s[price].", ch.path).withCode("parameter_missing")
		case ch.price.metered() && ch.quantity != nil:
			return invalid("Quantity should not be specified where usage_type is `metered`. Remove quantity from `%s`", ch.path).withParam(ch.path)
		case ch.quantity != nil && *ch.quantity < 0:
			return invalid("Invalid non-negative integer").withParam(ch.path + "[quantity]")
		}
		after = append(after, ch.price)
	}
	for _, it := range sub.items {
		if !touched[it] {
			after = append(after, it.price)
		}
	}
	if len(after) == 0 || len(after) > mostItems {
		return invalid("A subscription must have 1 to %d items.", mostItems).withParam("items")
	}
	seen := make(map[*price]bool)
	for _, p := range after {
		if seen[p] {
			return invalid("Cannot add multiple subscription items with the same plan: %s", p.id).withParam("items")
		}
		seen[p] = true
		if p.currency != after[0].currency {
			return invalid("All prices on a subscription must have the same currency.").withParam("items")
		}
		if sub.flexible && !divides(p.recurring, after[0].recurring) {
			return invalid("The intervals of a subscription's prices must divide each other.").withParam("items")
		}
		if !sub.flexible && !sameInterval(p.recurring, after[0].recurring) {
			return invalid("All prices on a subscription must have the same `recurring.interval` and `recurring.interval_count`.").withParam("items")
		}
	}
	return nil
}

func (s *Server) newItem(sub *subscription, ch itemChange, at time.Time) *item {
	it := &item{record: s.newRecord("si", 14, at), sub: sub, price: ch.price, quantity: 1, metadata: ch.metadata, usageFrom: at}
	if ch.quantity != nil {
		it.quantity = *ch.quantity
	}
	s.items.add(it)
	sub.items = append(sub.items, it)
	return it
}

func (s *Server) createSubscription(c *call) (object, error) {
	in := c.in
	sub := &subscription{
		status: "active", metadata: in.metadata(nil), description: in.limited("description", 500),
		collection:   in.enum("collection_method", "charge_automatically", "charge_automatically", "send_invoice"),
		daysUntilDue: in.integerOr("days_until_due", 0), defaultPaymentMethod: in.str("default_payment_method"),
		cancelAt: in.instant("cancel_at"), cancelAtPeriodEnd: in.flag("cancel_at_period_end", false),
		onMissingPayment: in.sub("trial_settings").sub("end_behavior").enum("missing_payment_method", "create_invoice", "create_invoice", "pause", "cancel"),
		flexible:         c.version.from(versionClover),
	}
	if c.version.from(versionBillingMode) {
		sub.flexible = in.sub("billing_mode").enum("type", sub.paymentMode(), "classic", "flexible") == "flexible"
	}
	opening := opening{
		anchor: in.instant("billing_cycle_anchor"), backdate: in.instant("backdate_start_date"),
		prorate: in.enum("proration_behavior", "create_prorations", "create_prorations", "always_invoice", "none"),
		pays:    in.enum("payment_behavior", "allow_incomplete", "allow_incomplete", "default_incomplete", "error_if_incomplete"),
	}
	sub.trialEnd = readTrial(c)
	customerID := in.required("customer")
	in.ignored("payment_settings", "off_session", "automatic_tax", "currency", "default_source", "invoice_settings", "on_behalf_of")
	changes, err := s.readItems(c, nil)
	if err != nil {
		return nil, err
	}
	if sub.collection == "send_invoice" && sub.daysUntilDue < 1 {
		c.form.fail(invalid("If collection_method is send_invoice, days_until_due is required.").withParam("days_until_due"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if sub.customer, err = s.liveCustomer(customerID, "customer"); err != nil {
		return nil, err
	}
	if err := sub.checkItems(changes); err != nil {
		return nil, err
	}
	if err := sub.checkOpening(opening, changes[0].price.recurring, c.now); err != nil {
		return nil, err
	}
	if opening.pays == "error_if_incomplete" && s.declined[customerID] {
		e := (&apiError{status: 402, typ: "card_error", code: "card_declined", message: "Your card was declined."})
		return nil, e
	}
	s.openSubscription(sub, changes, opening, c.now.Truncate(time.Second))
	return s.renderSubscription(sub, c.version), nil
}

// readTrial reads trial_end or trial_period_days; zero is no trial.
func readTrial(c *call) time.Time {
	if days := c.in.integer("trial_period_days"); days != nil && *days > 0 {
		return c.now.Truncate(time.Second).AddDate(0, 0, int(*days))
	}
	if text, _ := c.in.value("trial_end"); text == "now" {
		return time.Time{}
	}
	return c.in.instant("trial_end")
}

// opening says how a subscription's first period is set.
type opening struct {
	anchor, backdate time.Time
	prorate, pays    string
}

func (sub *subscription) checkOpening(o opening, r *recurring, now time.Time) error {
	switch {
	case !o.anchor.IsZero() && o.anchor.Before(now):
		return invalid("billing_cycle_anchor cannot be in the past.").withParam("billing_cycle_anchor")
	case !o.anchor.IsZero() && o.anchor.After(boundary(now, r.interval, r.count, 1)):
		return invalid("billing_cycle_anchor cannot be later than next natural billing date for plan.").withParam("billing_cycle_anchor")
	case !sub.trialEnd.IsZero() && !sub.trialEnd.After(now):
		return invalid("Invalid timestamp: must be an integer Unix timestamp in the future.").withParam("trial_end")
	case !sub.cancelAt.IsZero() && !sub.cancelAt.After(now):
		return invalid("cancel_at must be in the future.").withParam("cancel_at")
	case o.backdate.After(now):
		return invalid("backdate_start_date must be in the past.").withParam("backdate_start_date")
	}
	return nil
}

// openSubscription sets the first period, and makes and finalizes the first
// invoice: it carries no usage.
func (s *Server) openSubscription(sub *subscription, changes []itemChange, o opening, at time.Time) {
	sub.record = s.newRecord("sub", 24, at)
	sub.currency = changes[0].price.currency
	sub.startDate, sub.anchor = at, at
	if !o.backdate.IsZero() {
		sub.startDate, sub.anchor = o.backdate, o.backdate
	}
	if !o.anchor.IsZero() {
		sub.anchor = o.anchor
	}
	if sub.flexible {
		sub.flexibleAt = at
	}
	if !sub.trialEnd.IsZero() {
		sub.status, sub.trialStart, sub.anchor = "trialing", at, sub.trialEnd
	}
	if sub.customer.currency == "" {
		sub.customer.currency = sub.currency
	}
	for _, ch := range changes {
		it := s.newItem(sub, ch, at)
		it.start, it.end, it.usageFrom = at, nextBoundary(sub.anchor, it.price.recurring, at), sub.startDate
		if !o.backdate.IsZero() {
			it.start = previousBoundary(sub.anchor, it.price.recurring, at)
		}
		if sub.status == "trialing" {
			it.start, it.usageFrom, it.end = at, at, sub.trialEnd
		}
	}
	if sub.cancelAtPeriodEnd {
		sub.cancelAt = sub.lastEnd()
	}
	if !sub.cancelAt.IsZero() {
		sub.canceledAt = at
		sub.cutPeriods()
	}
	s.subs.add(sub)
	sub.customer.subs = append(sub.customer.subs, sub)
	s.openingInvoice(sub, o, at)
	s.emit(at, "customer.subscription.created", s.subscriptionShape(sub), nil)
	s.schedule(sub)
}

// cutPeriods ends classic periods at cancel_at. Flexible billing leaves them.
func (sub *subscription) cutPeriods() {
	if sub.flexible || sub.cancelAt.IsZero() {
		return
	}
	for _, it := range sub.items {
		if it.end.After(sub.cancelAt) {
			it.end = sub.cancelAt
		}
	}
}
