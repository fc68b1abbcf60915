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

type thinEvent struct {
	stripe.APIResource
	ID, Object, Type, Created string
	Livemode                  bool
	Related                   struct{ ID, Type, URL string } `json:"related_object"`
	Data                      *struct {
		Reason struct {
			Count int `json:"error_count"`
			Types []struct {
				Code    string
				Count   int `json:"error_count"`
				Samples []struct {
					Request struct {
						ID, Identifier string
						Key            string `json:"idempotency_key"`
					}
				} `json:"sample_errors"`
			} `json:"error_types"`
		}
	}
}

func (k *kit) thin(id, version string) (*thinEvent, error) {
	out := &thinEvent{}
	return out, k.be.CallRaw(http.MethodGet, "/v2/core/events/"+id, k.sim.APIKey(), nil,
		&stripe.Params{Headers: http.Header{"Stripe-Version": {version}}}, out)
}

// Facts 1.8: an accepted event may be rejected afterwards; the notice is a thin
// event to its own destination, and its details must be fetched.
func TestRejectionAfterAcceptance(t *testing.T) {
	t.Parallel()
	snapshots, thins := listen(t), listen(t)
	k := start(t, stripesim.Config{AsyncValidation: true, SamplesPerError: 2, Webhooks: []stripesim.Webhook{
		{URL: snapshots.url, Secret: "whsec_snapshot", Events: []string{"v1.*"}}, {URL: thins.url, Secret: "whsec_thin", Thin: true},
	}})
	cus, m := k.customer(), k.meter("calls")
	begin := k.sim.Now()
	k.send("calls", cus, 1, begin, "good")
	for _, id := range []string{"bad-1", "bad-2", "bad-3"} {
		k.send("calls", "cus_gone", 1, begin, id)
	}
	_, err := k.api.BillingMeterEvents.New(&stripe.BillingMeterEventParams{
		EventName: stripe.String("calls"), Identifier: stripe.String("custom"), Payload: map[string]string{"customer": cus, "units": "5"},
	})
	require.NoError(t, err, "the default payload keys are missing, which is found out later")
	k.advance(begin.Add(time.Minute))

	require.Empty(t, snapshots.all())
	require.Len(t, thins.all(), 1)
	push := thins.all()[0]
	_, err = webhook.ConstructEventWithOptions(push.body, push.header.Get("Stripe-Signature"), "whsec_thin",
		webhook.ConstructEventOptions{IgnoreTolerance: true, IgnoreAPIVersionMismatch: true})
	require.ErrorContains(t, err, "cannot unmarshal string", "stripe-go v79 knows no thin events")
	require.NoError(t, webhook.ValidatePayloadIgnoringTolerance(push.body, push.header.Get("Stripe-Signature"), "whsec_thin"))
	var pushed thinEvent
	require.NoError(t, json.Unmarshal(push.body, &pushed))
	require.Equal(t, "v2.core.event", pushed.Object)
	require.Equal(t, "v1.billing.meter.error_report_triggered", pushed.Type)
	require.Equal(t, "2026-01-01T00:01:00.000Z", pushed.Created)
	require.Equal(t, m, pushed.Related.ID)
	require.Nil(t, pushed.Data)

	_, err = k.thin(pushed.ID, "2024-06-20")
	refused(t, err, 400)
	full, err := k.thin(pushed.ID, basil)
	require.NoError(t, err)
	require.Equal(t, 4, full.Data.Reason.Count)
	require.Len(t, full.Data.Reason.Types, 2)
	gone := full.Data.Reason.Types[0]
	require.Equal(t, "meter_event_customer_not_found", gone.Code)
	require.Equal(t, 3, gone.Count)
	require.Len(t, gone.Samples, 2, "samples only")
	require.Equal(t, "bad-1", gone.Samples[0].Request.Identifier)
	require.Equal(t, "meter_event_no_customer_defined", full.Data.Reason.Types[1].Code)
	require.EqualValues(t, 1, k.sim.Usage(cus, m, begin, begin.Add(time.Minute)))
}

func TestNoMeterAndArchivedMeter(t *testing.T) {
	t.Parallel()
	thins := listen(t)
	k := start(t, stripesim.Config{AsyncValidation: true, Webhooks: []stripesim.Webhook{{URL: thins.url, Secret: "whsec_thin", Thin: true}}})
	cus, m := k.customer(), k.meter("calls")
	_, err := k.api.BillingMeters.Deactivate(m, nil)
	require.NoError(t, err)
	k.send("calls", cus, 1, k.sim.Now(), "archived")
	k.send("nothing", cus, 1, k.sim.Now(), "unknown")
	k.advance(k.sim.Now().Add(time.Hour))
	codes := map[string]string{}
	for _, push := range thins.all() {
		var e thinEvent
		require.NoError(t, json.Unmarshal(push.body, &e))
		full, err := k.thin(e.ID, "2024-09-30.acacia")
		require.NoError(t, err)
		codes[e.Type+" "+e.Related.ID] = full.Data.Reason.Types[0].Code
	}
	require.Equal(t, map[string]string{
		"v1.billing.meter.error_report_triggered " + m: "archived_meter", "v1.billing.meter.no_meter_found ": "no_meter",
	}, codes)
}

// Facts 1.8 (!): three ways to name the rejected request.
func TestReportStyles(t *testing.T) {
	t.Parallel()
	for style, want := range map[stripesim.ReportStyle][3]bool{ // identifier is the event's, identifier is the key, key given
		stripesim.ReportIdentifier: {true, false, false}, stripesim.ReportIdempotencyKey: {false, true, false}, stripesim.ReportRequest: {false, false, true},
	} {
		thins := listen(t)
		k := start(t, stripesim.Config{ReportStyle: style, Webhooks: []stripesim.Webhook{{URL: thins.url, Secret: "s", Thin: true}}})
		cus := k.customer()
		k.meter("calls")
		k.sim.Faults().RejectMeterEvents("meter_event_invalid_value", 1, func(e stripesim.MeterEvent) bool { return e.Identifier == "id-1" })
		p := event("calls", cus, 1, k.sim.Now(), "id-1")
		p.SetIdempotencyKey("key-1")
		_, err := k.api.BillingMeterEvents.New(p)
		require.NoError(t, err)
		require.Equal(t, "meter_event_invalid_value", k.sim.MeterEvents()[0].Rejected)
		k.advance(k.sim.Now().Add(time.Hour))
		var e thinEvent
		require.NoError(t, json.Unmarshal(thins.all()[0].body, &e))
		full, err := k.thin(e.ID, basil)
		require.NoError(t, err)
		r := full.Data.Reason.Types[0].Samples[0].Request
		require.Equal(t, want, [3]bool{r.Identifier == "id-1", r.Identifier == "key-1", r.Key == "key-1"})
	}
}
