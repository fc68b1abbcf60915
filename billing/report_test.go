package billing_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

const eventsPath = "/v1/billing/meter_events"

func post(e stripesim.Effect, count int) (stripesim.Match, stripesim.Effect) {
	return stripesim.Match{Method: "POST", Path: eventsPath, Count: count}, e
}

// settled lets a pro account run over by units and an hour pass, in which the report goes out.
func (w *world) over(account string, units int64) (customer string, key int64) {
	w.Helper()
	customer, _ = w.subscribe(account, "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	return customer, w.node.use(account, 1_000+units)
}

func (w *world) hour() { w.advance(w.sim.Now().Add(time.Hour), time.Hour) }

func (w *world) states() string {
	return w.text("SELECT string_agg(state || CASE WHEN replaced THEN ' replaced' ELSE '' END, ', ' ORDER BY id) FROM weir.reports")
}

func TestCase31AnswerLostAfterTheEventWasTaken(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]stripesim.Effect{
		"dropped": stripesim.DropAnswer(), "cut": stripesim.CutBody(), "truncated": stripesim.Truncate(), "500 kept": stripesim.ExecuteAndFail(500),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			fault := w.sim.Faults().Inject(post(e, 0)) // net/http repeats a call by itself when its connection was cut
			customer, _ := w.over("acme", 40)
			w.hour()
			require.Equal(t, "unknown", w.states())
			fault.Remove()
			w.patience()
			w.work()
			require.Equal(t, "delivered", w.states(), "the duplicate's answer is ours")
			require.EqualValues(t, 40, w.reported(customer))
			require.EqualValues(t, 2, w.number("SELECT count(DISTINCT idempotency) FROM weir.report_attempts"), "each attempt has its own Idempotency-Key")
		})
	}
}

func TestCase31UnknownFor25HoursIsDecidedByItsSummary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		e      stripesim.Effect
		states string
	}{
		"it was taken":     {stripesim.DropAnswer(), "recorded"},
		"it was not taken": {stripesim.FailAndKeep(500), "unknown replaced, delivered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			fault := w.sim.Faults().Inject(post(c.e, 0))
			customer, _ := w.over("acme", 40)
			w.hour()
			fault.Remove()
			require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(25*time.Hour)))
			for range 3 {
				w.patience()
				require.NoError(t, w.b.Reconcile(t.Context()))
				w.work()
				w.hour()
			}
			require.Equal(t, c.states, w.states())
			require.EqualValues(t, 40, w.reported(customer))
		})
	}
}

func TestCase32DuplicateOfOursIsDeliveredAnother400ParksItsRowAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customers := map[string]string{}
	for _, account := range []string{"a", "b", "c", "d", "e"} {
		customers[account], _ = w.over(account, 10)
	}
	w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: eventsPath, When: forCustomer(customers["c"]), Count: 1},
		stripesim.Refuse("The value is odd.", ""))
	w.hour()
	require.EqualValues(t, 4, w.number("SELECT count(*) FROM weir.reports WHERE state = 'delivered'"))
	require.Equal(t, "rejected", w.text("SELECT state FROM weir.reports WHERE customer = $1", customers["c"]))
	require.Contains(t, w.findings()["report_rejected"], "The value is odd.")
	_, reports, err := w.b.Replay(t.Context(), "tester")
	require.NoError(t, err)
	require.Equal(t, 1, reports)
	w.work()
	require.EqualValues(t, 10, w.reported(customers["c"]), "replaced by a new identifier, counted once")
	require.Empty(t, w.findings())

	w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: eventsPath, When: forCustomer(customers["d"]), Count: 1},
		stripesim.Refuse("An event already exists with identifier somebody-else.", ""))
	w.node.use("d", 3)
	w.hour()
	require.Equal(t, "rejected", w.text("SELECT state FROM weir.reports WHERE customer = $1 ORDER BY id DESC LIMIT 1", customers["d"]), "another's identifier proves nothing")
}

func forCustomer(id string) func(stripesim.Call) bool {
	return func(c stripesim.Call) bool { return strings.Contains(c.Params, id) }
}

func TestCase33UnauthorizedStopsEverythingAndMarksNothing(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]stripesim.Effect{"401": stripesim.Unauthorized(), "403": stripesim.Forbidden()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			customer, _ := w.over("acme", 40)
			w.over("other", 5)
			fault := w.sim.Faults().Inject(post(e, 0))
			w.hour()
			require.Equal(t, "stored, stored", w.states())
			require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.findings WHERE cleared_at IS NULL"), "one alert")
			require.Contains(t, w.findings()["sending_stopped"], "does not accept the API key")
			hits := fault.Hits()
			w.node.use("acme", 3)
			w.hour()
			require.LessOrEqual(t, fault.Hits(), hits+1, "nobody goes on, but for one try in 30 s")
			require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.reports"), "nothing piles up")
			fault.Remove()
			require.NoError(t, w.b.Resume(t.Context(), "unauthorized", "tester"))
			w.patience()
			w.work()
			w.hour()
			require.EqualValues(t, 43, w.reported(customer))
			require.Empty(t, w.findings())
		})
	}
}

func TestCase33ArchivedMeterKeepsItsRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	_, err := w.api.BillingMeters.Deactivate(w.meter, nil)
	require.NoError(t, err)
	w.hour()
	require.Equal(t, "stored", w.states())
	require.Contains(t, w.findings()["meter_inactive"], event)
	_, err = w.api.BillingMeters.Reactivate(w.meter, nil)
	require.NoError(t, err)
	w.patience()
	w.work()
	require.EqualValues(t, 40, w.reported(customer))
	require.Empty(t, w.findings())
}

func TestCase34OneCallAtATimePerCustomerAndMeter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{sim: stripesim.Config{Limits: stripesim.RateLimits{OnePerCustomerAndMeter: true}}})
	customer, key := w.over("acme", 1)
	other, _ := w.over("other", 1)
	w.hour()
	w.storeLinks(key, 20)
	w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: eventsPath, When: forCustomer(other)}, stripesim.RateLimited("endpoint-rate").WithHeader("Retry-After", "7"))
	w.node.use("other", 5)
	errs := make(chan error, 4)
	for range 4 {
		go func() { errs <- w.biller(w.db).Report(t.Context()) }()
	}
	for range 4 {
		require.NoError(t, <-errs)
	}
	require.EqualValues(t, 21, w.reported(customer))
	for _, c := range w.sim.Calls() {
		if c.Path == eventsPath && forCustomer(customer)(c) {
			require.Equal(t, 200, c.Status)
		}
	}
}

// storeLinks stores one link a unit, as twenty hours would.
func (w *world) storeLinks(key int64, n int) {
	w.Helper()
	for range n {
		w.node.used[key]++
		w.node.flush(key)
		w.fold()
		require.EqualValues(w, 1, w.number("SELECT weir.plan_links(ARRAY[$1::bigint], $2, 'test')", key, w.sim.Now()))
	}
}

func TestCase35DeltasOnASumMeter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 100)
	w.hour()
	w.node.use("acme", 150)
	w.hour()
	require.Equal(t, "100, 150", w.text("SELECT string_agg(value::text, ', ' ORDER BY seq) FROM weir.reports"))
	require.EqualValues(t, 250, w.reported(customer))
	require.EqualValues(t, 2, w.number("SELECT count(DISTINCT stamp) FROM weir.reports WHERE stamp = date_trunc('minute', stamp)"), "a minute of its own")
}

func TestCase35MetersThatDoNotSumAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.exec("UPDATE weir.meters SET active = false")
	m, err := w.api.BillingMeters.Deactivate(w.meter, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.BillingMeterStatusInactive, m.Status)
	last, err := w.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("events"), EventName: stripe.String(event),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("last")},
	})
	require.NoError(t, err)
	w.meter = last.ID
	w.prices["last"] = w.metered(0.04, "month")
	w.subscribe("acme", "pro_monthly", "last")
	w.soon()
	require.Contains(t, w.findings()["meter"], "aggregates by last")
	require.Equal(t, "awaiting", w.billability("acme"))
}

func TestCase36RefundBeforeAndAfterFinalization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 500_000)
	w.hour()
	_, err := w.b.Adjust(t.Context(), "acme", "events", w.sim.Now(), -200_000, "tester", "an outage")
	require.NoError(t, err)
	w.hour()
	require.EqualValues(t, 300_000, w.reported(customer), "a negative report")
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 20*day)
	w.advance(end.Add(2*time.Hour), 30*time.Minute)
	require.Equal(t, book{Overage: 300_000, Invoiced: 300_000}, w.book(key))
	_, err = w.b.Adjust(t.Context(), "acme", "events", end.Add(-time.Minute), -50_000, "tester", "another outage")
	require.NoError(t, err)
	w.work()
	require.Equal(t, book{Overage: 250_000, Invoiced: 300_000, Late: -50_000}, w.book(key), "overbilled")
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{Overage: 250_000, Invoiced: 250_000}, w.book(key))
	notes := w.api.CreditNotes.List(&stripe.CreditNoteListParams{Customer: stripe.String(customer)})
	require.True(t, notes.Next())
	require.EqualValues(t, 2_000, notes.CreditNote().Total, "50,000 units at 0.04 cents")
	require.False(t, notes.Next())
	_, err = w.b.Adjust(t.Context(), "acme", "events", end.Add(-time.Minute), -5_000_000, "tester", "too much")
	require.Error(t, err)
}

func TestCase36UpgradeKeepsOrForgives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		want int64
	}{"keep": {planFile, 5_000}, "forgive": {replace(planFile, "prices: [scale_monthly, scale_yearly]", "prices: [scale_monthly, scale_yearly]\n    on_upgrade: forgive"), 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: c.file})
			customer, sub := w.subscribe("acme", "pro_monthly", "usage")
			w.soon()
			w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
			key := w.node.use("acme", 6_000)
			w.hour()
			require.EqualValues(t, 5_000, w.reported(customer))
			w.change(sub, "scale_monthly")
			w.hour()
			require.EqualValues(t, c.want, w.number("SELECT overage FROM weir.totals WHERE key = $1", key))
			require.EqualValues(t, c.want, w.reported(customer))
		})
	}
}

// What an upgrade forgives is taken from what nobody can be billed for first.
func TestAForgivingUpgradeTakesWhatIsNotBillableFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 800)
	w.fold()
	w.exec("UPDATE weir.totals SET not_billable = 500, awaiting = 450 WHERE key = $1", key)
	w.exec("UPDATE weir.keys SET included = 1600, on_upgrade = 'forgive' WHERE key = $1", key)
	const counted = "SELECT concat_ws(' ', free, overage, not_billable, awaiting) FROM weir.totals WHERE key = $1"
	w.exec("SELECT weir.forgive_upgrade(ARRAY[$1::bigint], ARRAY[1600::bigint], $2)", key, w.sim.Now())
	require.Equal(t, "1000 800 500 450", w.text(counted, key), "it is no upgrade")
	w.exec("UPDATE weir.keys SET included = 1100 WHERE key = $1", key)
	w.exec("SELECT weir.forgive_upgrade(ARRAY[$1::bigint], ARRAY[1000::bigint], $2)", key, w.sim.Now())
	require.Equal(t, "1100 700 400 400", w.text(counted, key))
	w.exec("UPDATE weir.keys SET included = 1600 WHERE key = $1", key)
	w.exec("SELECT weir.forgive_upgrade(ARRAY[$1::bigint], ARRAY[1100::bigint], $2)", key, w.sim.Now())
	require.Equal(t, "1600 200 0 0", w.text(counted, key))
}

func TestCase38TooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "max: 5_000_000}}\n    on_exceeded: bill_overage\n  scale", "max: unlimited}}\n    on_exceeded: bill_overage\n  scale")})
	customer, _ := w.over("acme", 1_000_000_000_000_000)
	w.hour()
	require.Zero(t, w.reported(customer))
	require.Zero(t, w.number("SELECT count(*) FROM weir.reports"))
	require.Contains(t, w.findings()["too_large"], "1000000000000000")
}

func TestCase38ReportsOlderThan35DaysArePutAside(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 40)
	w.sim.Faults().Inject(post(stripesim.RateLimited("endpoint-rate"), 0))
	w.hour()
	require.Equal(t, "stored", w.states())
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(36*day)))
	require.NoError(t, w.b.Report(t.Context()))
	require.Equal(t, "rejected", w.states())
	require.Contains(t, w.findings()["report_rejected"], "35 days")
}

func TestCase38ClockOffStripesStopsSending(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.sim.SkewDate(-6 * time.Minute)
	customer, _ := w.over("acme", 40)
	w.hour()
	require.Zero(t, w.reported(customer))
	require.Contains(t, w.findings()["sending_stopped"], "off Stripe's")
	require.NotEmpty(t, w.findings()["clock_skew"])
}

func TestCase39MeterErrorNamesOurReport(t *testing.T) {
	t.Parallel()
	for name, style := range map[string]stripesim.ReportStyle{
		"identifier": stripesim.ReportIdentifier, "idempotency key": stripesim.ReportIdempotencyKey, "request": stripesim.ReportRequest,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{sim: stripesim.Config{ReportStyle: style}})
			customer, _ := w.over("acme", 40)
			w.sim.Faults().RejectMeterEvents("archived_meter", 1, func(stripesim.MeterEvent) bool { return true })
			w.hour()
			w.soon()
			require.NoError(t, w.b.ReadMeterErrors(t.Context()))
			require.Equal(t, "rejected", w.states())
			require.Equal(t, "archived_meter", w.text("SELECT code FROM weir.reports"))
			require.Contains(t, w.findings()["report_rejected"], "archived_meter")
			require.NoError(t, w.b.Reconcile(t.Context()))
			w.hour()
			require.Equal(t, "rejected replaced, delivered", w.states())
			require.EqualValues(t, 40, w.sim.Usage(customer, w.meter, start, start.AddDate(0, 1, 0)))
		})
	}
}

func TestCase43TheOtherModeIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	require.NoError(t, w.b.CheckDatabase(t.Context()))
	live, err := billing.NewClient(billing.ClientConfig{Key: "sk_live_1"})
	require.NoError(t, err)
	w.client = live
	err = w.biller(w.db).CheckDatabase(t.Context())
	require.ErrorContains(t, err, "livemode")
	require.True(t, billing.IsPermanent(err))
	require.False(t, errors.Is(err, billing.ErrNoStripe))
}
