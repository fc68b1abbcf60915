package stripesim_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func at(v int64) time.Time { return time.Unix(v, 0).UTC() }

// Case 1: boundaries come from the anchor, so the 31st returns after February.
func TestAnchorAtTheEndOfAMonth(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2027-01-31T10:00:00Z")})
	p := k.plan("calls")
	for _, want := range []string{
		"2027-02-28", "2027-03-31", "2027-04-30", "2027-05-31", "2027-06-30", "2027-07-31", "2027-08-31", "2027-09-30",
		"2027-10-31", "2027-11-30", "2027-12-31", "2028-01-31", "2028-02-29", "2028-03-31",
	} {
		sub := k.subscription(p.sub.ID)
		end := at(sub.CurrentPeriodEnd)
		require.Equal(t, date(want+"T10:00:00Z"), end)
		k.advance(end)
		require.Equal(t, end, at(k.subscription(p.sub.ID).CurrentPeriodStart))
	}
}

// Facts 2.1: in arrears on the invoice of the period's end, a draft for an hour,
// read again at finalization.
func TestRenewalBillsLastPeriodsUsageAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	begin := at(p.sub.CurrentPeriodStart)
	end := at(p.sub.CurrentPeriodEnd)
	require.Equal(t, date("2026-02-01T00:00:00Z"), end)

	first := k.sim.Invoices(p.customer)
	require.Len(t, first, 1)
	require.Equal(t, "paid", first[0].Status, "the first invoice is final at once")
	require.EqualValues(t, 1000, first[0].Total)

	k.send("calls", p.customer, 1000, begin, "")
	k.advance(end.Add(-time.Second))
	k.send("calls", p.customer, 500, end.Add(-time.Second), "")
	k.advance(end)
	k.send("calls", p.customer, 9, end, "") // the next period's

	list, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusDraft, list.Status)
	require.Equal(t, stripe.InvoiceBillingReasonSubscriptionCycle, list.BillingReason)
	require.Equal(t, end.Add(time.Hour), at(list.AutomaticallyFinalizesAt))
	require.Equal(t, begin, at(list.PeriodStart))
	require.Equal(t, end, at(list.PeriodEnd))
	usage := lineOf(t, list, p.usage)
	require.EqualValues(t, 1500, usage.Quantity)
	require.EqualValues(t, 60, usage.Amount)
	require.Equal(t, begin, at(usage.Period.Start))
	require.Equal(t, end, at(usage.Period.End))
	require.Equal(t, p.sub.ID, usage.Subscription.ID)
	require.Equal(t, itemOf(t, p.sub, p.usage), usage.SubscriptionItem.ID)
	fee := lineOf(t, list, p.base)
	require.Equal(t, end, at(fee.Period.Start))
	require.Equal(t, date("2026-03-01T00:00:00Z"), at(fee.Period.End))
	require.EqualValues(t, 1060, list.Total)

	k.advance(end.Add(59 * time.Minute))
	k.send("calls", p.customer, 200, end.Add(-time.Minute), "") // within the grace period
	k.advance(end.Add(time.Hour))
	k.send("calls", p.customer, 4000, end.Add(-time.Minute), "") // late: on no invoice

	final, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusPaid, final.Status)
	require.True(t, final.Paid)
	require.Zero(t, final.AutomaticallyFinalizesAt)
	require.EqualValues(t, 1700, lineOf(t, final, p.usage).Quantity)
	require.Equal(t, end.Add(time.Hour), at(final.StatusTransitions.FinalizedAt))

	k.advance(date("2026-03-01T01:00:00Z"))
	next, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.EqualValues(t, 9, lineOf(t, next, p.usage).Quantity, "late usage is on the next invoice neither")
}

// Facts 1.2 and 2.6: a negative total bills zero, and the rest is not carried.
func TestNegativeUsageBillsZero(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.send("calls", p.customer, 5, k.sim.Now(), "")
	k.send("calls", p.customer, -8, k.sim.Now(), "")
	k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))
	inv, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.Zero(t, lineOf(t, inv, p.usage).Quantity)
	k.send("calls", p.customer, 10, k.sim.Now(), "")
	k.advance(date("2026-03-01T01:00:00Z"))
	inv, err = lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.EqualValues(t, 10, lineOf(t, inv, p.usage).Quantity)
}

// Facts 3: before basil periods are on top, from basil on on the items alone;
// invoices and lines name their parents elsewhere.
func TestShapesByVersion(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.advance(at(p.sub.CurrentPeriodEnd))

	old := k.subscription(p.sub.ID)
	require.NotZero(t, old.CurrentPeriodEnd)
	require.Equal(t, "2024-06-20", old.LastResponse.Header.Get("Stripe-Version"))

	q := &stripe.SubscriptionParams{}
	q.Headers = http.Header{"Stripe-Version": {basil}}
	new, err := k.api.Subscriptions.Get(p.sub.ID, q)
	require.NoError(t, err)
	require.Zero(t, new.CurrentPeriodStart)
	require.Zero(t, new.CurrentPeriodEnd)
	var raw struct {
		Items struct {
			Data []struct {
				Start int64 `json:"current_period_start"`
				End   int64 `json:"current_period_end"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(new.LastResponse.RawJSON, &raw))
	for _, it := range raw.Items.Data {
		require.Equal(t, old.CurrentPeriodStart, it.Start)
		require.Equal(t, old.CurrentPeriodEnd, it.End)
	}

	inv, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	iq := &stripe.InvoiceParams{}
	iq.Headers = http.Header{"Stripe-Version": {basil}}
	got, err := k.api.Invoices.Get(inv.ID, iq)
	require.NoError(t, err)
	require.Nil(t, got.Subscription)
	require.Nil(t, got.Lines.Data[0].Price)
	require.Nil(t, got.Lines.Data[0].Subscription)
	var body struct {
		Parent struct {
			Details struct{ Subscription string } `json:"subscription_details"`
		}
		Lines struct {
			Data []struct {
				Pricing struct {
					Details struct{ Price, Product string } `json:"price_details"`
				}
				Parent struct {
					Details struct {
						Subscription string
						Item         string `json:"subscription_item"`
					} `json:"subscription_item_details"`
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(got.LastResponse.RawJSON, &body))
	require.Equal(t, p.sub.ID, body.Parent.Details.Subscription)
	prices := map[string]string{}
	for _, l := range body.Lines.Data {
		require.Equal(t, p.sub.ID, l.Parent.Details.Subscription)
		require.Equal(t, p.product, l.Pricing.Details.Product)
		prices[l.Pricing.Details.Price] = l.Parent.Details.Item
	}
	require.Equal(t, map[string]string{p.base: itemOf(t, p.sub, p.base), p.usage: itemOf(t, p.sub, p.usage)}, prices)
}

// Facts 8.19 and 8.20: usage is per customer and meter, so every item with a
// price on the meter bills all of it.
func TestTwoSubscriptionsOnOneMeterBothBillTheUsage(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	other := k.subscribe(p.customer, p.usage)
	k.send("calls", p.customer, 100, k.sim.Now(), "")
	k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))
	for _, id := range []string{p.sub.ID, other.ID} {
		inv, err := lastInvoice(k, id)
		require.NoError(t, err)
		require.EqualValues(t, 100, lineOf(t, inv, p.usage).Quantity)
	}
}

// Facts 8.21: events without any metered item are accepted and never invoiced.
func TestUsageWithoutASubscriptionIsAcceptedAndNeverBilled(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	k.meter("calls")
	k.send("calls", cus, 100, k.sim.Now(), "")
	k.advance(k.sim.Now().AddDate(0, 2, 0))
	require.Empty(t, k.sim.Invoices(cus))
}

func lastInvoice(k *kit, sub string) (*stripe.Invoice, error) {
	p := &stripe.InvoiceListParams{Subscription: stripe.String(sub)}
	p.Limit, p.Single = stripe.Int64(1), true
	it := k.api.Invoices.List(p)
	if !it.Next() {
		return nil, it.Err()
	}
	return it.Invoice(), nil
}

func lineOf(t *testing.T, inv *stripe.Invoice, price string) *stripe.InvoiceLineItem {
	t.Helper()
	for _, l := range inv.Lines.Data {
		if l.Price != nil && l.Price.ID == price {
			return l
		}
	}
	require.Fail(t, "no line", "invoice %s has no line of price %s", inv.ID, price)
	return nil
}

func itemOf(t *testing.T, sub *stripe.Subscription, price string) string {
	t.Helper()
	for _, it := range sub.Items.Data {
		if it.Price.ID == price {
			return it.ID
		}
	}
	require.Fail(t, "no item", "subscription %s has no item of price %s", sub.ID, price)
	return ""
}
