package billing_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// What a frozen node counted over the highest maximum is nobody's to pay.
func TestWhatIsOverTheMaximumIsForgiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "max: 5_000_000}}\n    on_exceeded: bill_overage\n  scale", "max: 100}}\n    on_exceeded: bill_overage\n  scale")})
	customer, key := w.over("acme", 150)
	w.hour()
	require.EqualValues(t, 100, w.reported(customer))
	w.toEnd()
	w.finish()
	require.EqualValues(t, 100, w.billed(customer))
	require.Equal(t, book{Overage: 150, Invoiced: 100, Forgiven: 50}, w.book(key))
	require.EqualValues(t, 50, w.number("SELECT overshoot FROM weir.books WHERE key = $1", key))
}

// swap puts another metered price in the place of the one that a subscription has.
func (w *world) swap(sub *stripe.Subscription, price string) {
	w.Helper()
	w.swapFor(sub, price, w.metered(0.04, "month"))
}

func (w *world) swapFor(sub *stripe.Subscription, name, price string) {
	w.Helper()
	w.prices[name] = price
	_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{Items: []*stripe.SubscriptionItemsParams{{ID: stripe.String(sub.Items.Data[1].ID), Price: stripe.String(price)}}})
	require.NoError(w, err)
	w.soon()
}

// A refund over two segments is a link in each: Stripe floors each at zero, and what is below it would be lost.
func TestARefundTakesNoSegmentBelowZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 1_100)
	w.hour()
	w.swap(sub, "other")
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 30)
	w.hour()
	require.EqualValues(t, 130, w.reported(customer))
	_, err := w.b.Adjust(t.Context(), "acme", "events", w.sim.Now(), -50, "tester", "an outage")
	require.NoError(t, err)
	w.hour()
	require.EqualValues(t, 80, w.reported(customer))
	require.Equal(t, "80, 0", w.text("SELECT string_agg(weir.segment_sum(id)::text, ', ' ORDER BY id) FROM weir.segments"))
	require.Equal(t, "100, 30, -30, -20", w.text("SELECT string_agg(value::text, ', ' ORDER BY seq) FROM weir.reports"))
}

// A segment that ends before any minute of it may carry a report: its units are not the next segment's.
func TestASegmentTooShortForAReportIsShownAsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	key := w.node.use("acme", 1_300)
	w.swap(sub, "other")
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 20)
	w.hour()
	require.Equal(t, "rejected no_legal_minute 300, delivered  20", w.text("SELECT string_agg(state || ' ' || coalesce(code, '') || ' ' || value, ', ' ORDER BY seq) FROM weir.reports"))
	w.toEnd()
	w.finish()
	require.EqualValues(t, 20, w.billed(customer))
	require.Equal(t, book{Overage: 320, Invoiced: 20, Late: 300}, w.book(key))
}

// Reports that Stripe did not take until the invoice was final are not sent any more: no invoice would bill them.
func TestNothingIsSentAfterTheInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	busy := w.sim.Faults().Inject(post(stripesim.RateLimited("endpoint-rate"), 0))
	w.toEnd()
	w.finish()
	require.Equal(t, book{Overage: 40, Late: 40}, w.book(key))
	busy.Remove()
	w.patience()
	w.work()
	w.hour()
	require.Zero(t, w.reported(customer))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.late WHERE units = 40 AND state = 'held'"))
	// It is nobody's work any more, and nobody is told of it a second time.
	for _, most := range []string{"stored", "unknown"} {
		w.exec("UPDATE weir.reports SET state = $1, attempts = 1, first_sent = created_at, retry_at = '-infinity' WHERE customer = $2", most, customer)
		due, err := w.b.Due(t.Context())
		require.NoError(t, err)
		require.False(t, due.Report || due.Resolve, most)
		w.exec("UPDATE weir.reports SET state = 'stored' WHERE customer = $1", customer)
	}
	w.advance(w.sim.Now().Add(38*day), 19*day)
	require.NotContains(t, w.findings(), "report_rejected")
	require.NotContains(t, w.findings(), "report_outcome")
}

// Nor is anything planned or replaced any more: what comes, and what was refused, is late.
func TestNothingIsPlannedAfterTheInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.sim.Faults().Inject(post(stripesim.Refuse("The value is odd.", ""), 1))
	w.toEnd()
	w.lateBy(key, 7)
	require.Equal(t, book{Overage: 47, Late: 47}, w.book(key))
	w.hour()
	require.Equal(t, "NULL", w.text("SELECT weir.replace_link(max(id), $1)::text FROM weir.reports", w.sim.Now()))
	_, reports, err := w.b.Replay(t.Context(), "tester")
	require.NoError(t, err)
	require.Zero(t, reports)
	w.exec("UPDATE weir.chains SET due = true")
	require.NoError(t, w.b.Report(t.Context()))
	require.Equal(t, "rejected 40", w.text("SELECT string_agg(state || ' ' || value, ', ' ORDER BY id) FROM weir.reports"))
	require.Zero(t, w.reported(customer))
}

// Two workers claim at the same instant: of one customer and meter only one of them gets a link.
func TestTwoClaimsAtOnceTakeOneStreamOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 1)
	w.hour()
	w.storeLinks(key, 2)
	const claim = "SELECT count(*) FROM weir.claim_reports($1, $2, interval '1 minute', NULL, false)"
	first, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Rollback(context.WithoutCancel(t.Context())) })
	var n int64
	require.NoError(t, first.QueryRow(t.Context(), claim, w.sim.Now(), 1).Scan(&n))
	require.EqualValues(t, 1, n)
	require.Zero(t, w.number(claim, w.sim.Now(), 10), "it neither waits for the first nor takes the next link of the stream")
	require.NoError(t, first.Commit(t.Context()))
	require.Zero(t, w.number(claim, w.sim.Now(), 10))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.reports WHERE state = 'unknown'"))
}

// A node that has not heard that a period ended early may still count in it, however far it has sealed.
func TestCloseWaitsForTheChangeThatSetTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.hour()
	n := w.node
	w.node = nil
	before := n.Change()
	list := w.api.Subscriptions.List(&stripe.SubscriptionListParams{Customer: stripe.String(customer)})
	require.True(t, list.Next())
	_, err := w.b.Settle(t.Context(), "acme")
	require.NoError(t, err)
	_, err = w.api.Subscriptions.Cancel(list.Subscription().ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true)})
	require.NoError(t, err)
	w.soon()
	state := "SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1"
	seal := func(applied int64) {
		require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(5*time.Minute)))
		_, err := usage.Flush(t.Context(), w.db, usage.Batch{Node: n.id, At: w.sim.Now(), Sealed: w.sim.Now(), Applied: applied})
		require.NoError(t, err)
		w.work()
	}
	seal(before)
	require.Equal(t, "closing", w.text(state, key), "sealed past the end, and not told of it")
	latest, _, err := usage.Changes(t.Context(), w.db, before)
	require.NoError(t, err)
	require.Greater(t, latest, before)
	seal(latest)
	require.NotEqual(t, "closing", w.text(state, key))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}

// What lies in the inbox was counted: a period with a row there is not closed before the fold.
func TestCloseWaitsForTheInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.toEnd()
	require.NoError(t, w.sim.Advance(t.Context(), start.AddDate(0, 1, 0).Add(5*time.Minute)))
	w.node.used[key] += 3
	w.node.flush(key)
	state := "SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1"
	_, err := w.b.Close(t.Context())
	require.NoError(t, err)
	require.Equal(t, "closing", w.text(state, key))
	w.fold()
	_, err = w.b.Close(t.Context())
	require.NoError(t, err)
	require.Equal(t, "closed", w.text(state, key))
	require.Equal(t, book{Overage: 43, Pending: 43}, w.book(key))
}

// A period was cut short, and a node brings units of it when it is closed: they use up the same allowance.
func TestUnitsOfACutPeriodThatComeLateUseTheOneAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	old := w.node.use("acme", 500)
	w.advance(w.sim.Now().Add(time.Hour), 30*time.Minute)
	slow := w.newNode()
	slow.used[old] += 300
	_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{BillingCycleAnchorNow: stripe.Bool(true), ProrationBehavior: stripe.String("none")})
	require.NoError(t, err)
	w.soon()
	key := w.node.use("acme", 100)
	require.NotEqual(t, old, key)
	w.advance(w.sim.Now().Add(2*time.Hour), 30*time.Minute)
	free := "SELECT carried || ' ' || free || ' ' || overage FROM weir.totals WHERE key = $1"
	require.Equal(t, "500 600 0", w.text(free, key))
	slow.flush(old)
	w.work()
	require.Equal(t, "800 900 0", w.text(free, key))
	require.EqualValues(t, 1_000, w.number("SELECT free + (SELECT included - free FROM weir.totals JOIN weir.keys USING (key) WHERE key = $1) FROM weir.totals WHERE key = $1", key), "one allowance")
	w.node.use("acme", 150)
	w.fold()
	require.Equal(t, "800 1000 50", w.text(free, key))
	r := w.closeReport(start)
	require.Empty(t, r.Breaks)
}

// A draft shows the usage so far, and bills nothing.
func TestADraftBillsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	w.advance(start.AddDate(0, 1, 0).Add(40*time.Minute), 10*time.Minute)
	w.exec("UPDATE weir.invoices SET wanted = wanted + 1 WHERE status = 'draft'")
	w.work()
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.invoices i JOIN weir.invoice_lines l ON l.invoice = i.invoice WHERE i.customer = $1 AND i.status = 'draft' AND l.quantity = 40", customer))
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	require.Zero(t, w.number("SELECT count(*) FROM weir.invoiced"))
	w.finish()
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}

// An invoice from the middle of a window may show the window's line with nothing on it yet: it makes nothing final.
func TestAnInvoiceFromBeforeTheWindowsEndMakesNothingFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(40*time.Minute), 10*time.Minute)
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	w.exec(`INSERT INTO weir.invoices (invoice, customer, livemode, subscription, status, billing_reason, currency, created, read, seen_at)
		SELECT 'in_early', $1, false, s.subscription, 'paid', 'subscription_update', 'usd', $2, 1, $2 FROM weir.segments s WHERE s.key = $3`, customer, start.Add(5*day), key)
	w.exec(`INSERT INTO weir.invoice_lines (line, invoice, subscription, item, price, meter, quantity, amount, starts, ends)
		SELECT 'il_early', 'in_early', s.subscription, s.item, s.price, s.meter, 0, 0, $1, $2 FROM weir.segments s WHERE s.key = $3`, start, end, key)
	w.exec("SELECT weir.settle_invoice('in_early', $1)", w.sim.Now())
	require.Equal(t, book{Overage: 40, Pending: 40}, w.book(key))
	w.finish()
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}

// A customer whose backlog is long has its turn like any other, and then waits until the others have had theirs.
func TestEachCustomerWithDueReportsHasItsTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	accounts := []string{"busy", "a", "b", "c"}
	for _, account := range accounts {
		w.subscribe(account, "pro_monthly", "usage")
	}
	w.advance(w.sim.Now().Add(11*time.Minute), 11*time.Minute)
	keys := map[string]int64{}
	for _, account := range accounts {
		keys[account] = w.node.use(account, 1_000)
	}
	require.NoError(t, w.sim.Advance(t.Context(), start.Add(day)))
	w.storeLinks(keys["busy"], 30)
	for _, account := range accounts[1:] {
		w.storeLinks(keys[account], 2)
	}
	turn := func(most int) string {
		w.exec("CREATE TABLE turn AS SELECT * FROM weir.claim_reports($1, $2, interval '1 minute', NULL, false)", w.sim.Now(), most)
		w.exec(`SELECT weir.settle_reports(array_agg(report), array_agg(attempt), array_agg(claim), array_agg('delivered'::text), array_agg(200), array_agg(''::text), array_agg(''::text),
			array_agg(interval '0 s'), $1) FROM turn`, w.sim.Now())
		got := w.text(`SELECT string_agg(a.account || ' ' || r.seq, ', ' ORDER BY a.account) FROM turn c
			JOIN weir.reports r ON r.id = c.report JOIN weir.keys k ON k.key = r.key JOIN weir.accounts a ON a.id = k.account_id`)
		w.exec("DROP TABLE turn")
		return got
	}
	require.Equal(t, "busy 1", turn(1))
	require.Equal(t, "a 1, b 1", turn(2))
	require.Equal(t, "busy 2, c 1", turn(2))
	require.Equal(t, "a 2, b 2", turn(2))
	require.Equal(t, "busy 3, c 2", turn(10))
	require.Equal(t, "busy 4", turn(10), "one in flight at a time")
}
