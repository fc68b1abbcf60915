package stripesim

import (
	"time"
)

type subscription struct {
	record
	customer     *customer
	status       string
	items        []*item
	anchor       time.Time
	flexible     bool
	flexibleAt   time.Time
	collection   string
	daysUntilDue int64
	currency     string
	description  string
	metadata     map[string]string

	cancelAtPeriodEnd               bool
	cancelAt, canceledAt, endedAt   time.Time
	cancelReason, feedback, comment string
	startDate, trialStart, trialEnd time.Time
	trialNoticed                    bool
	onMissingPayment                string // create_invoice, pause or cancel
	pause                           *pauseCollection
	defaultPaymentMethod            string
	latestInvoice                   *invoice
	incompleteUntil                 time.Time
	alarm                           alarm
	invoices                        []*invoice
}

// pauseCollection leaves the status alone and changes what becomes of invoices.
type pauseCollection struct {
	behavior string // keep_as_draft, mark_uncollectible or void
	resumes  time.Time
}

// item is one price on a subscription, with its own period. In classic billing
// all items have the same.
type item struct {
	record
	sub        *subscription
	price      *price
	quantity   int64
	metadata   map[string]string
	start, end time.Time
	// usageFrom is where this item's metered price begins to bill: the start
	// of the period, or later when it was added or swapped within it.
	usageFrom time.Time
	// earlier are the prices that flexible billing still charges for usage of
	// this period.
	earlier []segment
	// swapped is set when the price changed within the period: usage of the
	// grace period then shows on no invoice.
	swapped bool
}

type segment struct {
	price    *price
	from, to time.Time
}

func (sub *subscription) ended() bool {
	return sub.status == "canceled" || sub.status == "incomplete_expired"
}

// cycles tells whether periods renew in this status.
func (sub *subscription) cycles() bool {
	switch sub.status {
	case "trialing", "active", "past_due", "unpaid":
		return true
	}
	return false
}

// period is what versions before basil show on top: the latest start and the
// earliest end of the items.
func (sub *subscription) period() (start, end time.Time) {
	for i, it := range sub.items {
		if i == 0 || it.start.After(start) {
			start = it.start
		}
		if i == 0 || it.end.Before(end) {
			end = it.end
		}
	}
	return start, end
}

// lastEnd is the latest end of the items' periods.
func (sub *subscription) lastEnd() time.Time {
	var last time.Time
	for _, it := range sub.items {
		if it.end.After(last) {
			last = it.end
		}
	}
	return last
}

func (sub *subscription) paymentMode() string {
	if sub.flexible {
		return "flexible"
	}
	return "classic"
}

func (s *Server) subscriptionShape(sub *subscription) render {
	return func(v version) object { return s.renderSubscription(sub, v) }
}

func (s *Server) renderSubscription(sub *subscription, v version) object {
	out := object{
		"id": sub.id, "object": "subscription", "application": nil, "application_fee_percent": nil,
		"automatic_tax": object{"enabled": false, "liability": nil}, "billing_cycle_anchor": sub.anchor.Unix(),
		"billing_cycle_anchor_config": nil, "billing_thresholds": nil, "cancel_at": unix(sub.cancelAt),
		"cancel_at_period_end": sub.cancelAtPeriodEnd, "canceled_at": unix(sub.canceledAt),
		"cancellation_details": object{
			"comment": nullable(sub.comment), "feedback": nullable(sub.feedback), "reason": nullable(sub.cancelReason),
		},
		"collection_method": sub.collection, "created": sub.created.Unix(), "currency": sub.currency, "customer": sub.customer.id,
		"days_until_due": nil, "default_payment_method": nullable(sub.defaultPaymentMethod), "default_source": nil,
		"default_tax_rates": []any{}, "description": nullable(sub.description), "discounts": []any{}, "ended_at": unix(sub.endedAt),
		"invoice_settings": object{"account_tax_ids": nil, "issuer": object{"type": "self"}}, "latest_invoice": nil,
		"livemode": s.live(), "metadata": pairs(sub.metadata), "next_pending_invoice_item_invoice": nil, "on_behalf_of": nil,
		"pause_collection": nil, "pending_invoice_item_interval": nil, "pending_setup_intent": nil, "pending_update": nil,
		"payment_settings": object{"payment_method_options": nil, "payment_method_types": nil, "save_default_payment_method": "off"},
		"schedule":         nil, "start_date": sub.startDate.Unix(), "status": sub.status, "test_clock": nil, "transfer_data": nil,
		"trial_end": unix(sub.trialEnd), "trial_settings": object{"end_behavior": object{"missing_payment_method": sub.onMissingPayment}},
		"trial_start": unix(sub.trialStart), "items": s.renderItemList(sub, v),
	}
	if sub.collection == "send_invoice" {
		out["days_until_due"] = sub.daysUntilDue
	}
	if sub.latestInvoice != nil {
		out["latest_invoice"] = sub.latestInvoice.id
	}
	if p := sub.pause; p != nil {
		out["pause_collection"] = object{"behavior": p.behavior, "resumes_at": unix(p.resumes)}
	}
	if v.basil() {
		if v.from(versionBillingMode) {
			out["billing_mode"] = object{"type": sub.paymentMode(), "updated_at": unix(sub.flexibleAt)}
		}
		return out
	}
	start, end := sub.period()
	out["current_period_start"], out["current_period_end"] = start.Unix(), end.Unix()
	out["discount"] = nil
	return out
}

func (s *Server) renderItemList(sub *subscription, v version) object {
	page, more, _ := inOrder(listing{limit: 10}, sub.items)
	out := list("/v1/subscription_items?subscription="+sub.id, page, more, func(it *item) object { return s.renderItem(it, v) })
	out["total_count"] = len(sub.items)
	return out
}

func (s *Server) renderItem(it *item, v version) object {
	out := object{
		"id": it.id, "object": "subscription_item", "billing_thresholds": nil, "created": it.created.Unix(), "discounts": []any{},
		"metadata": pairs(it.metadata), "plan": s.renderPlan(it.price), "price": s.renderPrice(it.price),
		"subscription": it.sub.id, "tax_rates": []any{},
	}
	if !it.price.metered() {
		out["quantity"] = it.quantity
	}
	if v.basil() {
		out["current_period_start"], out["current_period_end"] = it.start.Unix(), it.end.Unix()
	}
	return out
}

func (s *Server) getSubscription(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	sub, ok := s.subs.get(c.pathID())
	if !ok {
		return nil, missing("subscription", c.pathID())
	}
	return s.renderSubscription(sub, c.version), nil
}

func (s *Server) listSubscriptions(c *call) (object, error) {
	l, status, priceID := c.in.listing(), c.in.str("status"), c.in.str("price")
	customerID, collection := c.in.str("customer"), c.in.str("collection_method")
	created, starts, ends := c.in.span("created"), c.in.span("current_period_start"), c.in.span("current_period_end")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	rows := s.subs.rows
	if customerID != "" {
		cus, ok := s.customers.get(customerID)
		if !ok {
			return nil, missingParam("customer", customerID, "customer")
		}
		rows = cus.subs
	}
	keep := func(sub *subscription) bool {
		start, end := sub.period()
		return statusMatches(status, sub) && (priceID == "" || sub.hasPrice(priceID)) && created(sub.created) &&
			(collection == "" || collection == sub.collection) && starts(start) && ends(end)
	}
	page, more, err := newestFirst(l, rows, s.subs.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/subscriptions", page, more, func(sub *subscription) object { return s.renderSubscription(sub, c.version) }), nil
}

// statusMatches: without a status, all but canceled ones are listed.
func statusMatches(status string, sub *subscription) bool {
	switch status {
	case "":
		return sub.status != "canceled"
	case "all":
		return true
	case "ended":
		return sub.ended()
	}
	return sub.status == status
}

func (sub *subscription) hasPrice(id string) bool {
	for _, it := range sub.items {
		if it.price.id == id {
			return true
		}
	}
	return false
}
