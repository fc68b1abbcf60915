package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// lateBy lets close give up on a node that has counted units of the key, and flush them when the invoice is final.
func (w *world) lateBy(key, units int64) {
	w.Helper()
	slow := w.newNode()
	slow.used[key] += units
	w.finish()
	slow.flush(key)
	w.work()
}

// The account that a customer is taken from can be billed nothing from that transaction on.
func TestAnAccountThatLosesItsCustomerIsNotBillableAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.hour()
	w.node.use("acme", 5)
	require.NoError(t, w.b.Link(t.Context(), "umbrella", customer, "tester"))
	require.Equal(t, "no", w.text("SELECT billability FROM weir.keys WHERE key = $1", key), "before any read")
	require.EqualValues(t, 1_045, w.number("SELECT ceiling FROM weir.quotas WHERE key = $1", key), "it stops where it is")
	require.Contains(t, w.findings()["customer_lost"], `mapped to account "umbrella"`)
	require.Equal(t, "pro", w.plan("acme"), "what is included is paid for")
	w.node.use("acme", 7) // in flight
	w.soon()
	require.Equal(t, "pro yes", w.plan("umbrella")+" "+w.billability("umbrella"))
	w.node.use("umbrella", 1_003)
	w.hour()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*day)
	w.advance(end.Add(3*time.Hour), 30*time.Minute)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.EqualValues(t, 48, w.billed(customer), "45 before, 3 of the other account")
	require.Equal(t, book{Overage: 52, Invoiced: 45, NotBillable: 7}, w.book(key))
	require.Equal(t, "free", w.plan("acme"), "the plan has ended with its period")

	other, _ := w.subscribe("", "pro_monthly", "usage")
	require.NoError(t, w.b.Link(t.Context(), "acme", other, "tester"))
	w.soon()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.NotContains(t, w.findings(), "customer_lost")
}

// Nobody could read Stripe while a whole period ran. Its own invoice confirms it: nothing of it is lost from sight.
func TestAPeriodThatNobodyReadIsConfirmedByItsInvoice(t *testing.T) {
	t.Parallel()
	first, second := start.AddDate(0, 1, 0), start.AddDate(0, 2, 0)
	for name, c := range map[string]struct {
		back time.Time
		want book
	}{
		"back before its invoice is final": {second.Add(20 * time.Minute), book{Overage: 70, Invoiced: 70}},
		"back a week later":                {second.Add(7 * day), book{Overage: 70, Late: 70}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			customer, key := w.over("acme", 40)
			w.advance(first.Add(-time.Hour), 25*day)
			w.advance(first.Add(-time.Minute), 59*time.Minute)
			w.hook.Serve(nil) // the worker is down
			require.NoError(t, w.sim.Advance(t.Context(), first.Add(time.Hour)))
			missed := w.node.use("acme", 1_070)
			require.NotEqual(t, key, missed)
			require.NoError(t, w.sim.Advance(t.Context(), second.Add(-time.Hour)))
			w.node.keyAt("acme", second)
			require.NoError(t, w.sim.Advance(t.Context(), c.back))
			w.node.flush()
			w.serve(w.b)
			require.NoError(t, w.b.Sweep(t.Context()))
			w.work()
			w.advance(c.back.Add(3*time.Hour), 10*time.Minute)
			require.NoError(t, w.b.Sweep(t.Context()))
			w.work()
			require.Equal(t, c.want, w.book(missed))
			require.Equal(t, 40+c.want.Invoiced, w.billed(customer))
			require.Equal(t, "true", w.text("SELECT p.confirmed::text FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", missed))
			require.NotContains(t, w.findings(), "unconfirmed_period")
			r := w.closeReport(second)
			require.Empty(t, r.Breaks)
		})
	}
}

// Without an invoice that shows it, such a period reports nothing, and is for a person.
func TestAPeriodThatNothingConfirmsIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	first, second := start.AddDate(0, 1, 0), start.AddDate(0, 2, 0)
	w.advance(first.Add(-time.Hour), 25*day)
	w.advance(first.Add(-time.Minute), 59*time.Minute)
	w.hook.Serve(nil)
	require.NoError(t, w.sim.Advance(t.Context(), first.Add(time.Hour)))
	missed := w.node.use("acme", 1_070)
	require.NotEqual(t, key, missed)
	list := w.api.Subscriptions.List(&stripe.SubscriptionListParams{Customer: stripe.String(customer)})
	require.True(t, list.Next())
	_, err := w.api.Subscriptions.Cancel(list.Subscription().ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(false)})
	require.NoError(t, err)
	require.NoError(t, w.sim.Advance(t.Context(), second.Add(day)))
	w.node.flush()
	w.serve(w.b)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	w.advance(second.Add(3*day), day)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 70, NotBillable: 70}, w.book(missed))
	require.Contains(t, w.findings()["unconfirmed_period"], "70 units")
	// A line of its bounds proves it only when it is of the item that the account's overage went to before.
	item, sub, price := w.text("SELECT max(item) FROM weir.segments"), list.Subscription().ID, w.price("usage")
	for id, of := range map[string][3]string{"in_item": {sub, "si_other", price}, "in_sub": {"sub_other", item, price}, "in_price": {sub, item, "price_other"}} {
		w.invoice(id, "subscription_cycle", customer, of[0])
		w.line(id, of[0], of[1], of[2], 70, first, second)
		w.text("SELECT weir.settle_invoice($1, $2)::text", id, w.sim.Now())
		require.Equal(t, book{Overage: 70, NotBillable: 70}, w.book(missed), id)
	}
	require.EqualValues(t, 0, w.reported(customer)-w.number("SELECT coalesce(sum(value), 0)::bigint FROM weir.reports WHERE key = $1", key))
}

// A refund is credited line by line, and never more than a line bills.
func TestARefundThatIsLargerThanOneLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 4_000)
	w.toEnd()
	w.lateBy(key, 3_000)
	require.NoError(t, w.b.Late(t.Context()))
	end := start.AddDate(0, 2, 0)
	w.advance(end.Add(-time.Hour), 10*day)
	w.advance(end.Add(3*time.Hour), 30*time.Minute)
	require.Equal(t, book{Overage: 7_000, Invoiced: 7_000}, w.book(key), "4,000 on one invoice, 3,000 on the next")
	_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -6_500, "tester", "an outage")
	require.NoError(t, err)
	w.work()
	require.Equal(t, "-4000, -2500", w.text("SELECT string_agg(units::text, ', ' ORDER BY units) FROM weir.late WHERE key = $1 AND units < 0", key))
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{Overage: 500, Invoiced: 500}, w.book(key))
	var total int64
	notes := w.api.CreditNotes.List(&stripe.CreditNoteListParams{Customer: stripe.String(customer)})
	for notes.Next() {
		total += notes.CreditNote().Total
	}
	require.EqualValues(t, 260, total, "6,500 units at 0.04 cents")
	require.NotContains(t, w.findings(), "late_refused")
}

// Rounding of several refunds never adds up to more than the line.
func TestSmallRefundsAddUpToTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 100) // 4 cents
	w.toEnd()
	w.finish()
	for range 5 {
		_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -20, "tester", "0.8 cents each")
		require.NoError(t, err)
		w.work()
		require.NoError(t, w.b.Late(t.Context()))
	}
	require.Equal(t, book{}, w.book(key))
	var total int64
	notes := w.api.CreditNotes.List(&stripe.CreditNoteListParams{Customer: stripe.String(customer)})
	for notes.Next() {
		total += notes.CreditNote().Total
	}
	require.EqualValues(t, 4, total)
	require.Equal(t, "1, 1, 0, 1, 1", w.text("SELECT string_agg(CASE WHEN object IS NULL THEN '0' ELSE '1' END, ', ' ORDER BY id) FROM weir.late"),
		"what is left of the line costs 3.2, 2.4, 1.6, 0.8 and 0 cents, each rounded to the nearest")
	require.NotContains(t, w.findings(), "late_refused")
}

// Nor does it where Stripe refuses one of them, and a person releases it after the next.
func TestARefundThatIsReleasedLaterAddsUpToTheLine(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 90) // 3.6 cents: 4
	w.toEnd()
	w.finish()
	w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: "/v1/credit_notes", Count: 1}, stripesim.Refuse("Not today.", ""))
	for _, units := range []int64{-30, -60} {
		_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), units, "tester", "a test")
		require.NoError(t, err)
		w.work()
		require.NoError(t, w.b.Late(t.Context()))
	}
	require.Equal(t, "held, credited", w.text("SELECT string_agg(state, ', ' ORDER BY id) FROM weir.late"))
	require.NoError(t, w.b.LateRelease(t.Context(), w.number("SELECT id FROM weir.late WHERE state = 'held'"), "credit_note", "tester", "today"))
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{}, w.book(key))
	var total int64
	notes := w.api.CreditNotes.List(&stripe.CreditNoteListParams{Customer: stripe.String(customer)})
	for notes.Next() {
		total += notes.CreditNote().Total
	}
	require.EqualValues(t, 4, total)
}

// A refund of what is on no invoice yet waits for the invoice, and does not become a second charge or credit.
func TestARefundOfWhatIsNotInvoicedYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 0)
	w.toEnd()
	w.lateBy(key, 3_000)
	adjust := func(units int64) {
		_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), units, "tester", "a refund")
		require.NoError(t, err)
		w.work()
	}
	adjust(-1_000)
	require.Equal(t, "netted 3000, stored 2000", w.text("SELECT string_agg(state || ' ' || units, ', ' ORDER BY id) FROM weir.late"), "not sent yet: sent less")
	require.NoError(t, w.b.Late(t.Context()))
	adjust(-500)
	require.Equal(t, book{Overage: 1_500, Late: 1_500}, w.book(key))
	require.NoError(t, w.b.Late(t.Context()))
	require.NotContains(t, w.findings(), "late_refused", "there is no line to credit yet")
	end := start.AddDate(0, 2, 0)
	w.advance(end.Add(-time.Hour), 10*day)
	w.advance(end.Add(3*time.Hour), 30*time.Minute)
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{Overage: 1_500, Invoiced: 1_500}, w.book(key), "credited once its line is there")
	notes := w.api.CreditNotes.List(&stripe.CreditNoteListParams{Customer: stripe.String(customer)})
	require.True(t, notes.Next())
	require.EqualValues(t, 20, notes.CreditNote().Total)
	require.False(t, notes.Next())
}

// Somebody deletes the invoice item of late usage at Stripe: it is for a person again.
func TestADeletedInvoiceItemIsFound(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	_, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7_000)
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, "sent", w.text("SELECT state FROM weir.late"))
	require.NoError(t, w.b.Sweep(t.Context()))
	require.Equal(t, "sent", w.text("SELECT state FROM weir.late"), "it is there")
	_, err := w.api.InvoiceItems.Del(w.text("SELECT object FROM weir.late"), nil)
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(day), day)
	require.NoError(t, w.b.Sweep(t.Context()))
	require.Equal(t, "held", w.text("SELECT state FROM weir.late"))
	require.Contains(t, w.findings()["late_deleted"], "7000 units")
	require.Equal(t, book{Overage: 7_040, Invoiced: 40, Late: 7_000}, w.book(key))
	id := w.number("SELECT id FROM weir.late")
	require.NoError(t, w.b.LateRelease(t.Context(), id, "invoice_item", "tester", "it was a slip"))
	require.NotContains(t, w.findings(), "late_deleted")
	require.NoError(t, w.b.Late(t.Context()))
	end := start.AddDate(0, 2, 0)
	w.advance(end.Add(-time.Hour), 10*day)
	w.advance(end.Add(3*time.Hour), 30*time.Minute)
	require.Equal(t, book{Overage: 7_040, Invoiced: 7_040}, w.book(key))
}

// The webhooks of an invoice of its own are lost: the sweep finds what became of the item that is on it.
func TestTheInvoiceOfALateItemIsFoundWithoutAWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, lost := w.over("acme", 3_000)
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	list := w.api.Subscriptions.List(&stripe.SubscriptionListParams{Customer: stripe.String(customer)})
	require.True(t, list.Next())
	_, err := w.api.Subscriptions.Cancel(list.Subscription().ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(false)})
	require.NoError(t, err)
	w.soon()
	w.advance(w.sim.Now().Add(3*time.Hour), 30*time.Minute)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.NoError(t, w.b.LateRelease(t.Context(), w.number("SELECT id FROM weir.late"), "invoice_item", "tester", "they agreed"))
	w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.DropWebhook())
	require.NoError(t, w.b.Late(t.Context()))
	w.advance(w.sim.Now().Add(30*time.Hour), 3*time.Hour)
	require.Equal(t, book{Overage: 3_000, Late: 3_000}, w.book(lost))
	require.NoError(t, w.b.Sweep(t.Context()))
	require.Equal(t, book{Overage: 3_000, Invoiced: 3_000}, w.book(lost))
}

// What was counted after the account's item had gone to another customer is nobody's until a person says so: the first
// customer is not charged for it by a policy.
func TestLateUsageAfterARemapIsNotTheOldCustomers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.hour()
	other, _ := w.subscribe("", "pro_monthly", "usage")
	require.NoError(t, w.b.Link(t.Context(), "acme", other, "tester"))
	w.node.use("acme", 3_000)
	w.soon()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*day)
	w.advance(end.Add(30*time.Hour), 3*time.Hour)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 3_040, Invoiced: 40, Late: 3_000}, w.book(key))
	require.Equal(t, "held", w.text("SELECT state FROM weir.late WHERE key = $1", key))
	require.NoError(t, w.b.Late(t.Context()))
	require.NoError(t, w.b.LateRelease(t.Context(), w.number("SELECT id FROM weir.late WHERE key = $1", key), "invoice_item", "tester", "the new owner pays"))
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, other, w.text("SELECT s.customer FROM weir.late l JOIN weir.segments s ON s.id = l.segment WHERE l.key = $1", key), "the account's present customer")
	w.advance(start.AddDate(0, 2, 0).Add(4*time.Hour), 5*day)
	w.advance(start.AddDate(0, 2, 0).Add(8*time.Hour), time.Hour)
	require.Equal(t, book{Overage: 3_040, Invoiced: 3_040}, w.book(key))
	require.EqualValues(t, 40, w.billed(customer))
}

// A credit on an invoice that is voided afterwards gives nothing back: nothing is billed at all then.
func TestAVoidedInvoiceTakesItsCreditsWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 4_000)
	w.sim.DeclinePayments(customer, true)
	w.toEnd()
	w.finish()
	_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -1_500, "tester", "an outage")
	require.NoError(t, err)
	w.work()
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{Overage: 2_500, Invoiced: 2_500}, w.book(key))
	_, err = w.api.Invoices.VoidInvoice(w.sim.Invoices(customer)[1].ID, nil)
	require.NoError(t, err)
	w.soon()
	require.Equal(t, book{Overage: 2_500, Late: 2_500}, w.book(key))
	r := w.closeReport(start.AddDate(0, 1, 0))
	require.Empty(t, r.Breaks)
}

// Two subscriptions whose invoices are final in the same hour: the first that is read does not make late what is on the
// second.
func TestTheFirstOfTwoInvoicesMakesNothingLate(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]bool{"the older item's first": false, "the newer item's first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
			customer, other := w.customer("acme"), w.customer("")
			anchor := start.Add(time.Hour).Unix()
			for _, c := range []string{customer, other} {
				_, err := w.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(c), BillingCycleAnchor: stripe.Int64(anchor), ProrationBehavior: stripe.String("none"), Items: []*stripe.SubscriptionItemsParams{
					{Price: stripe.String(w.price("pro_monthly"))}, {Price: stripe.String(w.price("usage"))},
				}})
				require.NoError(t, err)
			}
			w.soon()
			w.advance(start.Add(2*time.Hour), time.Hour)
			key := w.node.use("acme", 1_300)
			w.hour()
			require.EqualValues(t, 300, w.reported(customer))
			require.NoError(t, w.b.Link(t.Context(), "acme", other, "tester"))
			w.soon()
			w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
			require.Equal(t, key, w.node.use("acme", 200))
			w.hour()
			require.EqualValues(t, 200, w.reported(other))
			end := time.Unix(anchor, 0).AddDate(0, 1, 0)
			w.advance(end.Add(-time.Hour), 25*day)
			w.advance(end.Add(50*time.Minute), 10*time.Minute)
			w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.DropWebhook())
			w.advance(end.Add(90*time.Minute), 10*time.Minute)
			order := []string{customer, other}
			if second {
				order = []string{other, customer}
			}
			for i, c := range order {
				w.exec("UPDATE weir.invoices SET wanted = wanted + 1 WHERE customer = $1", c)
				w.work()
				require.Zero(t, w.book(key).Late, "invoice %d", i)
			}
			require.Equal(t, book{Overage: 500, Invoiced: 500}, w.book(key))
			require.Zero(t, w.number("SELECT count(*) FROM weir.late"))
		})
	}
}

// Collection is paused: what was counted before was billable, and is reported.
func TestWhatWasCountedBeforeAPauseIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	key := w.node.use("acme", 1_200)
	_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{PauseCollection: &stripe.SubscriptionPauseCollectionParams{Behavior: stripe.String("keep_as_draft")}})
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "no", w.billability("acme"))
	w.node.use("acme", 9) // in flight
	w.hour()
	require.EqualValues(t, 200, w.reported(customer))
	require.Equal(t, "209 9", w.text("SELECT overage || ' ' || not_billable FROM weir.totals WHERE key = $1", key))
}

// A second item on the meter would bill what is reported a second time, what was counted before it included.
func TestNothingIsReportedWhileTwoItemsWouldBillIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 1_200)
	second := w.subscribeCustomer(customer, w.licensed("", 100, "month"), "usage")
	w.soon()
	require.Contains(t, w.findings(), "two_items")
	w.advance(w.sim.Now().Add(3*time.Hour), time.Hour)
	require.Zero(t, w.reported(customer))
	_, err := w.api.Subscriptions.Cancel(second.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(false)})
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.EqualValues(t, 200, w.reported(customer))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.segments"))
}

// Summaries that were read before an attempt, or while it is under way, do not prove that it was not taken.
func TestASummaryFromBeforeAnAttemptProvesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	busy := w.sim.Faults().Inject(post(stripesim.RateLimited("endpoint-rate"), 0))
	customer, _ := w.over("acme", 40)
	w.hour()
	require.Equal(t, "stored", w.states())
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(25*time.Hour)))
	w.patience()
	busy.Remove()
	slow := w.sim.Faults().Inject(post(stripesim.StallBefore(30*time.Second), 1))
	done := make(chan error, 1)
	go func() { done <- w.biller(w.db).Report(t.Context()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, slow.Wait(ctx, 1))
	for range 3 { // each an hour after the other, and the attempt is under way all the time
		require.NoError(t, w.b.Reconcile(t.Context()))
		require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(61*time.Minute)))
	}
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.reports"), "nothing was replaced")
	slow.Release()
	require.NoError(t, <-done)
	w.patience()
	w.work()
	require.EqualValues(t, 40, w.reported(customer))
}

// The call that makes an invoice item hangs, and its worker gives up: another one makes no second item.
func TestALateItemWhoseCallHangsIsMadeOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7_000)
	slow := w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: "/v1/invoiceitems", Count: 1}, stripesim.StallBefore(30*time.Second))
	ctx, kill := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.biller(w.db).Late(ctx) }()
	waiting, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, slow.Wait(waiting, 1))
	kill()
	require.Error(t, <-done, "it was killed")
	w.patience()
	_ = w.b.Late(t.Context()) // refused while the first is under way
	slow.Release()
	require.Eventually(t, func() bool {
		w.patience()
		return w.b.Late(t.Context()) == nil && w.text("SELECT state FROM weir.late") == "sent"
	}, 20*time.Second, 10*time.Millisecond)
	items := w.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(customer)})
	n := 0
	for items.Next() {
		n++
	}
	require.Equal(t, 1, n)
}
