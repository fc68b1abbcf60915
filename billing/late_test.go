package billing_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func TestCase37UsageLandsAfterFinalization(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]book{
		"hold": {Overage: 47, Invoiced: 40, Late: 7}, "forgive": {Overage: 47, Invoiced: 40, Forgiven: 7}, "invoice_item": {Overage: 47, Invoiced: 47},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: "+policy)})
			customer, key := w.over("acme", 40)
			w.toEnd()
			// Seven units were counted before the end and are flushed after finalization, by a node that close gave up.
			slow := w.newNode()
			slow.used[key] += 7
			w.finish()
			require.EqualValues(t, 40, w.billed(customer))
			require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
			require.Contains(t, w.findings()["given_up"], "node")
			slow.flush(key)
			w.work()
			require.NoError(t, w.b.Late(t.Context()))
			if policy == "invoice_item" {
				require.Equal(t, book{Overage: 47, Invoiced: 40, Late: 7}, w.book(key), "until its invoice is final")
				require.NoError(t, w.b.Late(t.Context()))
				w.advance(start.AddDate(0, 2, 0).Add(-time.Hour), 20*day)
				w.advance(start.AddDate(0, 2, 0).Add(3*time.Hour), 30*time.Minute)
			}
			require.Equal(t, want, w.book(key))
			require.EqualValues(t, 40, w.reported(customer), "never silently in the next period")
			r := w.closeReport(start.AddDate(0, 1, 0))
			require.Empty(t, r.Breaks)
		})
	}
}

func TestCase37UsageLandsBeforeFinalization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	slow := w.newNode()
	slow.used[key] += 7
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(58*time.Minute), 29*time.Minute)
	require.EqualValues(t, 40, w.reported(customer), "what is folded is reported at the deadline, closed or not")
	slow.flush(key)
	w.work()
	w.finish()
	require.EqualValues(t, 47, w.billed(customer))
	require.Equal(t, book{Overage: 47, Invoiced: 47}, w.book(key))
}

func TestCase41dAMeteredPriceSwappedInTheDashboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	key := w.node.use("acme", 1_501_000)
	w.hour()
	require.EqualValues(t, 1_500_000, w.reported(customer))
	w.prices["other"] = w.metered(0.04, "month")
	for _, it := range sub.Items.Data {
		if it.Price.ID == w.price("usage") {
			_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{Items: []*stripe.SubscriptionItemsParams{{ID: stripe.String(it.ID), Price: stripe.String(w.price("other"))}}})
			require.NoError(t, err)
		}
	}
	w.soon()
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.segments WHERE key = $1", key))
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 25)
	w.toEnd()
	w.finish()
	require.EqualValues(t, 25, w.billed(customer), "classic billing drops what came before the swap")
	require.Equal(t, book{Overage: 1_500_025, Invoiced: 25, Late: 1_500_000}, w.book(key))
	require.Contains(t, w.findings()["late"], "1500000 billable units")
}

func TestCase41gKeyRevokedBeforeTheBoundary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{sim: stripesim.Config{RetryDelays: []time.Duration{10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute}}})
	customer, key := w.over("acme", 40)
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-5*time.Hour), 25*day)
	fault := w.sim.Faults().Inject(post(stripesim.Unauthorized(), 0))
	w.node.use("acme", 5)
	w.advance(end.Add(-time.Hour), 2*time.Hour)
	w.advance(end.Add(100*time.Minute), 20*time.Minute)
	require.Equal(t, "draft", w.sim.Invoices(customer)[1].Status, "Stripe waits for a 2xx to invoice.created")
	held := 0
	for _, d := range w.sim.Deliveries() {
		if d.Type == "invoice.created" && d.Status == 503 {
			held++
		} else if d.At.After(end) {
			require.Equal(t, 200, d.Status, d.Type)
		}
	}
	require.NotZero(t, held)
	fault.Remove()
	require.NoError(t, w.b.Resume(t.Context(), "unauthorized", "tester"))
	w.patience()
	w.work()
	w.advance(end.Add(4*time.Hour), 20*time.Minute)
	require.EqualValues(t, 45, w.billed(customer))
	require.Equal(t, book{Overage: 45, Invoiced: 45}, w.book(key))
}

func TestWorkerDownAroundTheBoundary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		back time.Duration // after the end
		want book
	}{
		"30 minutes": {30 * time.Minute, book{Overage: 52, Invoiced: 52}}, "past finalization": {3 * time.Hour, book{Overage: 52, Invoiced: 40, Late: 12}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			customer, key := w.over("acme", 40)
			w.toEnd()
			w.node.use("acme", 12)
			if c.want.Late == 0 {
				w.hook.Serve(nil) // nobody answers at all; else another process stores webhooks, and Stripe does not wait
			}
			end := start.AddDate(0, 1, 0)
			require.NoError(t, w.sim.Advance(t.Context(), end.Add(c.back)))
			w.node.flush()
			w.serve(w.b)
			w.work()
			w.advance(end.Add(30*time.Hour), 3*time.Hour)
			require.NoError(t, w.b.Sweep(t.Context()))
			w.work()
			require.Equal(t, c.want, w.book(key))
			require.Equal(t, c.want.Invoiced, w.billed(customer))
		})
	}
}

func TestAVoidedInvoiceBillsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.sim.DeclinePayments(customer, true)
	w.toEnd()
	w.finish()
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	inv := w.sim.Invoices(customer)[1]
	require.Equal(t, "open", inv.Status)
	_, err := w.api.Invoices.VoidInvoice(inv.ID, nil)
	require.NoError(t, err)
	w.soon()
	require.Equal(t, book{Overage: 40, Late: 40}, w.book(key))
}

// A draft that is finalized minutes after its period's end is not waited for longer: close gives up at its deadline.
func TestCloseDoesNotWaitPastAnEarlyDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	slow := w.newNode()
	slow.used[key] += 7
	end := start.AddDate(0, 1, 0)
	const state = "SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1"
	w.advance(end.Add(time.Minute), 30*time.Minute)
	soon := &stripe.InvoiceParams{}
	soon.Headers = http.Header{"Stripe-Version": {"2024-10-28.acacia"}}
	soon.AddExtra("automatically_finalizes_at", strconv.FormatInt(end.Add(10*time.Minute).Unix(), 10))
	_, err := w.api.Invoices.Update(w.sim.Invoices(customer)[1].ID, soon)
	require.NoError(t, err)
	w.advance(end.Add(9*time.Minute), 4*time.Minute)
	require.Equal(t, "closing", w.text(state, key))
	require.EqualValues(t, 40, w.reported(customer))
	w.advance(end.Add(10*time.Minute), time.Minute)
	require.Equal(t, "invoiced", w.text(state, key))
	require.Contains(t, w.findings()["given_up"], "node")
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	slow.flush(key)
	w.work()
	require.Equal(t, book{Overage: 47, Invoiced: 40, Late: 7}, w.book(key))
}

// A draft that is finalized between its choice and the item for it is no reason to wait for a person: the item goes on
// the next invoice, or on one of its own after the end, once.
func TestLateUsageIsAimedAgainWhenItsDraftIsFinal(t *testing.T) {
	t.Parallel()
	for name, ended := range map[string]bool{"the subscription runs on": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
			customer, key := w.over("acme", 40)
			w.toEnd()
			slow := w.newNode()
			slow.used[key] += 7
			w.finish()
			end := start.AddDate(0, 2, 0)
			w.advance(end.Add(-time.Hour), 20*day)
			w.advance(end.Add(10*time.Minute), 10*time.Minute)
			drafts := w.sim.Invoices(customer)
			draft := drafts[len(drafts)-1]
			require.Equal(t, "draft", draft.Status)
			slow.flush(key)
			w.work()
			w.hook.Serve(nil) // what happens at Stripe is not known here
			_, err := w.api.Invoices.FinalizeInvoice(draft.ID, nil)
			require.NoError(t, err)
			if ended {
				_, err = w.api.Subscriptions.Cancel(draft.Subscription, nil)
				require.NoError(t, err)
				w.exec("UPDATE weir.subscriptions SET ended_at = $1", w.sim.Now())
			}
			require.NoError(t, w.b.Late(t.Context()))
			require.Equal(t, "stored NULL", w.text("SELECT state || ' ' || coalesce(object, 'NULL') FROM weir.late"))
			require.NotContains(t, w.findings(), "late_refused")
			require.NotEqual(t, "draft", w.text("SELECT status FROM weir.invoices WHERE invoice = $1", draft.ID), "it was read")
			w.serve(w.b)
			for range 2 {
				w.patience()
				require.NoError(t, w.b.Late(t.Context()))
			}
			require.Equal(t, "sent", w.text("SELECT state FROM weir.late"))
			item, err := w.api.InvoiceItems.Get(w.text("SELECT object FROM weir.late"), nil)
			require.NoError(t, err)
			if !ended {
				require.Equal(t, draft.Subscription, item.Subscription.ID, "on its next invoice, not on another's")
			}
			w.advance(start.AddDate(0, 3, 0).Add(-time.Hour), 20*day)
			w.advance(start.AddDate(0, 3, 0).Add(3*time.Hour), time.Hour)
			require.Equal(t, book{Overage: 47, Invoiced: 47}, w.book(key))
			items := 0
			for _, inv := range w.sim.Invoices(customer) {
				for _, l := range inv.Lines {
					if l.Metadata["weir_id"] != "" {
						items++
						require.NotEqual(t, draft.ID, inv.ID)
						require.EqualValues(t, 7, l.Quantity)
					}
				}
			}
			require.Equal(t, 1, items)
		})
	}
}

// Where the billing window runs on, no invoice is near: close waits a week for a node, and no longer.
func TestCloseWaitsAWeekWhereTheWindowRunsOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.prices["usage"] = w.metered(0.04, "year")
	customer, _ := w.subscribe("acme", "scale_yearly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	key := w.node.use("acme", 20_040)
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*day)
	slow := w.newNode()
	slow.used[key] += 7
	const state = "SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1"
	w.advance(end.Add(7*day-time.Minute), 2*day)
	require.Equal(t, "closing", w.text(state, key))
	w.advance(end.Add(7*day), time.Minute)
	require.Equal(t, "closed", w.text(state, key))
	require.Contains(t, w.findings()["given_up"], "node")
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	slow.flush(key)
	w.work()
	w.hour()
	require.Equal(t, book{Overage: 47, Pending: 47}, w.book(key), "it comes before the year's invoice")
	require.EqualValues(t, 47, w.reported(customer))
}

// Late usage of which no price is known would cost nothing on an invoice: it is held, and a credit is no item.
func TestWhatCannotBeAnItemIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	_, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7)
	w.exec("UPDATE weir.segments SET unit_amount = NULL")
	w.exec("UPDATE weir.keys SET unit_amount = NULL")
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, "held", w.text("SELECT state FROM weir.late"))
	require.Contains(t, w.findings()["late_refused"], "no price of its units is known")
	w.exec("UPDATE weir.segments SET unit_amount = 0.04")
	id := w.number("SELECT id FROM weir.late")
	require.Error(t, w.b.LateRelease(t.Context(), id, "credit_note", "ann", "the wrong way round"))
	require.NoError(t, w.b.LateRelease(t.Context(), id, "forgive", "ann", "so be it"))
	require.Equal(t, book{Overage: 47, Invoiced: 40, Forgiven: 7}, w.book(key))

	w.exec(`INSERT INTO weir.late (key, segment, units, policy, cause, weir_id, created_at, state)
		SELECT key, max(id), -5, 'credit_note', 'a test', 'weir_late_test', now(), 'held' FROM weir.segments WHERE key = $1 GROUP BY key`, key)
	id = w.number("SELECT max(id) FROM weir.late")
	require.Error(t, w.b.LateRelease(t.Context(), id, "invoice_item", "ann", "the wrong way round"))
	require.Equal(t, "held credit_note", w.text("SELECT state || ' ' || policy FROM weir.late WHERE id = $1", id))
}

// Late usage goes on a draft of its own currency, and what may be on one already is not taken back here.
func TestWhichDraftLateUsageGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7)
	w.invoice("in_eur", "manual", customer, w.text("SELECT max(subscription) FROM weir.segments"))
	w.exec("UPDATE weir.invoices SET status = 'draft', currency = 'eur' WHERE invoice = 'in_eur'")
	w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: "/v1/invoiceitems", Count: 1}, stripesim.DropAnswer())
	require.Error(t, w.b.Late(t.Context()), "its answer is lost")
	_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -7, "tester", "a refund")
	require.NoError(t, err)
	w.work()
	require.Equal(t, "stored 7, stored -7", w.text("SELECT string_agg(state || ' ' || units, ', ' ORDER BY id) FROM weir.late"), "it may be there: a credit takes it back")
	w.patience()
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, "sent, credited", w.text("SELECT string_agg(state, ', ' ORDER BY id) FROM weir.late"))
	require.Equal(t, "NULL", w.text("SELECT invoice FROM weir.late WHERE units = 7"), "the next invoice takes it")
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.late WHERE object LIKE 'ii_%'"))
	items := w.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(customer)})
	n := 0
	for items.Next() {
		n++
	}
	require.NoError(t, items.Err())
	require.Equal(t, 1, n)
}

// What is folded is reported 45 minutes after the end at the latest, though close still waits for a node and the hourly
// pass is not due.
func TestWhatIsFoldedIsReportedBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	slow := w.newNode()
	slow.used[key] += 7
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-2*time.Minute), 29*time.Minute)
	require.Equal(t, key, w.node.use("acme", 9))
	w.fold()
	w.exec("UPDATE weir.billing SET planned_at = $1", w.sim.Now())
	w.advance(end.Add(44*time.Minute), 23*time.Minute)
	require.EqualValues(t, 40, w.reported(customer))
	w.advance(end.Add(45*time.Minute), time.Minute)
	require.EqualValues(t, 49, w.reported(customer))
	w.finish()
	require.Equal(t, book{Overage: 49, Invoiced: 49}, w.book(key))
}

// A draft that waits for days is waited for: nothing is late while it may still bill.
func TestADraftThatWaitsMakesNothingLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(10*time.Minute), 35*time.Minute)
	later := &stripe.InvoiceParams{}
	later.Headers = http.Header{"Stripe-Version": {"2024-10-28.acacia"}}
	later.AddExtra("automatically_finalizes_at", strconv.FormatInt(end.Add(70*time.Hour).Unix(), 10))
	_, err := w.api.Invoices.Update(w.sim.Invoices(customer)[1].ID, later)
	require.NoError(t, err)
	w.advance(end.Add(30*time.Hour), 5*time.Hour)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	w.advance(end.Add(71*time.Hour), 10*time.Hour)
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}
