package billing_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// toEnd moves time to an hour before the first period's end, and finish past its invoice's finalization.
func (w *world) toEnd() { w.advance(start.AddDate(0, 1, 0).Add(-time.Hour), 25*day) }

func (w *world) finish() {
	w.advance(start.AddDate(0, 1, 0).Add(2*time.Hour), 20*time.Minute)
}

func TestCase03UnitsAroundTheBoundary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, old := w.over("acme", 0)
	w.toEnd()
	end := start.AddDate(0, 1, 0)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(-time.Second)))
	require.Equal(t, old, w.node.keyAt("acme", end.Add(-time.Nanosecond)))
	next := w.node.keyAt("acme", end)
	require.NotEqual(t, old, next)
	w.node.used[old] += 3
	w.node.used[next] += 5
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(90*time.Second)))
	w.node.flush(old, next)
	w.work()
	w.finish()
	require.EqualValues(t, 3, w.billed(customer))
	require.Equal(t, book{Overage: 3, Invoiced: 3}, w.book(old))
	require.EqualValues(t, 5, w.number("SELECT used FROM weir.totals WHERE key = $1", next))
	require.Zero(t, w.number("SELECT count(*) FROM weir.reports WHERE key = $1 AND stamp >= $2", old, end), "stamped inside the old period")
}

func TestCase04RenewalWebhookComesLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, old := w.over("acme", 10)
	w.toEnd()
	held := w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.HoldWebhook())
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(3*time.Minute), time.Hour)
	next := w.node.use("acme", 40)
	require.NotEqual(t, old, next)
	w.fold()
	require.Equal(t, "false", w.text("SELECT confirmed::text FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", next))
	held.Remove()
	held.Release()
	w.advance(end.Add(7*time.Minute), 4*time.Minute)
	require.Equal(t, "true", w.text("SELECT confirmed::text FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", next))
	require.EqualValues(t, 40, w.number("SELECT used FROM weir.totals WHERE key = $1", next))
	require.EqualValues(t, 1_010, w.number("SELECT used FROM weir.totals WHERE key = $1", old))
}

func TestCase05TheMeteredItemsOwnWindowCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer := w.customer("acme")
	p := &stripe.SubscriptionParams{Customer: stripe.String(customer), Items: []*stripe.SubscriptionItemsParams{
		{Price: stripe.String(w.price("scale_yearly"))}, {Price: stripe.String(w.price("usage"))},
	}}
	p.Headers = http.Header{"Stripe-Version": {"2025-09-30.clover"}} // flexible billing
	_, err := w.api.Subscriptions.New(p)
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "scale yes", w.plan("acme")+" "+w.billability("acme"))
	require.Equal(t, "2026-02-10 09:30:17+00", w.text("SELECT window_end::text FROM weir.segments"))
	w.node.use("acme", 20_070)
	w.toEnd()
	w.finish()
	require.EqualValues(t, 70, w.billed(customer), "a yearly base beside a monthly meter bills monthly")
	require.Equal(t, "2026-03-10 09:30:17+00", w.text("SELECT max(window_end)::text FROM weir.segments"))
}

func TestCase05AZeroPeriodIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.sim.Faults().Inject(stripesim.Match{Method: "GET", Path: "/v1/subscriptions", Count: 1}, stripesim.Truncate())
	w.subscribe("acme", "pro_monthly", "usage")
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(time.Minute)))
	_, err := w.b.SyncDue(t.Context(), 10)
	require.Error(t, err, "half an answer is no answer")
	require.Zero(t, w.number("SELECT count(*) FROM weir.periods"))
	w.patience()
	w.work()
	require.Equal(t, "pro", w.plan("acme"))
}

func TestCase06YearlyPriceWithMonthlyAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{sim: stripesim.Config{Start: at("2026-01-31T10:00:00Z")}})
	w.prices["usage_yearly"] = w.metered(0.04, "year")
	customer, _ := w.subscribe("acme", "scale_yearly", "usage_yearly")
	w.soon()
	first := w.node.use("acme", 20_100)
	w.advance(at("2026-03-01T00:00:00Z"), 7*day)
	second := w.node.use("acme", 20_030)
	w.advance(at("2026-04-02T00:00:00Z"), 7*day)
	require.NotEqual(t, first, second)
	require.Equal(t, "2026-01-31 10:00, 2026-02-28 10:00, 2026-03-31 10:00, 2026-04-30 10:00", w.text(
		"SELECT string_agg(to_char(starts AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), ', ' ORDER BY starts) FROM weir.periods WHERE state <> 'void'"))
	require.EqualValues(t, 130, w.reported(customer), "reported long before the year's invoice")
	require.Equal(t, book{Overage: 100, Pending: 100}, w.book(first))
	w.advance(at("2027-01-31T09:00:00Z"), 26*day)
	w.advance(at("2027-01-31T14:00:00Z"), 30*time.Minute)
	require.EqualValues(t, 130, w.billed(customer))
	require.Equal(t, book{Overage: 100, Invoiced: 100}, w.book(first), "a line's quantity goes to the window's periods oldest first")
	require.Equal(t, book{Overage: 30, Invoiced: 30}, w.book(second))
	r := w.closeReport(at("2026-02-01T00:00:00Z"))
	require.Empty(t, r.Breaks)
}

func TestCase41aAnEditedFileChangesRowsThatBeginLater(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 10)
	w.toEnd()
	w.advance(start.AddDate(0, 1, 0).Add(20*time.Minute), time.Hour+20*time.Minute)
	open := w.node.keyAt("acme", w.sim.Now())
	w.publish(replace(planFile, "{included: 1_000,", "{included: 500,"))
	w.work()
	included := "SELECT included FROM weir.keys WHERE key = $1"
	require.EqualValues(t, 1_000, w.number(included, key), "ended")
	require.EqualValues(t, 1_000, w.number(included, open), "open")
	require.EqualValues(t, 500, w.number(included, w.node.keyAt("acme", start.AddDate(0, 2, 0).Add(time.Hour))), "next")
}

func TestCase41bResettingTheAnchorMintsNoSecondAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.node.use("acme", 1_000)
	var key int64
	for range 3 {
		w.advance(w.sim.Now().Add(30*time.Minute), 30*time.Minute)
		_, err := w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{BillingCycleAnchorNow: stripe.Bool(true), ProrationBehavior: stripe.String("none")})
		require.NoError(t, err)
		w.soon()
		key = w.node.use("acme", 10)
	}
	w.advance(w.sim.Now().Add(3*time.Hour), time.Hour)
	require.Equal(t, "0, 10, 10, 10", w.text(`SELECT string_agg(t.overage::text, ', ' ORDER BY p.starts) FROM weir.totals t JOIN weir.keys k ON k.key = t.key
		JOIN weir.periods p ON p.id = k.period_id WHERE p.starts <= $1`, w.sim.Now()), "one allowance")
	require.Equal(t, "1000 10", w.text("SELECT free || ' ' || overage FROM weir.totals WHERE key = $1", key))
	r := w.closeReport(start)
	require.Empty(t, r.Breaks)
	require.EqualValues(t, 20, r.Total.Invoiced+r.Total.Late, "a reset's invoice is final at once: what was not reported before it is late")
	require.EqualValues(t, 20, w.billed(customer)+r.Total.Late)
}

func TestCase42ImmediateCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	unbilled, lost := w.over("other", 30)
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	out, err := w.b.Settle(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, out, 1)
	require.EqualValues(t, 40, out[0].Reported)
	require.Zero(t, out[0].Waiting)
	for c, now := range map[string]bool{customer: true, unbilled: false} {
		list := w.api.Subscriptions.List(&stripe.SubscriptionListParams{Customer: stripe.String(c)})
		require.True(t, list.Next())
		_, err := w.api.Subscriptions.Cancel(list.Subscription().ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(now)})
		require.NoError(t, err)
	}
	w.soon()
	w.advance(w.sim.Now().Add(3*time.Hour), 30*time.Minute)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.EqualValues(t, 40, w.billed(customer))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	require.Equal(t, book{Overage: 30, Late: 30}, w.book(lost), "canceled without an invoice: shown as unbilled")
	late, err := w.b.LateList(t.Context())
	require.NoError(t, err)
	require.Len(t, late, 1)
	require.EqualValues(t, 30, late[0].Units)
	require.ErrorContains(t, w.b.LateRelease(t.Context(), late[0].ID, "credit_note", "tester", "why"), "does not fit")
	require.NoError(t, w.b.LateRelease(t.Context(), late[0].ID, "invoice_item", "tester", "they agreed"))
	require.NoError(t, w.b.Late(t.Context()))
	w.advance(w.sim.Now().Add(3*time.Hour), 30*time.Minute)
	require.Equal(t, book{Overage: 30, Invoiced: 30}, w.book(lost), "on an invoice of its own")
}

func TestATrialThatIsExtendedMovesItsUnitsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer := w.customer("acme")
	trial := start.Add(5 * day)
	sub, err := w.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(customer), TrialEnd: stripe.Int64(trial.Unix()), Items: []*stripe.SubscriptionItemsParams{
		{Price: stripe.String(w.price("pro_monthly"))}, {Price: stripe.String(w.price("usage"))},
	}})
	require.NoError(t, err)
	w.soon()
	key := w.node.use("acme", 300)
	w.advance(trial.Add(-time.Hour), 2*day)
	held := w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.HoldWebhook())
	_, err = w.api.Subscriptions.Update(sub.ID, &stripe.SubscriptionParams{TrialEnd: stripe.Int64(trial.Add(4 * day).Unix())})
	require.NoError(t, err)
	require.NoError(t, w.sim.Advance(t.Context(), trial.Add(time.Hour)))
	predicted := w.node.use("acme", 900)
	require.NotEqual(t, key, predicted)
	w.fold()
	held.Remove()
	held.Release()
	w.soon()
	require.Equal(t, "void", w.text("SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", predicted))
	require.Equal(t, key, w.node.keyAt("acme", w.sim.Now()), "the true row is open again")
	const counted = "SELECT free || ' ' || overage FROM weir.totals WHERE key = $1"
	require.Equal(t, "1000 200", w.text(counted, key), "counted forward after what was used there")
	w.node.used[predicted] += 7
	w.node.flush(predicted)
	w.work()
	require.Equal(t, "1000 207", w.text(counted, key), "what nodes count under the void row follows")
}

func TestCase08TheSessionsTimeZoneChangesNothing(t *testing.T) {
	t.Parallel()
	// The period begins in the hour that New York skips, and ends in daylight saving time.
	begin := at("2026-03-08T07:15:30Z")
	w := newWorld(t, setup{sim: stripesim.Config{Start: begin}, timeZone: "America/New_York"})
	customer, key := w.over("acme", 40)
	require.Equal(t, "America/New_York", w.text("SHOW timezone"))
	end := begin.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*day)
	w.node.use("acme", 2)
	w.advance(end.Add(2*time.Hour), 20*time.Minute)
	require.EqualValues(t, 42, w.billed(customer))
	require.Equal(t, book{Overage: 42, Invoiced: 42}, w.book(key))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1 AND starts = $2 AND ends = $3", key, begin, end))
}
