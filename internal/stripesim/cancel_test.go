package stripesim_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func last(k *kit, customer string) stripesim.Invoice {
	k.t.Helper()
	all := k.sim.Invoices(customer)
	require.NotEmpty(k.t, all)
	return all[len(all)-1]
}

// usageLine is the line of a meter on an invoice.
func usageLine(t *testing.T, inv stripesim.Invoice) stripesim.InvoiceLine {
	t.Helper()
	for _, l := range inv.Lines {
		if l.Meter != "" {
			return l
		}
	}
	require.Fail(t, "no metered line", "%+v", inv)
	return stripesim.InvoiceLine{}
}

// Facts 2.2: invoice_now defaults to false, and then the usage is gone.
func TestImmediateCancelDiscardsUsageByDefault(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.send("calls", p.customer, 100, k.sim.Now(), "")
	k.advance(k.sim.Now().Add(240 * time.Hour))
	sub, err := k.api.Subscriptions.Cancel(p.sub.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.SubscriptionStatusCanceled, sub.Status)
	require.Equal(t, k.sim.Now(), at(sub.EndedAt))
	k.advance(k.sim.Now().AddDate(0, 3, 0))
	require.Len(t, k.sim.Invoices(p.customer), 1)
	_, err = k.api.Subscriptions.Cancel(p.sub.ID, nil)
	refused(t, err, http.StatusNotFound)
}

// Facts 2.2: with invoice_now the usage is invoiced, and stays unpaid, since a
// cancellation stops automatic collection.
func TestImmediateCancelWithInvoiceNow(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	begin := k.sim.Now()
	k.send("calls", p.customer, 10000, begin, "")
	k.advance(begin.Add(240 * time.Hour))
	_, err := k.api.Subscriptions.Cancel(p.sub.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true)})
	require.NoError(t, err)
	inv := last(k, p.customer)
	require.Equal(t, "open", inv.Status)
	l := usageLine(t, inv)
	require.EqualValues(t, 10000, l.Quantity)
	require.Equal(t, k.sim.Now(), l.End)
	paid, err := k.api.Invoices.Pay(inv.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusPaid, paid.Status)
}

// Facts 2.2, case 11: cancel_at_period_end bills the last usage, then nothing
// follows; unsetting it restores the plan.
func TestCancelAtPeriodEnd(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	end := at(p.sub.CurrentPeriodEnd)
	set := func(v bool) *stripe.Subscription {
		sub, err := k.api.Subscriptions.Update(p.sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(v)})
		require.NoError(t, err)
		return sub
	}
	sub := set(true)
	require.True(t, sub.CancelAtPeriodEnd)
	require.Equal(t, end, at(sub.CancelAt))
	require.Equal(t, stripe.SubscriptionStatusActive, sub.Status)
	sub = set(false)
	require.False(t, sub.CancelAtPeriodEnd)
	require.Zero(t, sub.CancelAt)
	require.Zero(t, sub.CanceledAt)
	k.advance(end.Add(2 * time.Hour))
	require.Equal(t, stripe.SubscriptionStatusActive, k.subscription(p.sub.ID).Status)

	set(true)
	next := date("2026-03-01T00:00:00Z")
	k.send("calls", p.customer, 300, k.sim.Now(), "")
	k.advance(next)
	sub = k.subscription(p.sub.ID)
	require.Equal(t, stripe.SubscriptionStatusCanceled, sub.Status)
	require.Equal(t, next, at(sub.EndedAt))
	inv := last(k, p.customer)
	require.Equal(t, "draft", inv.Status)
	k.send("calls", p.customer, 30, next.Add(-time.Minute), "")
	k.send("calls", p.customer, 7000, next, "") // after the end: billed nowhere
	k.advance(next.AddDate(0, 6, 0))
	inv = last(k, p.customer)
	require.Len(t, inv.Lines, 1, "no licensed fee for a next period")
	require.EqualValues(t, 330, usageLine(t, inv).Quantity)
	require.Equal(t, next.Add(time.Hour), inv.FinalizedAt)
}

// Facts 2.2: flexible billing's portal sets cancel_at alone.
func TestPortalCancel(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	require.True(t, k.sim.PortalCancel(p.sub.ID))
	sub := k.subscription(p.sub.ID)
	require.True(t, sub.CancelAtPeriodEnd)
	require.Equal(t, sub.CurrentPeriodEnd, sub.CancelAt)
	require.True(t, k.sim.PortalRenew(p.sub.ID))
	require.Zero(t, k.subscription(p.sub.ID).CancelAt)

	k.flexible(p.sub.ID)
	require.True(t, k.sim.PortalCancel(p.sub.ID))
	sub = k.subscription(p.sub.ID)
	require.False(t, sub.CancelAtPeriodEnd)
	require.Equal(t, sub.CurrentPeriodEnd, sub.CancelAt)
	k.advance(at(sub.CancelAt))
	require.Equal(t, stripe.SubscriptionStatusCanceled, k.subscription(p.sub.ID).Status)
	require.False(t, k.sim.PortalCancel(p.sub.ID))
}

// flexible migrates a subscription to flexible billing.
func (k *kit) flexible(id string) {
	k.t.Helper()
	p := &stripe.SubscriptionParams{}
	p.Headers = http.Header{"Stripe-Version": {"2025-06-30.basil"}}
	p.AddExtra("billing_mode[type]", "flexible")
	require.NoError(k.t, k.be.Call(http.MethodPost, "/v1/subscriptions/"+id+"/migrate", k.sim.APIKey(), p, &stripe.Subscription{}))
}

// Facts 2.4: in classic billing an earlier cancel_at ends the period now and
// begins a new cycle; flexible billing keeps its anchor.
func TestCancelAtWithinThePeriod(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	classic, flexible := k.plan("calls"), k.plan("bytes")
	k.flexible(flexible.sub.ID)
	begin := k.sim.Now()
	mid, end := begin.Add(120*time.Hour), begin.Add(240*time.Hour)
	k.send("calls", classic.customer, 100, begin, "")
	k.send("bytes", flexible.customer, 100, begin, "")
	k.advance(mid)
	for _, id := range []string{classic.sub.ID, flexible.sub.ID} {
		_, err := k.api.Subscriptions.Update(id, &stripe.SubscriptionParams{CancelAt: stripe.Int64(end.Unix()), ProrationBehavior: stripe.String("none")})
		require.NoError(t, err)
	}
	sub := k.subscription(classic.sub.ID)
	require.Equal(t, [3]time.Time{mid, mid, end}, [3]time.Time{at(sub.BillingCycleAnchor), at(sub.CurrentPeriodStart), at(sub.CurrentPeriodEnd)})
	inv := last(k, classic.customer)
	require.Equal(t, "subscription_update", inv.Reason)
	require.Equal(t, "paid", inv.Status, "final at once")
	require.EqualValues(t, 100, usageLine(t, inv).Quantity)
	sub = k.subscription(flexible.sub.ID)
	require.Equal(t, [2]time.Time{begin, date("2026-02-01T00:00:00Z")}, [2]time.Time{at(sub.BillingCycleAnchor), at(sub.CurrentPeriodEnd)})
	require.Len(t, k.sim.Invoices(flexible.customer), 1)

	k.advance(end.Add(time.Hour))
	require.Zero(t, usageLine(t, last(k, classic.customer)).Quantity)
	l := usageLine(t, last(k, flexible.customer))
	require.EqualValues(t, 100, l.Quantity)
	require.Equal(t, end, l.End)
}

// Facts 2.2: deleting a customer cancels at once and for good.
func TestCustomerDeletion(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.advance(at(p.sub.CurrentPeriodEnd))
	_, err := k.api.Customers.Del(p.customer, nil)
	require.NoError(t, err)
	got, err := k.api.Customers.Get(p.customer, nil)
	require.NoError(t, err)
	require.True(t, got.Deleted)
	require.Equal(t, stripe.SubscriptionStatusCanceled, k.subscription(p.sub.ID).Status)
	_, err = k.api.BillingMeterEvents.New(event("calls", p.customer, 1, k.sim.Now(), ""))
	require.Contains(t, refused(t, err, 400).Msg, "No such customer")
	k.advance(k.sim.Now().AddDate(0, 2, 0))
	require.Equal(t, "draft", last(k, p.customer).Status, "the draft is never finalized")

	list := &stripe.SubscriptionListParams{Customer: stripe.String(p.customer)}
	require.False(t, k.api.Subscriptions.List(list).Next(), "canceled ones are not listed by default")
	list.Status = stripe.String("all")
	require.True(t, k.api.Subscriptions.List(list).Next())
}
