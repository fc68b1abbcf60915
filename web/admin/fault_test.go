package admin_test

import (
	"context"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
)

// alert is the text of one alert of the overview, empty when it is not there.
func (v *visitor) alert(id string) string {
	v.Helper()
	page := v.page("/admin/")
	_, rest, ok := strings.Cut(page, `id="alert-`+id+`"`)
	if !ok {
		return ""
	}
	text, _, _ := strings.Cut(rest, "</li>")
	return html.UnescapeString(tags.ReplaceAllString(text, ""))
}

var tags = regexp.MustCompile(`<[^>]*>`)

// post matches meter events.
func events(count int) stripesim.Match {
	return stripesim.Match{Method: "POST", Path: "/v1/billing/meter_events", Count: count}
}

// Each fault is planted where it arises and found by what a worker does; the overview shows it at once, with what to do.
func TestAPlantedFaultIsOnTheOverview(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(w *world)
		alert string
		says  string // of what has happened
		next  string
	}{
		"late": {plantLate, "late", "1 item is held", "release it onto an invoice"},
		"rejected report": {func(w *world) {
			w.over("acme", 40)
			w.sim.Faults().Inject(events(1), stripesim.Refuse("The value is odd.", ""))
			w.hour()
		}, "finding-report_rejected", "The value is odd.", "worker replay"},
		"unknown price": {func(w *world) {
			w.subscribe("acme", "unknown_monthly", "usage")
			w.advance(w.sim.Now().Add(2*time.Minute), time.Minute)
		}, "finding-unknown_price", "unknown_monthly", "Name the price in the plan file"},
		"mapping conflict": {func(w *world) {
			w.subscribe("acme", "pro_monthly", "usage")
			w.subscribe("acme", "pro_monthly", "usage")
			w.advance(w.sim.Now().Add(2*time.Minute), time.Minute)
		}, "finding-mapping_conflict", "acme", "worker map"},
		"foreign amount": {func(w *world) {
			customer, _ := w.over("acme", 40)
			w.hour()
			_, err := w.sim.API.BillingMeterEvents.New(&stripe.BillingMeterEventParams{
				EventName: stripe.String(meterName), Timestamp: stripe.Int64(w.sim.Now().Add(-time.Minute).Unix()),
				Payload: map[string]string{"stripe_customer_id": customer, "value": "7"},
			})
			require.NoError(w, err)
			w.advance(w.sim.Now().Add(25*time.Hour), 13*time.Hour)
			require.NoError(w, w.b.Reconcile(w.Context()))
		}, "finding-foreign_usage", "Stripe has 47 units", "Stop what else sends"},
		"stop": {func(w *world) {
			w.over("acme", 40)
			w.sim.Faults().Inject(events(0), stripesim.Unauthorized())
			w.hour()
		}, "stop-unauthorized", "does not accept the API key", "STRIPE_API_KEY"},
		"parked row": {func(w *world) {
			key := w.use("acme", 5)
			w.node.Count(key+1_000_000, 7)
			w.node.Flush(w.sim.Now(), key+1_000_000)
			w.fold()
		}, "parked", "unknown key", "worker adjust"},
		"parked webhook": {func(w *world) {
			w.sim.Faults().Inject(stripesim.Match{Method: "GET", Path: "/v1/subscriptions"}, stripesim.Unavailable(500))
			w.subscribe("acme", "pro_monthly", "usage")
			require.NoError(w, w.sim.Advance(w.Context(), w.sim.Now().Add(time.Minute)))
			for range 2 {
				_, err := w.b.SyncDue(w.Context(), 100)
				require.Error(w, err)
				w.exec("UPDATE weir.customers SET claimed_until = '-infinity'") // its pause is over
			}
		}, "stuck", "2 times in a row", "tried again by itself"},
		"archived meter": {func(w *world) {
			w.over("acme", 40)
			_, err := w.sim.API.BillingMeters.Deactivate(w.meter, nil)
			require.NoError(w, err)
			w.hour()
		}, "finding-meter_inactive", meterName, "Reactivate the meter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.catalogue()
			v := w.signedIn("Ada")
			require.Empty(t, v.alert(c.alert))
			c.plant(w)
			text := v.alert(c.alert)
			require.Contains(t, text, c.says)
			require.Contains(t, text, "Next:")
			require.Contains(t, text, c.next)
			if c.alert == "late" {
				require.Contains(t, v.page("/admin/held"), "number 1")
			}
			if c.alert == "parked" || c.alert == "stuck" {
				require.Contains(t, html.UnescapeString(v.page("/admin/held")), map[string]string{"parked": c.says, "stuck": "2 ×"}[c.alert])
			}
			if kind, ok := strings.CutPrefix(c.alert, "finding-"); ok {
				page := html.UnescapeString(v.page("/admin/findings?kind=" + kind))
				require.Contains(t, page, "The rule")
				require.Contains(t, page, c.next)
				require.Contains(t, v.page("/admin/findings"), kind)
			}
		})
	}
}

// plantLate: seven units were counted before a period's end and are flushed after its invoice, by a node that close gave
// up.
func plantLate(w *world) {
	_, key := w.over("acme", 40)
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*24*time.Hour)
	slow, err := usage.Register(w.Context(), w.db, "slow", "test", w.sim.Now())
	require.NoError(w, err)
	w.advance(end.Add(2*time.Hour), 20*time.Minute)
	latest, _, err := usage.Changes(w.Context(), w.db, 0)
	require.NoError(w, err)
	now := w.sim.Now()
	_, err = usage.Flush(w.Context(), w.db, usage.Batch{Node: slow.ID, Keys: []int64{key}, Upto: []int64{7}, At: now, Sealed: now, Applied: latest})
	require.NoError(w, err)
	w.work()
	require.NoError(w, w.b.Late(w.Context()))
}

func TestADeadNodeIsOnTheOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.signedIn("Ada")
	w.use("acme", 5)
	id := fmt.Sprintf("node-%d", w.node.ID)
	require.Empty(t, v.alert(id))
	require.Contains(t, v.page("/admin/"), "1 live node")

	w.exec("UPDATE weir.nodes SET heartbeat_at = clock_timestamp() - interval '3 minutes' WHERE id = $1", w.node.ID) // nothing was heard of it
	text := v.alert(id)
	require.Contains(t, text, "longer than the lease time of 2 min")
	require.Contains(t, text, "start an enforcer on its journal's folder")

	n, err := usage.ReadNode(t.Context(), w.db, w.node.ID, w.sim.Now(), 1)
	require.NoError(t, err)
	reaped, err := usage.Reap(t.Context(), w.db, w.node.ID, n.Heartbeat)
	require.NoError(t, err)
	require.True(t, reaped)
	text = v.alert(id)
	require.Contains(t, text, "its journal was not recovered")
	require.Contains(t, text, fmt.Sprintf("worker nodes give-up --reason TEXT %d", w.node.ID))
	require.NoError(t, w.sim.Advance(t.Context(), time.Date(2026, 2, 1, 0, 5, 0, 0, time.UTC)))
	require.Contains(t, v.alert(id), "Now it holds up 1.", "the month that has ended waits for it")
	page := v.page(fmt.Sprintf("/admin/nodes/%d", w.node.ID))
	require.Contains(t, page, "reaped")
	require.Contains(t, v.page("/admin/nodes"), "reaped")
}

func TestFailedJobsAreOnTheOverview(t *testing.T) {
	t.Parallel()
	loads := []admin.Load{{Kind: "sync", State: "discarded", Jobs: 2}, {Kind: "report", State: "available", Jobs: 1, Age: time.Hour}, {Kind: "flush", State: "running", Jobs: 1}}
	w := newWorld(t, func(c *admin.Config) { c.Loads = func(context.Context) ([]admin.Load, error) { return loads, nil } })
	v := w.signedIn("Ada")
	require.Contains(t, v.alert("job-sync-discarded"), "2 jobs of kind sync")
	require.Contains(t, v.alert("job-sync-discarded"), "Retry it once its cause is mended")
	require.Contains(t, v.alert("job-report-available"), "No worker takes them")
	require.NotContains(t, v.page("/admin/"), "job-flush")
}

func TestWhatWaitsTooLongIsOnTheOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	v := w.signedIn("Ada")
	require.Contains(t, v.page("/admin/"), "All is well")
	w.over("acme", 40)
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(10*time.Minute)))
	text := v.alert("lag-fold")
	require.Contains(t, text, "has waited for 10 min")
	require.Contains(t, text, "Start a worker")
	require.Contains(t, v.page("/admin/"), "1 now", "that is urgent")
	w.node.Flush(w.sim.Now())
	w.work()
	require.Empty(t, v.alert("lag-fold"))
	require.Contains(t, v.page("/admin/?fresh=1"), `http-equiv="refresh" content="30"`)
	require.NotContains(t, v.page("/admin/"), "http-equiv")
}
