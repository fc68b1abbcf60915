package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
)

const day = 24 * time.Hour

func (w *world) plan(account string) string {
	w.Helper()
	return w.text(`SELECT p.plan FROM weir.accounts a JOIN weir.periods p ON p.id = weir.period_at(a.id, $2) WHERE a.account = $1`, account, w.sim.Now())
}

func (w *world) billability(account string) string {
	w.Helper()
	return w.text(`SELECT k.billability FROM weir.accounts a JOIN weir.keys k ON k.period_id = weir.period_at(a.id, $2) WHERE a.account = $1`, account, w.sim.Now())
}

func (w *world) soon() { w.advance(w.sim.Now().Add(time.Minute), time.Minute) }

func TestCase09DowngradeCountsForwardOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, sub := w.subscribe("acme", "scale_monthly", "usage")
	w.soon()
	key := w.node.use("acme", 8_000)
	w.change(sub, "pro_monthly")
	require.Equal(t, "pro", w.plan("acme"))
	require.Equal(t, "8000 0", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
	w.node.use("acme", 5)
	w.fold()
	require.Equal(t, "8000 5", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key), "only what comes after the change is overage")
	w.change(sub, "scale_monthly")
	w.node.use("acme", 12_001)
	w.fold()
	require.Equal(t, "20000 6", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
}

// change swaps the base item of a subscription.
func (w *world) change(sub *stripe.Subscription, price string) {
	w.Helper()
	_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{Items: []*stripe.SubscriptionItemsParams{
		{ID: stripe.String(sub.Items.Data[0].ID), Price: stripe.String(w.price(price))},
	}})
	require.NoError(w, err)
	w.soon()
}

func TestCase10TogglingPlansMintsNoSecondAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	key := w.node.use("acme", 1_000)
	for range 2 {
		w.change(sub, "scale_monthly")
		w.change(sub, "pro_monthly")
	}
	w.node.use("acme", 10)
	w.fold()
	require.Equal(t, "1000 10", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.periods p WHERE p.source = 'subscription' AND p.state <> 'void' AND p.starts <= $1", w.sim.Now()))
}

func TestCase11CancelAtPeriodEndSetThenUnset(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "2026-02-10 09:30:17+00", w.text("SELECT plan_until::text FROM weir.accounts"))
	require.Equal(t, "pro", w.plan("acme"))
	_, err = w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(false)})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "NULL", w.text("SELECT plan_until::text FROM weir.accounts"))
	_, err = w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{CancelAt: stripe.Int64(start.AddDate(0, 1, 0).Unix())})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "2026-02-10 09:30:17+00", w.text("SELECT plan_until::text FROM weir.accounts"), "flexible billing sets cancel_at only")
	key := w.node.use("acme", 1_250)
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 20*day)
	w.advance(end.Add(3*time.Hour), 30*time.Minute)
	require.Equal(t, "free", w.plan("acme"))
	require.Equal(t, book{Overage: 250, Invoiced: 250}, w.book(key))
}

func TestCase12PastDueWithinAndBeyondItsGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: graceFile})
	_, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	key := w.node.use("acme", 1_100)
	require.True(t, w.sim.ForceStatus(sub.ID, "past_due"))
	w.soon()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	w.advance(w.sim.Now().Add(4*day), 2*day)
	require.Equal(t, "free no", w.plan("acme")+" "+w.billability("acme"), "its grace of 3 days is over")
	require.True(t, w.sim.ForceStatus(sub.ID, "active"))
	w.soon()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Equal(t, key, w.node.keyAt("acme", w.sim.Now()), "usage is intact: the same key")
	require.Equal(t, "1000 100", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
}

func TestCase13ItemsInAnyOrderAndAddOns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	addon := w.licensed("", 500, "month")
	for account, items := range map[string][]string{
		"a": {"pro_monthly", "usage"}, "b": {"usage", "pro_monthly"}, "c": {addon, "usage", "pro_monthly"}, "d": {"usage", addon, "pro_monthly"},
	} {
		w.subscribe(account, items...)
	}
	w.soon()
	for _, account := range []string{"a", "b", "c", "d"} {
		require.Equal(t, "pro yes", w.plan(account)+" "+w.billability(account), account)
	}
	require.Empty(t, w.findings())
	w.subscribe("e", "pro_monthly", "scale_monthly", "usage")
	w.soon()
	require.Contains(t, w.findings()["plan_conflict"], "[pro scale]")
}

func TestCase14UnknownPriceKeepsThePlanUntilTheFileIsMended(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.prices["new"] = w.licensed("pro_2027", 2_500, "month")
	w.change(sub, "new")
	require.Equal(t, "pro awaiting", w.plan("acme")+" "+w.billability("acme"))
	require.Contains(t, w.findings()["unknown_price"], "pro_2027")
	w.node.use("acme", 1_300)
	w.publish(replace(planFile, "[pro_monthly]", "[pro_monthly, pro_2027]"))
	customers, _, err := w.b.Replay(t.Context(), "test")
	require.NoError(t, err)
	require.Equal(t, 1, customers)
	w.soon()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Empty(t, w.findings())
	require.Equal(t, "300 0 0", w.text("SELECT overage || ' ' || not_billable || ' ' || awaiting FROM weir.totals t WHERE used > 0"), "what awaited the repair is billable")
}

func TestCase15SubscriptionBeforeItsMapping(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.subscribe("", "pro_monthly", "usage")
	foreign := w.customer("")
	w.subscribeCustomer(foreign, w.licensed("", 900, "month"))
	w.soon()
	require.Contains(t, w.findings()["unmapped_customer"], customer)
	require.Zero(t, w.number("SELECT count(*) FROM weir.accounts"))
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers WHERE customer = $1", foreign), "not ours: dropped")
	require.NotZero(t, w.number("SELECT count(*) FROM weir.webhook_events WHERE customer = $1 AND state = 'foreign'", foreign), "and counted")
	require.NoError(t, w.b.Link(t.Context(), "acme", customer, "tester"))
	w.work()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Empty(t, w.findings())
	for _, d := range w.sim.Deliveries() {
		require.Equal(t, 200, d.Status, d.Type)
	}
}

func TestCase17StaleEventsDoNotRevive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	_, err := w.api.Subscriptions.Cancel(sub.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true)})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "free", w.plan("acme"))
	w.sim.Emit("customer.subscription.updated", map[string]any{"id": sub.ID, "object": "subscription", "customer": customer, "status": "active"})
	w.soon()
	require.Equal(t, "free", w.plan("acme"))
}

func TestCase18SweepFindsWhatWebhooksMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	_, gone := w.subscribe("gone", "pro_monthly", "usage")
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, "pro pro", w.plan("acme")+" "+w.plan("gone"))
	key := w.node.use("acme", 1_080)
	w.node.use("gone", 1_001)
	w.advance(w.sim.Now().Add(3*time.Hour), time.Hour)
	_, err := w.api.Subscriptions.Cancel(gone.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true)})
	require.NoError(t, err)
	w.change(sub, "scale_monthly")
	w.advance(w.sim.Now().Add(4*day), 2*day)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, "scale free", w.plan("acme")+" "+w.plan("gone"), "canceled ones included")
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 20*day)
	w.advance(end.Add(4*time.Hour), time.Hour)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.EqualValues(t, 80, w.billed(customer))
	require.Equal(t, book{Overage: 80, Invoiced: 80}, w.book(key), "the invoice was found without a webhook")
}

func TestCase40TwoLiveItemsOnOneMeter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	second := w.subscribeCustomer(customer, w.licensed("", 100, "month"), "usage")
	w.soon()
	require.Contains(t, w.findings()["two_items"], "2 live items")
	key := w.node.use("acme", 1_500)
	w.advance(w.sim.Now().Add(3*time.Hour), time.Hour)
	require.Zero(t, w.reported(customer), "nothing is reported before it is settled")
	require.Equal(t, "500 500", w.text("SELECT not_billable || ' ' || awaiting FROM weir.totals WHERE key = $1", key))
	_, err := w.api.Subscriptions.Cancel(second.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(false)})
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.Empty(t, w.findings())
	require.EqualValues(t, 500, w.reported(customer))
}

func TestCase41WhoIsNotBillable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer := w.customer("trial")
	_, err := w.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(customer), TrialPeriodDays: stripe.Int64(14), Items: []*stripe.SubscriptionItemsParams{
		{Price: stripe.String(w.price("pro_monthly"))}, {Price: stripe.String(w.price("usage"))},
	}})
	require.NoError(t, err)
	_, unpaid := w.subscribe("unpaid", "pro_monthly", "usage")
	_, paused := w.subscribe("paused", "pro_monthly", "usage")
	bare, _ := w.subscribe("bare", "pro_monthly")
	require.True(t, w.sim.ForceStatus(unpaid.ID, "unpaid"))
	_, err = w.api.Subscriptions.Update(paused.ID, &stripe.SubscriptionParams{PauseCollection: &stripe.SubscriptionPauseCollectionParams{Behavior: stripe.String("void")}})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "pro no", w.plan("trial")+" "+w.billability("trial"))
	require.Equal(t, "free no", w.plan("unpaid")+" "+w.billability("unpaid"))
	require.Equal(t, "pro no", w.plan("paused")+" "+w.billability("paused"))
	require.Equal(t, "pro awaiting", w.plan("bare")+" "+w.billability("bare"), "the item is missing: the operator's fault")
	require.Contains(t, w.findings()["item_missing"], bare)
	ceiling := func(account string) int64 {
		return w.number("SELECT q.ceiling FROM weir.quotas q WHERE q.key = $1", w.node.keyAt(account, w.sim.Now()))
	}
	require.EqualValues(t, 1_000, ceiling("trial"), "stops at included")
	require.EqualValues(t, 1_000, ceiling("paused"))
	require.EqualValues(t, 5_001_000, ceiling("bare"), "goes on and is recorded")
	key := w.node.use("bare", 1_200)
	w.advance(start.AddDate(0, 1, 0).Add(-time.Hour), 20*day)
	w.advance(start.AddDate(0, 1, 0).Add(3*time.Hour), time.Hour)
	require.Equal(t, book{Overage: 200, NotBillable: 200}, w.book(key))
	require.Zero(t, w.reported(bare))
	require.Equal(t, "pro yes", w.plan("trial")+" "+w.billability("trial"), "the trial has become a paid period")
}

func TestCase41cQuantityOfTheBaseItem(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, want string
	}{"conflict": {planFile, "1000 awaiting"}, "per quantity": {replace(planFile, "{included: 1_000,", "{included: 1_000, per: quantity,"), "5000 yes"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: c.file})
			_, err := w.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(w.customer("acme")), Items: []*stripe.SubscriptionItemsParams{
				{Price: stripe.String(w.price("pro_monthly")), Quantity: stripe.Int64(5)}, {Price: stripe.String(w.price("usage"))},
			}})
			require.NoError(t, err)
			w.soon()
			require.Equal(t, c.want, w.text("SELECT included || ' ' || billability FROM weir.keys WHERE key = $1", w.node.keyAt("acme", w.sim.Now())))
		})
	}
}

func TestPricesThatAreNotWhatTheFileSays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.prices["dear"] = w.metered(0.05, "month")
	w.subscribe("acme", "pro_monthly", "dear")
	w.soon()
	require.Contains(t, w.findings()["price"], "charges 0.05 per unit, the plan file says 0.04")
	require.Equal(t, "awaiting", w.billability("acme"))
}
