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

func (k *kit) update(id string, p *stripe.SubscriptionParams) *stripe.Subscription {
	k.t.Helper()
	sub, err := k.api.Subscriptions.Update(id, p)
	require.NoError(k.t, err)
	return sub
}

func swap(item, price string) *stripe.SubscriptionParams {
	return &stripe.SubscriptionParams{
		Items:             []*stripe.SubscriptionItemsParams{{ID: stripe.String(item), Price: stripe.String(price)}},
		ProrationBehavior: stripe.String("none"),
	}
}

// Facts 2.4 and 8.17: classic billing drops what was used before a metered price
// was swapped, and grace usage with it; flexible billing bills each stretch.
func TestSwappedMeteredPrice(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	classic, flexible := k.plan("calls"), k.plan("bytes")
	k.flexible(flexible.sub.ID)
	begin := k.sim.Now()
	end := at(classic.sub.CurrentPeriodEnd)
	for name, p := range map[string]plan{"calls": classic, "bytes": flexible} {
		k.send(name, p.customer, 1000, begin, "")
	}
	mid := begin.Add(240 * time.Hour)
	k.advance(mid)
	dearer := map[string]string{}
	for name, p := range map[string]plan{"calls": classic, "bytes": flexible} {
		dearer[name] = k.metered(p.product, p.meter, 1)
		k.update(p.sub.ID, swap(itemOf(t, p.sub, p.usage), dearer[name]))
		k.send(name, p.customer, 7, mid.Add(time.Minute), "")
	}
	k.advance(end.Add(time.Minute))
	k.send("calls", classic.customer, 500, end.Add(-time.Minute), "") // in the grace period
	k.advance(end.Add(time.Hour))

	l := usageLine(t, last(k, classic.customer))
	require.EqualValues(t, 7, l.Quantity)
	require.Equal(t, mid, l.Start)
	require.Equal(t, dearer["calls"], l.Price)
	lines := map[string]int64{}
	for _, l := range last(k, flexible.customer).Lines {
		if l.Meter != "" {
			lines[l.Price] = l.Quantity
		}
	}
	require.Equal(t, map[string]int64{flexible.usage: 1000, dearer["bytes"]: 7}, lines)
	k.advance(date("2026-03-01T01:00:00Z"))
	require.Zero(t, usageLine(t, last(k, classic.customer)).Quantity, "the grace period's usage is on no invoice")
}

// Facts 2.4: a metered item bills what is used after it was added.
func TestMeteredItemAddedWithinThePeriod(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	sub := k.subscribe(p.customer, p.base)
	k.send("calls", p.customer, 1000, k.sim.Now(), "")
	mid := k.sim.Now().Add(100 * time.Hour)
	k.advance(mid)
	it, err := k.api.SubscriptionItems.New(&stripe.SubscriptionItemParams{Subscription: stripe.String(sub.ID), Price: stripe.String(p.usage)})
	require.NoError(t, err)
	require.Equal(t, mid, at(it.Created))
	k.send("calls", p.customer, 8, mid, "")
	k.advance(at(sub.CurrentPeriodEnd).Add(time.Hour))
	require.EqualValues(t, 8, usageLine(t, last(k, p.customer)).Quantity)
	k.advance(date("2026-03-01T01:00:00Z"))
	require.Equal(t, at(sub.CurrentPeriodEnd), usageLine(t, last(k, p.customer)).Start)
}

// Facts 2.4: removing a metered item loses its usage in classic billing, and
// makes an invoice item in flexible billing unless prorations are off.
func TestRemovedMeteredItem(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flexible bool
		prorate  string
		billed   int64
	}{{false, "create_prorations", 0}, {true, "create_prorations", 10000}, {true, "none", 0}} {
		k := start(t, stripesim.Config{})
		p := k.plan("calls")
		if tc.flexible {
			k.flexible(p.sub.ID)
		}
		k.send("calls", p.customer, 10000, k.sim.Now(), "")
		k.advance(k.sim.Now().Add(time.Hour))
		_, err := k.api.SubscriptionItems.Del(itemOf(t, p.sub, p.usage), &stripe.SubscriptionItemParams{ProrationBehavior: stripe.String(tc.prorate)})
		require.NoError(t, err)
		require.Len(t, k.subscription(p.sub.ID).Items.Data, 1)
		k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))
		var billed int64
		for _, l := range last(k, p.customer).Lines {
			if l.Price == p.usage {
				billed += l.Quantity
			}
		}
		require.Equal(t, tc.billed, billed)
	}
}

// Facts 2.4: an upgrade of the licensed item leaves usage and anchor alone.
func TestUpgradeOfTheBaseItem(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	pro := k.licensed(p.product, 4000)
	k.send("calls", p.customer, 1000, k.sim.Now(), "")
	half := k.sim.Now().Add(372 * time.Hour) // of January's 744
	k.advance(half)
	change := swap(itemOf(t, p.sub, p.base), pro)
	change.ProrationBehavior = stripe.String("always_invoice")
	sub := k.update(p.sub.ID, change)
	require.Equal(t, p.sub.CurrentPeriodEnd, sub.CurrentPeriodEnd)
	inv := last(k, p.customer)
	require.Equal(t, "subscription_update", inv.Reason)
	require.Equal(t, "paid", inv.Status)
	require.EqualValues(t, -500+2000, inv.Total)
	require.True(t, inv.Lines[0].Proration)
	k.advance(at(sub.CurrentPeriodEnd).Add(time.Hour))
	inv = last(k, p.customer)
	require.EqualValues(t, 4000+40, inv.Total)
	require.EqualValues(t, 1000, usageLine(t, inv).Quantity)
}

// Facts 2.4: anchor now ends the period and starts another.
func TestAnchorNow(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.send("calls", p.customer, 100, k.sim.Now(), "")
	now := k.sim.Now().Add(100 * time.Hour)
	k.advance(now)
	sub := k.update(p.sub.ID, &stripe.SubscriptionParams{BillingCycleAnchorNow: stripe.Bool(true), ProrationBehavior: stripe.String("none")})
	require.Equal(t, [2]time.Time{now, now.AddDate(0, 1, 0)}, [2]time.Time{at(sub.CurrentPeriodStart), at(sub.CurrentPeriodEnd)})
	inv := last(k, p.customer)
	require.Equal(t, "paid", inv.Status)
	require.EqualValues(t, 100, usageLine(t, inv).Quantity)
	require.Equal(t, now, usageLine(t, inv).End)
	require.EqualValues(t, 1000+4, inv.Total)
}

// Facts 2.4: a switch to another interval resets a classic cycle.
func TestIntervalChangeResetsAClassicCycle(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product := k.product()
	monthly := k.licensed(product, 1000)
	yearly := k.price(product, stripe.PriceParams{UnitAmount: stripe.Int64(9000), Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("year")}})
	sub := k.subscribe(k.customer(), monthly)
	now := k.sim.Now().Add(100 * time.Hour)
	k.advance(now)
	sub = k.update(sub.ID, swap(sub.Items.Data[0].ID, yearly))
	require.Equal(t, [2]time.Time{now, now.AddDate(1, 0, 0)}, [2]time.Time{at(sub.BillingCycleAnchor), at(sub.CurrentPeriodEnd)})
	require.EqualValues(t, 9000, last(k, sub.Customer.ID).Total)
}

// Facts 2.5: mixed intervals want flexible billing; each item has its own
// period, and older versions show the smallest on top.
func TestYearlyPriceWithMonthlyUsage(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-01-31T10:00:00Z")})
	product, cus, m := k.product(), k.customer(), k.meter("calls")
	yearly := k.price(product, stripe.PriceParams{UnitAmount: stripe.Int64(9000), Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("year")}})
	usage := k.metered(product, m, 1)
	p := &stripe.SubscriptionParams{Customer: stripe.String(cus), Items: items(yearly, usage)}
	_, err := k.api.Subscriptions.New(p)
	require.Contains(t, refused(t, err, 400).Msg, "recurring.interval")

	p.Headers = http.Header{"Stripe-Version": {"2025-09-30.clover"}}
	sub, err := k.api.Subscriptions.New(p)
	require.NoError(t, err)
	var raw struct {
		Mode  struct{ Type string } `json:"billing_mode"`
		Items struct {
			Data []struct {
				Price struct{ ID string }
				End   int64 `json:"current_period_end"`
			}
		}
	}
	require.NoError(t, json.Unmarshal(sub.LastResponse.RawJSON, &raw))
	require.Equal(t, "flexible", raw.Mode.Type, "the default since clover")
	ends := map[string]time.Time{}
	for _, it := range raw.Items.Data {
		ends[it.Price.ID] = at(it.End)
	}
	require.Equal(t, map[string]time.Time{yearly: date("2027-01-31T10:00:00Z"), usage: date("2026-02-28T10:00:00Z")}, ends)
	require.Equal(t, date("2026-02-28T10:00:00Z"), at(k.subscription(sub.ID).CurrentPeriodEnd))
	require.Len(t, last(k, cus).Lines, 1, "flexible billing shows no zero line at first")

	var quantities []int64
	for i := range 12 {
		end := at(k.subscription(sub.ID).CurrentPeriodEnd)
		k.advance(end.Add(-time.Minute))
		k.send("calls", cus, int64(i+1), end.Add(-time.Minute), "")
		k.advance(end.Add(time.Hour))
		inv := last(k, cus)
		quantities = append(quantities, usageLine(t, inv).Quantity)
		require.Equal(t, i == 11, len(inv.Lines) == 2, "the yearly fee comes with the twelfth")
	}
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, quantities)
	require.Equal(t, date("2027-02-28T10:00:00Z"), at(k.subscription(sub.ID).CurrentPeriodEnd))
}

// Facts 2.4, 8.20 and 2.5: what a subscription refuses.
func TestRefusedItems(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	oneTime, err := k.api.Prices.New(&stripe.PriceParams{Product: stripe.String(p.product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(5)})
	require.NoError(t, err)
	archived := k.licensed(p.product, 7)
	_, err = k.api.Prices.Update(archived, &stripe.PriceParams{Active: stripe.Bool(false)})
	require.NoError(t, err)
	euro, err := k.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(p.product), Currency: stripe.String("eur"), UnitAmount: stripe.Int64(5), Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
	})
	require.NoError(t, err)
	for name, list := range map[string][]*stripe.SubscriptionItemsParams{
		"the same price twice": items(p.usage, p.usage), "one-time": items(oneTime.ID), "archived": items(archived), "none": nil,
		"two currencies": items(p.base, euro.ID), "unknown": items("price_none"),
		"quantity on a metered price": {{Price: stripe.String(p.usage), Quantity: stripe.Int64(2)}},
	} {
		_, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{Customer: stripe.String(p.customer), Items: list})
		require.Error(t, err, name)
		refused(t, err, 400)
	}
	require.Empty(t, k.sim.Invoices(p.customer))

	q := &stripe.SubscriptionParams{Customer: stripe.String(p.customer), Items: items(p.base)}
	q.AddExtra("billing_mode[type]", "flexible")
	_, err = k.api.Subscriptions.New(q)
	require.Equal(t, stripe.ErrorCodeParameterUnknown, refused(t, err, 400).Code, "not before 2025-06-30.basil")
}

// Case 41c: quantities on licensed items.
func TestQuantity(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: []*stripe.SubscriptionItemsParams{{Price: stripe.String(p.base), Quantity: stripe.Int64(5)}},
	})
	require.NoError(t, err)
	require.EqualValues(t, 5, sub.Items.Data[0].Quantity)
	require.EqualValues(t, 5000, last(k, p.customer).Total)
	it, err := k.api.SubscriptionItems.Update(sub.Items.Data[0].ID, &stripe.SubscriptionItemParams{Quantity: stripe.Int64(2), ProrationBehavior: stripe.String("none")})
	require.NoError(t, err)
	require.EqualValues(t, 2, it.Quantity)
	k.advance(at(sub.CurrentPeriodEnd).Add(time.Hour))
	require.EqualValues(t, 2000, last(k, p.customer).Total)
}

// Facts 2.4: backdating picks up usage recorded before the subscription.
func TestBackdating(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-01-20T00:00:00Z")})
	p := k.catalog("calls")
	k.send("calls", p.customer, 50, date("2026-01-12T00:00:00Z"), "")
	k.send("calls", p.customer, 9, date("2026-01-09T00:00:00Z"), "")
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: items(p.usage), BackdateStartDate: stripe.Int64(date("2026-01-10T00:00:00Z").Unix()),
	})
	require.NoError(t, err)
	require.Equal(t, date("2026-02-10T00:00:00Z"), at(sub.CurrentPeriodEnd))
	k.advance(date("2026-02-10T01:00:00Z"))
	require.EqualValues(t, 50, usageLine(t, last(k, p.customer)).Quantity)
}

func TestFutureAnchor(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-01-16T12:00:00Z")})
	p := k.catalog("calls")
	anchor := date("2026-02-01T00:00:00Z")
	sub, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: items(p.base, p.usage), BillingCycleAnchor: stripe.Int64(anchor.Unix()),
	})
	require.NoError(t, err)
	require.Equal(t, anchor, at(sub.CurrentPeriodEnd))
	require.EqualValues(t, 500, last(k, p.customer).Total, "half of January")
	k.advance(anchor)
	require.Equal(t, date("2026-03-01T00:00:00Z"), at(k.subscription(sub.ID).CurrentPeriodEnd))
}
