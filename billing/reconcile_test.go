package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func TestDeliveredBecomesRecordedWhenTheSummaryAgrees(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{sim: stripesim.Config{SummaryLag: 10 * time.Minute}})
	w.over("acme", 40)
	w.hour()
	require.Equal(t, "delivered", w.states())
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Equal(t, "delivered", w.states(), "a 2xx is not recorded")
	w.advance(w.sim.Now().Add(25*time.Hour), 13*time.Hour)
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Equal(t, "recorded", w.states())
	n := len(w.sim.Calls())
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Len(t, w.sim.Calls(), n, "one summary a day while the window is open")
	require.Empty(t, w.findings())
}

func TestAForeignAmountFreezesTheCustomer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	w.hour()
	_, err := w.api.BillingMeterEvents.New(&stripe.BillingMeterEventParams{
		EventName: stripe.String(event), Timestamp: stripe.Int64(w.sim.Now().Add(-time.Minute).Unix()),
		Payload: map[string]string{"stripe_customer_id": customer, "value": "7"},
	})
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(25*time.Hour), 13*time.Hour)
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Contains(t, w.findings()["foreign_usage"], "Stripe has 47 units")
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.customers WHERE frozen IS NOT NULL"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.reports"), "nothing is sent because of a difference")
}

func TestWhatWasAcceptedAndNotRecordedAlerts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	w.subscribe("acme", "pro_monthly", "usage")
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 1_040)
	w.sim.Faults().RejectMeterEvents("meter_event_invalid_value", 1, func(stripesim.MeterEvent) bool { return true })
	w.hour()
	w.advance(w.sim.Now().Add(25*time.Hour), 13*time.Hour)
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Contains(t, w.findings()["summary_gap"], "Stripe has 0 units")
	require.Equal(t, "delivered", w.states(), "a gap sends nothing")
}

func TestARestoredDatabaseStopsUntilWindowsAreCompared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	w.hour()
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	require.Empty(t, w.findings(), "the same database")
	w.exec("UPDATE weir.billing SET timeline = timeline - 1")
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	require.Contains(t, w.findings()["sending_stopped"], "restored or failed over")
	w.node.use("acme", 5)
	w.hour()
	require.EqualValues(t, 40, w.reported(customer), "nothing is sent")
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Empty(t, w.findings(), "every open window agrees")
	w.hour()
	require.EqualValues(t, 45, w.reported(customer))
}

func TestARestoredDatabaseThatForgotAReportWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	w.hour()
	// The backup is from before the report.
	w.exec("SET session_replication_role = replica; DELETE FROM weir.report_attempts; DELETE FROM weir.reports; UPDATE weir.chains SET seq = 0, upto = 0; SET session_replication_role = origin")
	w.exec("UPDATE weir.billing SET timeline = timeline - 1")
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.NoError(t, w.b.Reconcile(t.Context()))
	require.Contains(t, w.findings()["foreign_usage"], "Stripe has 40 units")
	w.hour()
	require.EqualValues(t, 40, w.reported(customer), "not reported a second time")
	require.Error(t, w.b.Resume(t.Context(), "restored", ""))
}

func TestLateUsageAges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.toEnd()
	slow := w.newNode()
	slow.used[key] += 7
	w.finish()
	slow.flush(key)
	w.work()
	w.advance(w.sim.Now().Add(8*day), 4*day)
	require.NoError(t, w.b.Settled(t.Context()))
	require.Contains(t, w.findings()["late_aging"], "7 late units")
	list, err := w.b.LateList(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Error(t, w.b.LateRelease(t.Context(), list[0].ID, "forgive", "", ""))
	require.NoError(t, w.b.LateRelease(t.Context(), list[0].ID, "forgive", "tester", "goodwill"))
	require.Equal(t, book{Overage: 47, Invoiced: 40, Forgiven: 7}, w.book(key))
	require.ErrorContains(t, w.b.LateRelease(t.Context(), list[0].ID, "forgive", "tester", "again"), "no held late usage")
}

func TestARenewalThatIsNeverConfirmedStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, old := w.over("acme", 10)
	w.toEnd()
	w.sim.Faults().Inject(stripesim.Match{Method: "GET", Path: "/v1/subscriptions.*"}, stripesim.Unavailable(503))
	end := start.AddDate(0, 1, 0)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(time.Minute)))
	key := w.node.use("acme", 1_200)
	require.NotEqual(t, old, key)
	w.fold()
	require.NoError(t, w.b.Settled(t.Context()))
	require.Equal(t, "200 200", w.text("SELECT not_billable || ' ' || awaiting FROM weir.totals WHERE key = $1", key))
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(7*time.Hour)))
	require.NoError(t, w.b.Settled(t.Context()))
	require.Contains(t, w.findings()["unconfirmed_period"], "not confirmed")
	require.Equal(t, "no", w.text("SELECT billability FROM weir.keys WHERE key = $1", key))
	require.EqualValues(t, 1_200, w.number("SELECT ceiling FROM weir.quotas WHERE key = $1", key), "it stops where it is")
	w.sim.Faults().Clear()
	w.patience()
	w.work()
	require.Equal(t, "0 0 yes", w.text("SELECT t.not_billable || ' ' || t.awaiting || ' ' || k.billability FROM weir.totals t JOIN weir.keys k ON k.key = t.key WHERE t.key = $1", key))
	require.NotContains(t, w.findings(), "unconfirmed_period")
}
