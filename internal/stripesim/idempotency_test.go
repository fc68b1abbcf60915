package stripesim_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

const meterEvents = "/v1/billing/meter_events"

// sender sends one event with a key, as often as asked.
func sender(k *kit, customer, identifier string) func(key string) (*stripe.BillingMeterEvent, error) {
	now := k.sim.Now()
	return func(key string) (*stripe.BillingMeterEvent, error) {
		p := event("calls", customer, 5, now, identifier)
		p.SetIdempotencyKey(key)
		return k.api.BillingMeterEvents.New(p)
	}
}

// Facts 5: the first status and body are kept once execution began, a 500 and a
// 400 too; a new key escapes them.
func TestKeptAnswers(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	send := sender(k, cus, "id-1")

	k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, Count: 1}, stripesim.FailAndKeep(500))
	_, err := send("key-1")
	refused(t, err, 500)
	_, err = send("key-1")
	e := refused(t, err, 500)
	require.Equal(t, "true", e.LastResponse.Header.Get("Idempotent-Replayed"))
	require.Empty(t, k.sim.MeterEvents())
	_, err = send("key-2")
	require.NoError(t, err)
	_, err = send("key-3")
	first := refused(t, err, 400)
	require.Contains(t, first.Msg, "already exists")
	k.advance(k.sim.Now().Add(23 * time.Hour))
	_, err = send("key-3")
	again := refused(t, err, 400)
	require.Equal(t, first.Msg, again.Msg)
	require.NotEqual(t, first.RequestID, again.RequestID)
	require.Equal(t, first.RequestID, again.LastResponse.Header.Get("Original-Request"))

	// After 24 hours everything is forgotten: a blind retry counts twice.
	k.advance(k.sim.Now().Add(time.Hour))
	_, err = send("key-2")
	require.NoError(t, err)
	require.Len(t, k.sim.MeterEvents(), 2)
}

// Facts 5: refusals before execution are not kept.
func TestRefusalsBeforeExecutionAreNotKept(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	send := sender(k, cus, "id-1")
	for status, effect := range map[int]stripesim.Effect{
		401: stripesim.Unauthorized(), 403: stripesim.Forbidden(), 429: stripesim.LockTimeout(), 503: stripesim.Unavailable(503),
	} {
		k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, Count: 1}, effect)
		_, err := send("key-1")
		refused(t, err, status)
	}
	_, err := send("key-1")
	require.NoError(t, err)

	p := &stripe.CustomerParams{}
	p.AddExtra("nonsense", "1")
	p.SetIdempotencyKey("key-4")
	_, err = k.api.Customers.New(p)
	require.Equal(t, stripe.ErrorCodeParameterUnknown, refused(t, err, 400).Code)
	q := &stripe.CustomerParams{}
	q.SetIdempotencyKey("key-4")
	_, err = k.api.Customers.New(q)
	require.NoError(t, err, "the key is free")
}

func TestSameKeyWithOtherParametersIsRefused(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	_, err := sender(k, cus, "id-1")("key-1")
	require.NoError(t, err)
	_, err = sender(k, cus, "id-2")("key-1")
	e := refused(t, err, 400)
	require.Equal(t, stripe.ErrorTypeIdempotency, e.Type)
	require.Len(t, k.sim.MeterEvents(), 1)
}

// Facts 5: concurrent use of a key is a 409, while the first call is under way,
// even when its caller has left.
func TestConcurrentUseOfAKey(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	send := sender(k, cus, "id-1")
	stall := k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, Count: 1}, stripesim.StallBefore(0))

	ctx, leave := context.WithCancel(t.Context())
	p := event("calls", cus, 5, k.sim.Now(), "id-1")
	p.SetIdempotencyKey("key-1")
	p.Context = ctx
	left := make(chan error, 1)
	go func() {
		_, err := k.api.BillingMeterEvents.New(p)
		left <- err
	}()
	require.NoError(t, stall.Wait(t.Context(), 1))
	require.Eventually(t, func() bool { _, err := send("key-1"); return is(err, 409) }, 5*time.Second, time.Millisecond)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.Empty(t, k.sim.MeterEvents())

	stall.Release()
	require.Eventually(t, func() bool { _, err := send("key-1"); return err == nil }, 5*time.Second, time.Millisecond)
	require.Len(t, k.sim.MeterEvents(), 1, "the abandoned call was executed")
}

func is(err error, status int) bool {
	var e *stripe.Error
	return errors.As(err, &e) && e.HTTPStatusCode == status
}

// Facts 5: only POST has idempotency keys.
func TestGetIgnoresIdempotencyKeys(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	one, two := k.customer(), k.customer()
	for _, id := range []string{one, two} {
		p := &stripe.CustomerParams{}
		p.Headers = http.Header{"Idempotency-Key": {"same"}}
		got, err := k.api.Customers.Get(id, p)
		require.NoError(t, err)
		require.Equal(t, id, got.ID)
	}
}

func TestTheOldestAnswersAreForgottenAtTheBound(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{MaxIdempotencyKeys: 2})
	make := func(key string) string {
		p := &stripe.CustomerParams{}
		p.SetIdempotencyKey(key)
		c, err := k.api.Customers.New(p)
		require.NoError(t, err)
		return c.ID
	}
	first := make("1")
	require.Equal(t, first, make("1"))
	make("2")
	make("3")
	make("4")
	require.NotEqual(t, first, make("1"))
}
