package stripesim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func (k *kit) trial(p *plan, days int64) {
	k.t.Helper()
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: items(p.base, p.usage), TrialPeriodDays: stripe.Int64(days),
	})
	require.NoError(k.t, err)
	p.sub = sub
}

func (k *kit) catalog(event string) plan {
	p := plan{product: k.product(), customer: k.customer(), meter: k.meter(event)}
	p.base, p.usage = k.licensed(p.product, 1000), k.metered(p.product, p.meter, 0.04)
	return p
}

// Facts 2.3: a trial's metered line shows the usage and bills 0; the trial's end
// is the end of every period and the new anchor.
func TestTrial(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	k.trial(&p, 14)
	begin := k.sim.Now()
	end := begin.AddDate(0, 0, 14)
	require.Equal(t, stripe.SubscriptionStatusTrialing, p.sub.Status)
	require.Equal(t, [3]time.Time{end, end, end}, [3]time.Time{at(p.sub.TrialEnd), at(p.sub.CurrentPeriodEnd), at(p.sub.BillingCycleAnchor)})
	require.Zero(t, last(k, p.customer).Total)
	require.Equal(t, "paid", last(k, p.customer).Status)

	k.send("calls", p.customer, 500, begin, "")
	k.advance(end.Add(time.Hour))
	sub := k.subscription(p.sub.ID)
	require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
	require.Equal(t, date("2026-02-15T00:00:00Z"), at(sub.CurrentPeriodEnd))
	inv := last(k, p.customer)
	l := usageLine(t, inv)
	require.True(t, l.Free)
	require.EqualValues(t, 500, l.Quantity)
	require.Zero(t, l.Amount)
	require.EqualValues(t, 1000, inv.Total)
	got, err := k.api.Invoices.Get(inv.ID, nil)
	require.NoError(t, err)
	require.Equal(t, "Free trial for 500 × API calls", lineOf(t, got, p.usage).Description)
	require.Contains(t, eventTypes(k), "customer.subscription.trial_will_end")
}

func eventTypes(k *kit) []string {
	var out []string
	for it := k.api.Events.List(&stripe.EventListParams{}); it.Next(); {
		out = append(out, string(it.Event().Type))
	}
	return out
}

// Facts 2.3: ended now, billing starts at that instant.
func TestTrialEndedNow(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	k.trial(&p, 14)
	k.send("calls", p.customer, 500, k.sim.Now(), "")
	k.advance(k.sim.Now().Add(48 * time.Hour))
	sub, err := k.api.Subscriptions.Update(p.sub.ID, &stripe.SubscriptionParams{TrialEndNow: stripe.Bool(true)})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
	require.Equal(t, k.sim.Now(), at(sub.CurrentPeriodStart))
	require.Equal(t, k.sim.Now().AddDate(0, 1, 0), at(sub.CurrentPeriodEnd))
	inv := last(k, p.customer)
	require.Equal(t, "paid", inv.Status)
	require.EqualValues(t, 1000, inv.Total)
	k.send("calls", p.customer, 100, k.sim.Now(), "")
	k.advance(at(sub.CurrentPeriodEnd).Add(time.Hour))
	require.EqualValues(t, 100, usageLine(t, last(k, p.customer)).Quantity)
}

func TestTrialExtended(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	k.trial(&p, 14)
	later := k.sim.Now().AddDate(0, 0, 20)
	sub, err := k.api.Subscriptions.Update(p.sub.ID, &stripe.SubscriptionParams{TrialEnd: stripe.Int64(later.Unix())})
	require.NoError(t, err)
	require.Equal(t, later, at(sub.CurrentPeriodEnd))
	k.advance(later.Add(-time.Second))
	require.Equal(t, stripe.SubscriptionStatusTrialing, k.subscription(p.sub.ID).Status)
	k.advance(later)
	require.Equal(t, stripe.SubscriptionStatusActive, k.subscription(p.sub.ID).Status)
}

// Facts 2.3: a trial without a way to pay may pause; paused makes no invoices,
// and resuming begins a new cycle.
func TestTrialEndsPaused(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: items(p.base, p.usage), TrialPeriodDays: stripe.Int64(7),
		TrialSettings: &stripe.SubscriptionTrialSettingsParams{EndBehavior: &stripe.SubscriptionTrialSettingsEndBehaviorParams{MissingPaymentMethod: stripe.String("pause")}},
	})
	require.NoError(t, err)
	k.sim.DeclinePayments(p.customer, true)
	k.advance(at(sub.TrialEnd))
	require.Contains(t, eventTypes(k), "customer.subscription.paused")
	k.advance(k.sim.Now().AddDate(0, 3, 0))
	require.Equal(t, stripe.SubscriptionStatusPaused, k.subscription(sub.ID).Status)
	require.Len(t, k.sim.Invoices(p.customer), 1)
	k.sim.DeclinePayments(p.customer, false)
	back, err := k.api.Subscriptions.Resume(sub.ID, &stripe.SubscriptionResumeParams{})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, back.Status)
	require.Equal(t, k.sim.Now(), at(back.CurrentPeriodStart))
	require.EqualValues(t, 1000, last(k, p.customer).Total)
}

// Facts 2.3: pause_collection leaves the status and changes what becomes of the
// invoices.
func TestPauseCollection(t *testing.T) {
	t.Parallel()
	for behavior, want := range map[string]string{"keep_as_draft": "draft", "void": "void", "mark_uncollectible": "uncollectible"} {
		t.Run(behavior, func(t *testing.T) {
			t.Parallel()
			k := start(t, stripesim.Config{})
			p := k.plan("calls")
			end := at(p.sub.CurrentPeriodEnd)
			sub, err := k.api.Subscriptions.Update(p.sub.ID, &stripe.SubscriptionParams{
				PauseCollection: &stripe.SubscriptionPauseCollectionParams{Behavior: stripe.String(behavior), ResumesAt: stripe.Int64(end.Add(2 * time.Hour).Unix())},
			})
			require.NoError(t, err)
			require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
			require.Equal(t, behavior, string(sub.PauseCollection.Behavior))
			k.advance(end.Add(time.Hour))
			inv := last(k, p.customer)
			require.Equal(t, want, inv.Status)
			got, err := k.api.Invoices.Get(inv.ID, nil)
			require.NoError(t, err)
			require.Zero(t, got.AutomaticallyFinalizesAt)
			k.advance(end.Add(2 * time.Hour))
			require.Nil(t, k.subscription(p.sub.ID).PauseCollection)
			k.advance(date("2026-03-01T01:00:00Z"))
			require.Equal(t, "paid", last(k, p.customer).Status)
		})
	}
}

// Facts 2.3: past_due keeps cycling; unpaid makes invoices that go nowhere;
// paying restores.
func TestPaymentStates(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	end := at(p.sub.CurrentPeriodEnd)
	k.sim.DeclinePayments(p.customer, true)
	k.advance(end.Add(time.Hour))
	require.Equal(t, stripe.SubscriptionStatusPastDue, k.subscription(p.sub.ID).Status)
	failed := last(k, p.customer)
	require.Equal(t, "open", failed.Status)
	require.Contains(t, eventTypes(k), "invoice.payment_failed")

	k.send("calls", p.customer, 100, k.sim.Now(), "")
	require.True(t, k.sim.ForceStatus(p.sub.ID, "unpaid"))
	k.advance(date("2026-03-01T02:00:00Z"))
	draft := last(k, p.customer)
	require.Equal(t, "draft", draft.Status)
	require.EqualValues(t, 100, usageLine(t, draft).Quantity)
	require.Zero(t, draft.FinalizesAt)

	_, err := k.api.Invoices.Pay(failed.ID, nil)
	refused(t, err, http.StatusPaymentRequired)
	k.sim.DeclinePayments(p.customer, false)
	_, err = k.api.Invoices.Pay(failed.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, k.subscription(p.sub.ID).Status)
	k.advance(date("2026-04-01T01:00:00Z"))
	require.Equal(t, "paid", last(k, p.customer).Status)
}

// Facts 2.3: incomplete expires after 23 hours, for good.
func TestIncomplete(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	k.sim.DeclinePayments(p.customer, true)
	sub := k.subscribe(p.customer, p.base)
	require.Equal(t, stripe.SubscriptionStatusIncomplete, sub.Status)
	k.advance(k.sim.Now().Add(23*time.Hour - time.Second))
	require.Equal(t, stripe.SubscriptionStatusIncomplete, k.subscription(sub.ID).Status)
	k.advance(k.sim.Now().Add(time.Second))
	require.Equal(t, stripe.SubscriptionStatusIncompleteExpired, k.subscription(sub.ID).Status)
	require.Equal(t, "void", last(k, p.customer).Status)
	require.False(t, k.sim.ForceStatus(sub.ID, "active"))

	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(k.customer()), Items: items(p.base), PaymentBehavior: stripe.String("default_incomplete"),
	})
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusIncomplete, sub.Status)
	_, err = k.api.Invoices.Pay(sub.LatestInvoice.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusActive, k.subscription(sub.ID).Status)
}

func TestForcedStatuses(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	for _, status := range []string{"past_due", "unpaid", "paused", "active", "canceled"} {
		require.True(t, k.sim.ForceStatus(p.sub.ID, status))
		require.Equal(t, status, string(k.subscription(p.sub.ID).Status))
	}
	got := eventTypes(k)
	require.Contains(t, got, "customer.subscription.paused")
	require.Contains(t, got, "customer.subscription.resumed")
	require.Equal(t, "customer.subscription.deleted", got[0])
	require.Len(t, k.sim.Invoices(p.customer), 1)
	require.False(t, k.sim.ForceStatus(p.sub.ID, "active"), "it has ended")
	require.False(t, k.sim.ForceStatus("sub_none", "active"))
	require.False(t, k.sim.ForceStatus(k.subscribe(p.customer, p.base).ID, "nonsense"))
}
