package stripesim_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// Facts 1.1: uniqueness of identifiers within a rolling 24 hours.
func TestDuplicateIdentifierIsA400WithoutCode(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	now := k.sim.Now()
	k.send("calls", cus, 5, now, "id-1")

	_, err := k.api.BillingMeterEvents.New(event("calls", cus, 5, now, "id-1"))
	e := refused(t, err, http.StatusBadRequest)
	require.Equal(t, "An event already exists with identifier id-1.", e.Msg)
	require.Empty(t, e.Code)
	require.Equal(t, stripe.ErrorTypeInvalidRequest, e.Type)
	require.Equal(t, "false", e.LastResponse.Header.Get("Stripe-Should-Retry"))
	require.Len(t, k.sim.MeterEvents(), 1)
}

// Facts 1.1 and pitfall 3: after 24 hours the same identifier counts again.
func TestIdentifierIsForgottenAfter24Hours(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	sent := k.sim.Now()
	k.send("calls", cus, 5, sent, "id-1")

	k.advance(sent.Add(24*time.Hour - time.Second))
	_, err := k.api.BillingMeterEvents.New(event("calls", cus, 5, sent, "id-1"))
	refused(t, err, http.StatusBadRequest)

	k.advance(sent.Add(24 * time.Hour))
	k.send("calls", cus, 5, sent, "id-1")
	require.EqualValues(t, 10, k.sim.Usage(cus, m, sent, sent.Add(time.Minute)))
}

// Facts 1.1: the same Idempotency-Key replays, a new one is checked against the
// identifier.
func TestSameIdempotencyKeyReplaysTheEvent(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	now := k.sim.Now()
	p := event("calls", cus, 5, now, "id-1")
	p.SetIdempotencyKey("key-1")
	first, err := k.api.BillingMeterEvents.New(p)
	require.NoError(t, err)
	again, err := k.api.BillingMeterEvents.New(p)
	require.NoError(t, err)
	require.Equal(t, first.Identifier, again.Identifier)
	require.Equal(t, "true", again.LastResponse.Header.Get("Idempotent-Replayed"))
	require.EqualValues(t, 5, k.sim.Usage(cus, m, now, now.Add(time.Minute)))
}

// Facts 1.3: within the past 35 days, at most 5 minutes ahead.
func TestTimestampWindow(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	now := k.sim.Now()
	for _, ok := range []time.Time{now.Add(-35 * 24 * time.Hour), now.Add(5 * time.Minute)} {
		k.send("calls", cus, 1, ok, "")
	}
	_, err := k.api.BillingMeterEvents.New(event("calls", cus, 1, now.Add(-35*24*time.Hour-time.Second), ""))
	e := refused(t, err, http.StatusBadRequest)
	require.Equal(t, "The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to 1764201600.", e.Msg)
	_, err = k.api.BillingMeterEvents.New(event("calls", cus, 1, now.Add(5*time.Minute+time.Second), ""))
	refused(t, err, http.StatusBadRequest)
}

// Facts 1.2: integers in every edition; more than 15 digits are refused.
func TestValues(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	now := k.sim.Now()
	for value, ok := range map[string]bool{
		"1": true, "0": true, "-3": true, "999999999999999": true, "000000000000000000007": true,
		"1000000000000000": false, "-1000000000000000": false, "1.5": false, "1e+06": false, "": false, "abc": false, "+5": false, " 5": false, "-": false,
	} {
		_, err := k.api.BillingMeterEvents.New(&stripe.BillingMeterEventParams{
			EventName: stripe.String("calls"), Timestamp: stripe.Int64(now.Unix()),
			Payload: map[string]string{"stripe_customer_id": cus, "value": value},
		})
		if ok {
			require.NoError(t, err, "value %q", value)
			continue
		}
		require.Error(t, err, "value %q", value)
		refused(t, err, http.StatusBadRequest)
	}
	require.EqualValues(t, 1-3+999999999999999+7, k.sim.Usage(cus, m, now, now.Add(time.Second)))
}

// Facts 1.4: the refusals that users see, without a code.
func TestSynchronousRefusals(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	now := k.sim.Now()

	_, err := k.api.BillingMeterEvents.New(event("calls", "cus_unknown", 1, now, ""))
	e := refused(t, err, http.StatusBadRequest)
	require.Equal(t, "No such customer: 'cus_unknown'", e.Msg)
	require.Empty(t, e.Code)

	_, err = k.api.BillingMeterEvents.New(event("other", cus, 1, now, ""))
	require.Equal(t, `No active meter found for event name "other"`, refused(t, err, http.StatusBadRequest).Msg)

	_, err = k.api.BillingMeters.Deactivate(m, nil)
	require.NoError(t, err)
	_, err = k.api.BillingMeterEvents.New(event("calls", cus, 1, now, ""))
	require.Equal(t, `No active meter found for event name "calls"`, refused(t, err, http.StatusBadRequest).Msg)

	_, err = k.api.BillingMeterEvents.New(event(strings.Repeat("n", 101), cus, 1, now, ""))
	refused(t, err, http.StatusBadRequest)
	_, err = k.api.BillingMeterEvents.New(event("calls", cus, 1, now, strings.Repeat("i", 101)))
	refused(t, err, http.StatusBadRequest)
	require.Empty(t, k.sim.MeterEvents())
}

// Facts 1.6: an adjustment cancels an event within 24 hours of its receipt.
func TestAdjustmentCancelsWithin24Hours(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	now := k.sim.Now()
	k.send("calls", cus, 5, now, "old")
	k.advance(now.Add(23 * time.Hour))
	k.send("calls", cus, 7, now, "new")
	k.advance(now.Add(25 * time.Hour))
	cancel := func(id string) error {
		_, err := k.api.BillingMeterEventAdjustments.New(&stripe.BillingMeterEventAdjustmentParams{
			Type: stripe.String("cancel"), EventName: stripe.String("calls"),
			Cancel: &stripe.BillingMeterEventAdjustmentCancelParams{Identifier: stripe.String(id)},
		})
		return err
	}
	refused(t, cancel("old"), http.StatusBadRequest)
	require.NoError(t, cancel("new"))
	require.EqualValues(t, 5, k.sim.Usage(cus, m, now, now.Add(time.Minute)))
}

// Facts 1.5: all but the display name is immutable; event names are unique among
// active meters; lists page.
func TestMeters(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	first := k.meter("calls")
	_, err := k.api.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("x"), EventName: stripe.String("calls"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	refused(t, err, http.StatusBadRequest)
	_, err = k.api.BillingMeters.Deactivate(first, nil)
	require.NoError(t, err)
	second := k.meter("calls")
	_, err = k.api.BillingMeters.Reactivate(first, nil)
	refused(t, err, http.StatusBadRequest)

	got, err := k.api.BillingMeters.Get(second, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.BillingMeterStatusActive, got.Status)
	require.Equal(t, "stripe_customer_id", got.CustomerMapping.EventPayloadKey)
	require.Equal(t, "value", got.ValueSettings.EventPayloadKey)
	require.Equal(t, stripe.BillingMeterDefaultAggregationFormulaSum, got.DefaultAggregation.Formula)

	p := &stripe.BillingMeterParams{}
	p.AddExtra("event_name", "other")
	_, err = k.api.BillingMeters.Update(second, p)
	require.Equal(t, stripe.ErrorCodeParameterUnknown, refused(t, err, http.StatusBadRequest).Code)

	for i := range 120 {
		k.meter("meter-" + strconv.Itoa(i))
	}
	list := &stripe.BillingMeterListParams{}
	list.Limit = stripe.Int64(100)
	seen := map[string]bool{}
	for it := k.api.BillingMeters.List(list); it.Next(); {
		seen[it.BillingMeter().ID] = true
	}
	require.Len(t, seen, 122)
}
