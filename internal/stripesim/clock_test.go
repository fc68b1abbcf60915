package stripesim_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"

	"github.com/weirhq/weir/internal/stripesim"
)

type sharedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *sharedClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *sharedClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// Case 4: between ticks the simulator is late, as Stripe may be; a tick catches
// up in order, each thing at its own time.
func TestTickFollowsASharedClock(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	clock := &sharedClock{now: date("2026-01-01T00:00:00Z")}
	k := start(t, stripesim.Config{Clock: clock, Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "s", Events: []string{"invoice.created", "invoice.finalized"}}}})
	require.Error(t, k.sim.Advance(t.Context(), clock.Now().Add(time.Hour)))
	p := k.plan("calls")
	end := at(p.sub.CurrentPeriodEnd)
	require.NoError(t, k.sim.Tick(t.Context()))
	opening := len(rec.all())

	clock.set(end.Add(7 * time.Minute))
	require.Equal(t, end, at(k.subscription(p.sub.ID).CurrentPeriodEnd), "not renewed yet")
	require.NoError(t, k.sim.Tick(t.Context()))
	require.Equal(t, end, at(k.subscription(p.sub.ID).CurrentPeriodStart))
	draft := last(k, p.customer)
	require.Equal(t, end, draft.Created)
	require.Equal(t, end.Add(time.Hour), draft.FinalizesAt)

	clock.set(end.AddDate(0, 2, 0))
	require.NoError(t, k.sim.Tick(t.Context()))
	all := k.sim.Invoices(p.customer)
	require.Len(t, all, 4)
	require.Equal(t, end.Add(time.Hour), all[1].FinalizedAt)
	require.Equal(t, date("2026-03-01T01:00:00Z"), all[2].FinalizedAt)
	require.Equal(t, "draft", all[3].Status)
	require.Equal(t, []string{"invoice.created", "invoice.finalized", "invoice.created", "invoice.finalized", "invoice.created"}, types(t, rec, "s")[opening:])
	// What is delivered now is signed now, else a receiver on the same clock
	// would refuse it as old.
	newest := rec.all()[len(rec.all())-1]
	header := newest.header.Get("Stripe-Signature")
	require.NoError(t, webhook.ValidatePayloadIgnoringTolerance(newest.body, header, "s"))
	require.Contains(t, header, "t=1775001600,")
}

// A call that changes a subscription whose renewal is overdue finds it renewed.
func TestOverdueRenewalComesBeforeAChange(t *testing.T) {
	t.Parallel()
	clock := &sharedClock{now: date("2026-01-01T00:00:00Z")}
	k := start(t, stripesim.Config{Clock: clock})
	p := k.plan("calls")
	k.send("calls", p.customer, 40, clock.Now(), "")
	end := at(p.sub.CurrentPeriodEnd)
	clock.set(end.Add(7 * time.Minute))
	sub := k.update(p.sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
	require.Equal(t, end, at(sub.CurrentPeriodStart))
	require.Equal(t, date("2026-03-01T00:00:00Z"), at(sub.CancelAt))
	require.EqualValues(t, 40, usageLine(t, last(k, p.customer)).Quantity)
	clock.set(date("2026-03-01T00:00:00Z"))
	_, err := k.api.Subscriptions.Cancel(p.sub.ID, nil)
	refused(t, err, 404)
	require.NoError(t, k.sim.Tick(t.Context()))
	require.Len(t, k.sim.Invoices(p.customer), 3)
}

func TestTimeDoesNotRunBackwards(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	require.Error(t, k.sim.Advance(t.Context(), k.sim.Now().Add(-time.Second)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, k.sim.Advance(ctx, k.sim.Now().Add(time.Second)), context.Canceled)
}

// Run is for a demo: it delivers as events arise.
func TestRunDeliversInTheBackground(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	clock := &sharedClock{now: date("2026-01-01T00:00:00Z")}
	k := start(t, stripesim.Config{Clock: clock, Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "s"}}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- k.sim.Run(ctx, time.Hour) }()
	p := k.plan("calls")
	require.Eventually(t, func() bool { return len(rec.all()) >= 8 }, 10*time.Second, time.Millisecond)
	clock.set(at(p.sub.CurrentPeriodEnd))
	k.customer() // stirs it
	require.Eventually(t, func() bool { return last(k, p.customer).Status == "draft" }, 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

func TestTheSameSeedGivesTheSameIDs(t *testing.T) {
	t.Parallel()
	run := func(seed uint64) string {
		k := start(t, stripesim.Config{Seed: seed})
		return k.plan("calls").sub.ID
	}
	require.Equal(t, run(7), run(7))
	require.NotEqual(t, run(7), run(8))
}

func TestNewPanicsOnAConfigThatCannotWork(t *testing.T) {
	t.Parallel()
	for _, cfg := range []stripesim.Config{
		{GracePeriod: 73 * time.Hour}, {DefaultVersion: "latest"}, {Webhooks: []stripesim.Webhook{{URL: "http://x"}}}, {SummaryLag: -1}, {HistorySize: -1},
	} {
		require.Panics(t, func() { stripesim.New(cfg) })
	}
}
