package sandbox

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

var steps = []step{
	{"1. key", "the key is one of a test account and may read", "customers are listed, none of them live", tryKey},
	{"2. offer", "what `worker plans push` makes is taken: a meter that sums, a metered price of a fraction of a cent", "all are made", tryOffer},
	{"3. subscription", "a subscription's items carry their own periods under " + newer, "current_period_start and _end on each item", trySubscription},
	{"4. two items on one meter", "whether Stripe lets usage be billed twice; Weir refuses such a subscription either way", "either", tryTwoItems},
	{"5. identifier", "a meter event that is sent again is refused and not counted twice", "400 that names the identifier", tryIdentifier},
	{"6. correction", "a negative value is taken under " + pinned, "it is accepted", tryNegative},
	{"7. unknown customer", "whether a wrong customer is told at once or by an event later; Weir takes both", "either", tryStranger},
	{"8. aggregation", "how long an event takes into the meter's summary", "the sum of 1,000 and -300 is 700, and nothing of the repeated event", trySummary},
	{"9. thin events", "/v2/core/events takes the key and version header that Weir sends", "not found, and not forbidden", tryThin},
	{"10. renewal", "usage stamped before a period's end still reaches its invoice while that is a draft", "a draft first; final later, with 750 units", tryRenewal},
	{"11. credit", "what a credit note of an invoice's line comes to is told beforehand, without saying how it is given back", "at least the line's amount", tryCredit},
	{"12. immediate cancel", "whether the invoice of a cancel is ever a draft; Weir settles before", "either", tryCancel},
}

func tryKey(ctx context.Context, t *trial) (string, error) {
	a, err := t.stripe.made(ctx, http.MethodGet, "/v1/customers", "", "limit", "1")
	if err != nil {
		return "", err
	}
	for _, c := range a.list("data") {
		if c["livemode"] == true {
			return "", differ("a live customer was listed: this is no test account")
		}
	}
	return "a test account", nil
}

func tryOffer(ctx context.Context, t *trial) (string, error) {
	a, err := t.stripe.made(ctx, http.MethodPost, "/v1/billing/meters", "", "display_name", "Weir check "+t.cfg.Name, "event_name", t.event("units"),
		"default_aggregation[formula]", "sum")
	if err != nil {
		return "", err
	}
	t.meter = a.text("id")
	if a, err = t.stripe.made(ctx, http.MethodPost, "/v1/products", "", "name", "Weir check "+t.cfg.Name); err != nil {
		return "", err
	}
	t.product = a.text("id")
	a, err = t.stripe.made(ctx, http.MethodPost, "/v1/prices", "", "product", t.product, "currency", "usd", "unit_amount", "4900", "recurring[interval]", "month")
	if err != nil {
		return "", err
	}
	t.base = a.text("id")
	if t.metered, err = t.meteredPrice(ctx, "0.04"); err != nil {
		return "", err
	}
	return "meter " + t.meter + ", prices " + t.base + " and " + t.metered, nil
}

func (t *trial) meteredPrice(ctx context.Context, amount string) (string, error) {
	a, err := t.stripe.made(ctx, http.MethodPost, "/v1/prices", "", "product", t.product, "currency", "usd", "unit_amount_decimal", amount,
		"recurring[interval]", "month", "recurring[usage_type]", "metered", "recurring[meter]", t.meter)
	return a.text("id"), err
}

func trySubscription(ctx context.Context, t *trial) (string, error) {
	var err error
	if t.clock, t.began, err = t.cfg.Clock.Begin(ctx); err != nil {
		return "", err
	}
	pairs := []string{"metadata[account_id]", "weir-check"}
	if t.clock != "" {
		pairs = append(pairs, "test_clock", t.clock)
	}
	a, err := t.stripe.made(ctx, http.MethodPost, "/v1/customers", "", pairs...)
	if err != nil {
		return "", err
	}
	t.customer = a.text("id")
	a, err = t.stripe.made(ctx, http.MethodPost, "/v1/subscriptions", "", "customer", t.customer, "items[0][price]", t.base, "items[1][price]", t.metered,
		"collection_method", "send_invoice", "days_until_due", "7")
	if err != nil {
		return "", err
	}
	t.subscription = a.text("id")
	if a, err = t.stripe.made(ctx, http.MethodGet, "/v1/subscriptions/"+t.subscription, newer); err != nil {
		return "", err
	}
	items := a.list("items", "data")
	for _, i := range items {
		starts, ends := number(i["current_period_start"]), number(i["current_period_end"])
		if starts == 0 || ends <= starts {
			return "", differ("an item has no period of its own under %s", newer)
		}
		t.ends = time.Unix(ends, 0).UTC()
	}
	if a.text("status") != "active" || len(items) != 2 {
		return "", differ("the subscription is %s with %d items", a.text("status"), len(items))
	}
	return "active until " + t.ends.Format(time.RFC3339), nil
}

func tryTwoItems(ctx context.Context, t *trial) (string, error) {
	var err error
	if t.second, err = t.meteredPrice(ctx, "0.05"); err != nil {
		return "", err
	}
	a, err := t.stripe.call(ctx, http.MethodPost, "/v1/subscription_items", "", "subscription", t.subscription, "price", t.second)
	if err != nil {
		return "", err
	}
	if a.status >= http.StatusBadRequest {
		return fmt.Sprintf("refused with %d: %s", a.status, a.message()), nil
	}
	if _, err := t.stripe.made(ctx, http.MethodDelete, "/v1/subscription_items/"+a.text("id"), ""); err != nil {
		return "", err
	}
	return "accepted, and taken away again", nil
}

// send sends a meter event.
func (t *trial) send(ctx context.Context, customer, identifier string, value int64, at time.Time) (answer, error) {
	return t.stripe.call(ctx, http.MethodPost, "/v1/billing/meter_events", "", "event_name", t.event("units"), "identifier", t.event(identifier),
		"timestamp", stamp(at), "payload[stripe_customer_id]", customer, "payload[value]", fmt.Sprint(value))
}

func (t *trial) mustSend(ctx context.Context, identifier string, value int64, at time.Time) error {
	a, err := t.send(ctx, t.customer, identifier, value, at)
	if err == nil && a.status >= http.StatusBadRequest {
		err = differ("an event of %d units is answered %d: %s", value, a.status, a.message())
	}
	if err == nil {
		t.sent += value
	}
	return err
}

func tryIdentifier(ctx context.Context, t *trial) (string, error) {
	if err := t.mustSend(ctx, "first", 1000, t.began); err != nil {
		return "", err
	}
	a, err := t.send(ctx, t.customer, "first", 1000, t.began)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusBadRequest || !strings.Contains(a.message(), t.event("first")) {
		return "", differ("the second time is answered %d: %s", a.status, a.message())
	}
	return "refused: " + a.message(), nil
}

func tryNegative(ctx context.Context, t *trial) (string, error) {
	return "accepted", t.mustSend(ctx, "correction", -300, t.began)
}

func tryStranger(ctx context.Context, t *trial) (string, error) {
	a, err := t.send(ctx, "cus_WeirNoSuchOne", "stranger", 1, t.began)
	if err != nil {
		return "", err
	}
	if a.status >= http.StatusBadRequest {
		return fmt.Sprintf("told at once, %d: %s", a.status, a.message()), nil
	}
	return "accepted; an error report comes by event", nil
}

func trySummary(ctx context.Context, t *trial) (string, error) {
	began := time.Now()
	from, to := t.began.Truncate(time.Minute).Add(-time.Minute), t.began.Truncate(time.Minute).Add(2*time.Minute)
	for {
		a, err := t.stripe.made(ctx, http.MethodGet, "/v1/billing/meters/"+t.meter+"/event_summaries", "", "customer", t.customer,
			"start_time", stamp(from), "end_time", stamp(to))
		if err != nil {
			return "", err
		}
		var sum int64
		for _, s := range a.list("data") {
			sum += number(s["aggregated_value"])
		}
		took := time.Since(began).Round(time.Second)
		switch {
		case sum == t.sent:
			return fmt.Sprintf("%d after %s", sum, took), nil
		case took > t.cfg.Lag:
			return "", differ("the summary has %d after %s", sum, took)
		}
		if err := pause(ctx, t.cfg.Poll); err != nil {
			return "", err
		}
	}
}

func tryThin(ctx context.Context, t *trial) (string, error) {
	a, err := t.stripe.call(ctx, http.MethodGet, "/v2/core/events/evt_test_weir_none", newer)
	if err != nil {
		return "", err
	}
	if a.status == http.StatusUnauthorized || a.status == http.StatusForbidden || a.status >= http.StatusInternalServerError {
		return "", differ("it is answered %d: %s", a.status, a.message())
	}
	return fmt.Sprintf("answered %d", a.status), nil
}

func tryRenewal(ctx context.Context, t *trial) (string, error) {
	if err := t.cfg.Clock.Advance(ctx, t.ends.Add(5*time.Minute)); err != nil {
		return "", err
	}
	draft, err := t.latest(ctx)
	if err != nil {
		return "", err
	}
	if draft.text("status") != "draft" {
		return "", differ("the invoice of the renewal is %s and not a draft", draft.text("status"))
	}
	if err := t.mustSend(ctx, "grace", 50, t.ends.Add(-time.Minute)); err != nil {
		return "", err
	}
	if err := t.cfg.Clock.Advance(ctx, t.ends.Add(3*time.Hour)); err != nil {
		return "", err
	}
	final, err := t.stripe.made(ctx, http.MethodGet, "/v1/invoices/"+draft.text("id"), "")
	if err != nil {
		return "", err
	}
	var units int64
	for _, l := range final.list("lines", "data") {
		if dig(l, "price", "id") == t.metered {
			units += number(l["quantity"])
			t.invoice, t.line = final.text("id"), answer{body: l}.text("id")
		}
	}
	if final.text("status") == "draft" || units != t.sent {
		return "", differ("the invoice is %s and bills %d units", final.text("status"), units)
	}
	return fmt.Sprintf("a draft, then %s with %d units", final.text("status"), units), nil
}

// latest is the newest invoice of the subscription.
func (t *trial) latest(ctx context.Context) (answer, error) {
	a, err := t.stripe.made(ctx, http.MethodGet, "/v1/invoices", "", "subscription", t.subscription, "limit", "1")
	if err != nil {
		return a, err
	}
	all := a.list("data")
	if len(all) == 0 {
		return a, differ("the subscription has no invoice")
	}
	return answer{a.status, all[0]}, nil
}

func tryCredit(ctx context.Context, t *trial) (string, error) {
	a, err := t.stripe.call(ctx, http.MethodGet, "/v1/credit_notes/preview", "", "invoice", t.invoice,
		"lines[0][type]", "invoice_line_item", "lines[0][invoice_line_item]", t.line, "lines[0][amount]", "1")
	if err != nil {
		return "", err
	}
	if total := number(a.body["total"]); a.status != http.StatusOK || total < 1 {
		return "", differ("it is answered %d with a total of %d: %s", a.status, total, a.message())
	}
	return fmt.Sprintf("of 1 cent, %d with tax", number(a.body["total"])), nil
}

func tryCancel(ctx context.Context, t *trial) (string, error) {
	if err := t.mustSend(ctx, "last", 20, t.ends.Add(2*time.Hour)); err != nil {
		return "", err
	}
	if _, err := t.stripe.made(ctx, http.MethodDelete, "/v1/subscriptions/"+t.subscription, "", "invoice_now", "true"); err != nil {
		return "", err
	}
	a, err := t.latest(ctx)
	if err != nil {
		return "", err
	}
	return "its invoice is " + a.text("status") + " at once", nil
}
