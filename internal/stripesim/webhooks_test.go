package stripesim_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"

	"github.com/weirhq/weir/internal/stripesim"
)

func parse(t *testing.T, r received, secret string) stripe.Event {
	t.Helper()
	e, err := webhook.ConstructEventWithOptions(r.body, r.header.Get("Stripe-Signature"), secret,
		webhook.ConstructEventOptions{IgnoreTolerance: true, IgnoreAPIVersionMismatch: true})
	require.NoError(t, err)
	return e
}

func types(t *testing.T, r *receiver, secret string) []string {
	t.Helper()
	var out []string
	for _, one := range r.all() {
		out = append(out, string(parse(t, one, secret).Type))
	}
	return out
}

// Facts 3 and 4: each endpoint has its own version and secret; the payload has
// the endpoint's shape whatever the request's version was.
func TestEndpointsGetTheirOwnShapeAndSignature(t *testing.T) {
	t.Parallel()
	old, new := listen(t), listen(t)
	k := start(t, stripesim.Config{ManualDelivery: true, Webhooks: []stripesim.Webhook{
		{URL: old.url, Secret: "whsec_old", Events: []string{"customer.subscription.*"}},
		{URL: new.url, Secret: "whsec_new", Events: []string{"customer.subscription.created"}, APIVersion: basil},
	}})
	p := k.plan("calls")
	_, err := k.sim.DeliverWebhooks(t.Context())
	require.NoError(t, err)

	require.Len(t, old.all(), 1)
	e := parse(t, old.all()[0], "whsec_old")
	require.Equal(t, "2024-06-20", e.APIVersion)
	var sub stripe.Subscription
	require.NoError(t, json.Unmarshal(e.Data.Raw, &sub))
	require.Equal(t, p.sub.ID, sub.ID)
	require.Equal(t, p.sub.CurrentPeriodEnd, sub.CurrentPeriodEnd)

	require.Len(t, new.all(), 1)
	e = parse(t, new.all()[0], "whsec_new")
	require.Equal(t, basil, e.APIVersion)
	sub = stripe.Subscription{}
	require.NoError(t, json.Unmarshal(e.Data.Raw, &sub))
	require.Zero(t, sub.CurrentPeriodEnd)
	_, err = webhook.ConstructEventWithOptions(new.all()[0].body, new.all()[0].header.Get("Stripe-Signature"), "whsec_new",
		webhook.ConstructEventOptions{IgnoreTolerance: true})
	require.ErrorContains(t, err, "API version", "stripe-go refuses another version unless told otherwise")
	_, err = webhook.ConstructEventWithOptions(new.all()[0].body, new.all()[0].header.Get("Stripe-Signature"), "whsec_old",
		webhook.ConstructEventOptions{IgnoreTolerance: true})
	require.ErrorIs(t, err, webhook.ErrNoValidSignature)
}

// Facts 4: retries with back-off, a new signature and timestamp at each attempt.
func TestFailedDeliveriesAreRetriedOnTheSimulatedClock(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	rec.respond(http.StatusInternalServerError)
	k := start(t, stripesim.Config{Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "whsec", Events: []string{"customer.created"}}}})
	begin := k.sim.Now()
	k.customer()
	k.advance(begin.Add(time.Minute))
	require.Len(t, rec.all(), 1)
	k.advance(begin.Add(11 * time.Minute))
	require.Len(t, rec.all(), 2)
	require.Equal(t, rec.all()[0].body, rec.all()[1].body)
	require.NotEqual(t, rec.all()[0].header.Get("Stripe-Signature"), rec.all()[1].header.Get("Stripe-Signature"))
	rec.respond(http.StatusOK)
	k.advance(begin.Add(72 * time.Hour))
	require.Len(t, rec.all(), 3)

	log := k.sim.Deliveries()
	require.Len(t, log, 3)
	require.Equal(t, []int{500, 500, 200}, []int{log[0].Status, log[1].Status, log[2].Status})
	require.Equal(t, begin.Add(10*time.Minute), log[1].At)
	require.Equal(t, begin.Add(70*time.Minute), log[2].At)
}

// Facts 4: live mode retries for up to three days.
func TestLiveModeRetriesForThreeDays(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	rec.respond(http.StatusBadGateway)
	k := start(t, stripesim.Config{APIKey: "sk_live_x", Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "whsec", Events: []string{"customer.created"}}}})
	begin := k.sim.Now()
	k.customer()
	k.advance(begin.Add(31 * 24 * time.Hour))
	log := k.sim.Deliveries()
	require.Greater(t, len(log), 8)
	last := log[len(log)-1].At
	require.LessOrEqual(t, last.Sub(begin), 72*time.Hour)
	require.Greater(t, last.Sub(begin), 48*time.Hour)

	list := &stripe.EventListParams{DeliverySuccess: stripe.Bool(false)}
	require.False(t, k.api.Events.List(list).Next(), "older than 30 days")
}

// Facts 2.1: an invoice.created that no endpoint answers with 2xx delays
// finalization, up to 72 hours.
func TestUnansweredInvoiceCreatedDelaysFinalization(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		heals time.Duration // after which the receiver answers 200; 0: never
		final time.Duration
	}{
		"acknowledged at the retry after 10 minutes": {heals: 5 * time.Minute, final: 70 * time.Minute},
		"acknowledged after 70 minutes":              {heals: 65 * time.Minute, final: 130 * time.Minute},
		"never acknowledged":                         {final: 72 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := listen(t)
			k := start(t, stripesim.Config{Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "whsec", Events: []string{"invoice.created"}}}})
			p := k.plan("calls")
			end := at(p.sub.CurrentPeriodEnd)
			k.advance(end.Add(-time.Second))
			rec.respond(http.StatusServiceUnavailable)
			if tc.heals > 0 {
				k.advance(end.Add(tc.heals))
				rec.respond(http.StatusOK)
			}
			k.advance(end.Add(tc.final - time.Second))
			all := k.sim.Invoices(p.customer)
			require.Equal(t, "draft", all[len(all)-1].Status)
			k.advance(end.Add(tc.final))
			all = k.sim.Invoices(p.customer)
			require.Equal(t, "paid", all[len(all)-1].Status)
			require.Equal(t, end.Add(tc.final), all[len(all)-1].FinalizedAt)
		})
	}
}

// Deliveries happen in chronological order while time moves, and a receiver may
// call back.
func TestReceiverMayPushUsageIntoTheDraft(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	k := start(t, stripesim.Config{Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "whsec", Events: []string{"invoice.created"}}}})
	p := k.plan("calls")
	rec.mu.Lock()
	rec.answer = func(r received) int {
		var e struct {
			Data struct{ Object stripe.Invoice }
		}
		if json.Unmarshal(r.body, &e) != nil {
			return http.StatusBadRequest
		}
		if inv := e.Data.Object; inv.Status == stripe.InvoiceStatusDraft && inv.BillingReason == stripe.InvoiceBillingReasonSubscriptionCycle {
			if _, err := k.api.BillingMeterEvents.New(event("calls", p.customer, 7, at(inv.PeriodEnd).Add(-time.Minute), "close-"+inv.ID)); err != nil {
				return http.StatusInternalServerError
			}
		}
		return http.StatusOK
	}
	rec.mu.Unlock()
	k.advance(k.sim.Now().AddDate(0, 6, 0))
	var billed []int64
	for _, inv := range k.sim.Invoices(p.customer)[1:] {
		for _, l := range inv.Lines {
			if l.Meter != "" && inv.Status == "paid" {
				billed = append(billed, l.Quantity)
			}
		}
	}
	require.Equal(t, []int64{7, 7, 7, 7, 7}, billed)
}

// Case 19: during a roll both secrets sign.
func TestRolledSecretSignsTwice(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	k := start(t, stripesim.Config{})
	id := k.sim.AddWebhook(stripesim.Webhook{URL: rec.url, Secret: "whsec_1", Events: []string{"customer.created"}})
	require.True(t, k.sim.RollSecret(id, "whsec_2", time.Hour))
	begin := k.sim.Now()
	k.customer()
	k.advance(begin)
	parse(t, rec.all()[0], "whsec_1")
	parse(t, rec.all()[0], "whsec_2")
	k.advance(begin.Add(time.Hour))
	k.customer()
	k.advance(begin.Add(time.Hour))
	parse(t, rec.all()[1], "whsec_2")
	require.ErrorIs(t, webhook.ValidatePayloadIgnoringTolerance(rec.all()[1].body, rec.all()[1].header.Get("Stripe-Signature"), "whsec_1"), webhook.ErrNoValidSignature)
}

// Facts 4: lost, repeated, held, answer lost.
func TestWebhookFaults(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	k := start(t, stripesim.Config{ManualDelivery: true, Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "whsec", Events: []string{"customer.*"}}}})
	deliver := func() int {
		t.Helper()
		before := len(rec.all())
		_, err := k.sim.DeliverWebhooks(t.Context())
		require.NoError(t, err)
		return len(rec.all()) - before
	}
	match := stripesim.WebhookMatch{Type: `customer\.created`, Count: 1}

	k.sim.Faults().InjectWebhook(match, stripesim.DropWebhook())
	k.customer()
	require.Zero(t, deliver())

	k.sim.Faults().InjectWebhook(match, stripesim.RepeatWebhook(8))
	k.customer()
	require.Equal(t, 8, deliver())

	held := k.sim.Faults().InjectWebhook(match, stripesim.HoldWebhook())
	k.customer()
	require.Zero(t, deliver())
	require.Zero(t, deliver())
	held.Release()
	require.Equal(t, 1, deliver())

	k.sim.Faults().InjectWebhook(match, stripesim.TwinWebhook())
	cus := k.customer()
	require.Equal(t, 2, deliver())
	pair := rec.all()[len(rec.all())-2:]
	one, two := parse(t, pair[0], "whsec"), parse(t, pair[1], "whsec")
	require.NotEqual(t, one.ID, two.ID)
	require.Equal(t, cus, one.Data.Object["id"])
	require.Equal(t, one.Data.Object, two.Data.Object)

	k.sim.Faults().InjectWebhook(match, stripesim.LoseWebhookAnswer())
	k.customer()
	require.Equal(t, 1, deliver())
	require.Zero(t, deliver(), "the retry is not due yet")
	k.advance(k.sim.Now().Add(10 * time.Minute))
	require.Equal(t, 1, deliver())

	k.sim.Faults().ShuffleWebhooks(true)
	seen := map[string]bool{}
	for range 20 {
		for range 3 {
			k.customer()
		}
		before := len(rec.all())
		require.Equal(t, 3, deliver())
		order := ""
		ids := map[string]int{}
		for i, e := range k.sim.Deliveries()[len(k.sim.Deliveries())-3:] {
			ids[e.EventID] = i
		}
		for _, r := range rec.all()[before:] {
			order += string(rune('0' + ids[parse(t, r, "whsec").ID]))
		}
		require.Equal(t, "012", order, "the log shows the order of sending")
		created, err := newestEvents(k, 3)
		require.NoError(t, err)
		key := ""
		for _, id := range created {
			key += string(rune('0' + ids[id]))
		}
		seen[key] = true
	}
	require.Greater(t, len(seen), 1, "not always in the order of creation")
}

func newestEvents(k *kit, n int64) ([]string, error) {
	p := &stripe.EventListParams{}
	p.Limit, p.Single = stripe.Int64(n), true
	it := k.api.Events.List(p)
	var out []string
	for it.Next() {
		out = append(out, it.Event().ID)
	}
	return out, it.Err()
}

func TestEventsListAndPreviousAttributes(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	_, err := k.api.Subscriptions.Update(p.sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	require.NoError(t, err)
	list := &stripe.EventListParams{Type: stripe.String("customer.subscription.updated")}
	it := k.api.Events.List(list)
	require.True(t, it.Next())
	e := it.Event()
	require.Equal(t, false, e.Data.PreviousAttributes["cancel_at_period_end"])
	require.NotContains(t, e.Data.PreviousAttributes, "items")
	require.NotEmpty(t, e.Request.ID)
	got, err := k.api.Events.Get(e.ID, nil)
	require.NoError(t, err)
	require.Equal(t, e.Data.Object, got.Data.Object)
	require.False(t, it.Next())
}
