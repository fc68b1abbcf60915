package stripesim_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// Facts 1.4 and 5: the two kinds of 429.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	k.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: "/v1/customers", Count: 1}, stripesim.RateLimited("endpoint-concurrency"))
	_, err := k.api.Customers.New(&stripe.CustomerParams{})
	e := refused(t, err, 429)
	require.Equal(t, stripe.ErrorCodeRateLimit, e.Code)
	require.Equal(t, "endpoint-concurrency", e.LastResponse.Header.Get("Stripe-Rate-Limited-Reason"))

	k.sim.Faults().Inject(stripesim.Match{Path: "/v1/customers", Count: 1}, stripesim.LockTimeout())
	_, err = k.api.Customers.New(&stripe.CustomerParams{})
	e = refused(t, err, 429)
	require.Equal(t, stripe.ErrorCodeLockTimeout, e.Code)
	require.Empty(t, e.LastResponse.Header.Get("Stripe-Rate-Limited-Reason"))
	k.sim.Faults().Inject(stripesim.Match{Count: 1}, stripesim.RateLimited("global-rate").WithHeader("Retry-After", "7"))
	_, err = k.api.Customers.New(&stripe.CustomerParams{})
	require.Equal(t, "7", refused(t, err, 429).LastResponse.Header.Get("Retry-After"))
	k.customer()
}

// Facts 5: the event was accepted, and the caller cannot know.
func TestAnswersThatGetLost(t *testing.T) {
	t.Parallel()
	for name, effect := range map[string]stripesim.Effect{
		"dropped": stripesim.DropAnswer(), "truncated": stripesim.Truncate(), "cut": stripesim.CutBody(), "500": stripesim.ExecuteAndFail(500),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := start(t, stripesim.Config{})
			cus := k.customer()
			m := k.meter("calls")
			now := k.sim.Now()
			// net/http sends once more by itself on a reused connection; a
			// second hit covers that.
			k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, When: func(c stripesim.Call) bool { return c.IdempotencyKey == "a" }}, effect)
			p := event("calls", cus, 5, now, "id-1")
			p.SetIdempotencyKey("a")
			_, err := k.api.BillingMeterEvents.New(p)
			require.Error(t, err)
			require.EqualValues(t, 5, k.sim.Usage(cus, m, now, now.Add(time.Minute)))

			p = event("calls", cus, 5, now, "id-1")
			p.SetIdempotencyKey("b")
			_, err = k.api.BillingMeterEvents.New(p)
			require.Contains(t, refused(t, err, 400).Msg, "already exists")
			require.EqualValues(t, 5, k.sim.Usage(cus, m, now, now.Add(time.Minute)))
		})
	}
}

func TestTruncatedJSONIsNoStripeError(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	k.sim.Faults().Inject(stripesim.Match{Count: 1}, stripesim.Truncate())
	_, err := k.api.Customers.New(&stripe.CustomerParams{})
	require.Error(t, err)
	require.False(t, is(err, 200))
	require.True(t, strings.Contains(err.Error(), "JSON") || strings.Contains(err.Error(), "unexpected end"), err.Error())
}

func TestSkipCountAndWhen(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	fault := k.sim.Faults().Inject(stripesim.Match{Path: "/v1/customers", Skip: 1, Count: 2}, stripesim.Unavailable(503))
	var got []bool
	for range 5 {
		_, err := k.api.Customers.New(&stripe.CustomerParams{})
		got = append(got, err == nil)
	}
	require.Equal(t, []bool{true, false, false, true, true}, got)
	require.Equal(t, 2, fault.Hits())

	k.sim.Faults().Inject(stripesim.Match{}, stripesim.Unavailable(503))
	_, err := k.api.Customers.New(&stripe.CustomerParams{})
	refused(t, err, 503)
	k.sim.Faults().Clear()
	k.customer()
}

func TestStallAfterHoldsTheAnswerOfAnExecutedCall(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus, m := k.customer(), k.meter("calls")
	now := k.sim.Now()
	stall := k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, Count: 1}, stripesim.StallAfter(0))
	done := make(chan error, 1)
	go func() {
		_, err := k.api.BillingMeterEvents.New(event("calls", cus, 5, now, "id-1"))
		done <- err
	}()
	require.NoError(t, stall.Wait(t.Context(), 1))
	require.Eventually(t, func() bool { return k.sim.Usage(cus, m, now, now.Add(time.Minute)) == 5 }, 5*time.Second, time.Millisecond)
	require.Empty(t, done)
	stall.Release()
	require.NoError(t, <-done)
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	k.customer()
	k.sim.RollKey("sk_test_new")
	_, err := k.api.Customers.New(&stripe.CustomerParams{})
	e := refused(t, err, 401)
	require.NotContains(t, e.Msg, "sk_test_simulator")
	require.Contains(t, e.Msg, "Invalid API Key")
}

func TestRequestIDAndDate(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-05-01T10:00:00Z")})
	c, err := k.api.Customers.New(&stripe.CustomerParams{})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(c.LastResponse.RequestID, "req_"))
	require.Equal(t, "Fri, 01 May 2026 10:00:00 GMT", c.LastResponse.Header.Get("Date"))
	k.sim.SkewDate(6 * time.Minute)
	c, err = k.api.Customers.New(&stripe.CustomerParams{})
	require.NoError(t, err)
	require.Equal(t, "Fri, 01 May 2026 10:06:00 GMT", c.LastResponse.Header.Get("Date"))
}

// Facts 1.4 and 2.7.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	k := start(t, stripesim.Config{Limits: stripesim.RateLimits{Account: 30, Endpoint: 25, MeterEvents: 3, Now: func() time.Time { return now }}})
	fails := func(n int, call func() error) (reasons []string) {
		for range n {
			if err := call(); err != nil {
				reasons = append(reasons, refused(t, err, 429).LastResponse.Header.Get("Stripe-Rate-Limited-Reason"))
			}
		}
		return reasons
	}
	create := func() error { _, err := k.api.Customers.New(&stripe.CustomerParams{}); return err }
	list := func() error { return k.api.Products.List(&stripe.ProductListParams{}).Err() }
	send := func() error {
		_, err := k.api.BillingMeterEvents.New(event("calls", "cus_x", 1, k.sim.Now(), ""))
		if is(err, 429) {
			return err
		}
		return nil
	}
	require.Equal(t, []string{"endpoint-rate"}, fails(26, create))
	require.Equal(t, []string{"global-rate"}, fails(6, list))
	require.Equal(t, []string{"endpoint-rate"}, fails(4, send), "meter events are counted apart")
	now = now.Add(time.Second)
	require.Empty(t, fails(25, create))
}

// Facts 1.4 (!): one call at a time per customer and meter.
func TestOneCallPerCustomerAndMeter(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Limits: stripesim.RateLimits{OnePerCustomerAndMeter: true}})
	one, two := k.customer(), k.customer()
	k.meter("calls")
	k.meter("bytes")
	stall := k.sim.Faults().Inject(stripesim.Match{Path: meterEvents, Count: 1}, stripesim.StallAfter(0))
	done := make(chan error, 1)
	go func() {
		_, err := k.api.BillingMeterEvents.New(event("calls", one, 1, k.sim.Now(), ""))
		done <- err
	}()
	require.NoError(t, stall.Wait(t.Context(), 1))
	require.Eventually(t, func() bool { return len(k.sim.MeterEvents()) == 1 }, 5*time.Second, time.Millisecond)
	_, err := k.api.BillingMeterEvents.New(event("calls", one, 1, k.sim.Now(), ""))
	require.Equal(t, "endpoint-concurrency", refused(t, err, 429).LastResponse.Header.Get("Stripe-Rate-Limited-Reason"))
	k.send("bytes", one, 1, k.sim.Now(), "")
	k.send("calls", two, 1, k.sim.Now(), "")
	stall.Release()
	require.NoError(t, <-done)
	k.send("calls", one, 1, k.sim.Now(), "")
}

func TestCallLog(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{HistorySize: 5})
	for range 40 {
		k.customer()
	}
	_, err := k.api.Subscriptions.Get("sub_none", nil)
	require.Equal(t, stripe.ErrorCodeResourceMissing, refused(t, err, http.StatusNotFound).Code)
	log := k.sim.Calls()
	require.Len(t, log, 5)
	last := log[4]
	require.Equal(t, []any{"GET", "/v1/subscriptions/sub_none", "GET /v1/subscriptions/{id}", 404}, []any{last.Method, last.Path, last.Pattern, last.Status})
	require.NotEmpty(t, log[3].IdempotencyKey, "stripe-go makes one for each POST")

	res, err := http.Get(k.url + "/v1/nonsense")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
}
