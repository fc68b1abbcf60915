package plans_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

func parse(t *testing.T, text string) *plans.Catalog {
	t.Helper()
	c, err := plans.Parse([]byte(text))
	require.NoError(t, err)
	return c
}

func TestACatalogDoesNotChangeUnderItsReaders(t *testing.T) {
	t.Parallel()
	c := load(t)
	before, err := json.Marshal(c)
	require.NoError(t, err)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				p, _ := c.Plan("scale")
				p.Prices()[0] = "stolen"
				p.Name = "other"
				q := p.Quotas()[0]
				q.WarnAt[0], q.Feature = 1, "other"
				q, _ = p.Quota("events")
				q.WarnAt[1] = 2
				c.Plans()[0] = p
				c.Features()[0].Meter = "other"
				c.Warnings()[0].Line = 0
				data, _ := c.MarshalJSON()
				data[0] = 'x'
			}
		})
	}
	wg.Wait()

	after, err := json.Marshal(c)
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
	require.NotEqual(t, 0, c.Warnings()[0].Line)
	q := quotaOf(t, c, "scale", "events")
	require.Equal(t, []int{80, 100}, q.WarnAt)
	_, ok := c.PlanForPrice("stolen")
	require.False(t, ok)
}

func TestTheHashIsOfTheMeaning(t *testing.T) {
	t.Parallel()
	base := file("", "", "    quota: {events: 10_000}")
	same := "# a comment\nplans: {free: {on_exceeded: block, warn_at: [80, 100], quota: {events: {included: 10000}}}}\n" +
		"features: {events: {meter: m}}\r\nquota_status: 402\ndefault_plan: free\n"
	require.Equal(t, parse(t, base).Hash(), parse(t, same).Hash())
	require.Equal(t, parse(t, base).Hash(), parse(t, "\ufeff"+base).Hash(), "a byte order mark")
	require.NotEqual(t, parse(t, base).Hash(), parse(t, strings.Replace(base, "10_000", "10_001", 1)).Hash())
	require.Len(t, parse(t, base).Hash(), 64)
}

func TestDiffNamesWhatDiffers(t *testing.T) {
	t.Parallel()
	a := parse(t, file("", "", "    quota: {events: 10_000}\n  a.b: {prices: [x]}"))
	b := parse(t, file("upgrade_url: https://a.example/", "  tokens: {}", "    quota: {events: 10_001}\n  a.b: {prices: [x], late: forgive}"))
	require.Equal(t, []string{
		"features.tokens.display_name", "features.tokens.meter", "features.tokens.position", "features.tokens.unit",
		`plans."a.b".late`, `plans."a.b".upgrade_url`,
		"plans.free.quota.events.included", "plans.free.upgrade_url", "upgrade_url",
	}, a.Diff(b))
	require.Equal(t, a.Diff(b), b.Diff(a))
	require.Empty(t, a.Diff(a))
}

func TestDefaultsOfAPlanReachItsQuotas(t *testing.T) {
	t.Parallel()
	c := parse(t, `
default_plan: free
currency: usd
shadow: true
features: {a: {meter: ma}, b: {meter: mb}}
plans:
  free: {}
  pro:
    prices: [pro]
    on_exceeded: bill_overage
    enforce: strict
    per: quantity
    warn_at: []
    when_database_away: unavailable
    on_upgrade: forgive
    early_end: fresh
    when_not_billable: allow
    late: invoice_item
    past_due_grace: 0s
    interval: quarter
    shadow: false
    quota:
      a: {included: 5, overage: {price: "1", max: 0}}
      b: {included: 5, on_exceeded: block, enforce: leases, per: subscription, warn_at: [7], when_database_away: continue}
`)
	require.True(t, c.DefaultPlan().Shadow)
	require.False(t, c.DefaultPlan().HasRate)
	_, ok := c.Anonymous()
	require.False(t, ok)

	pro, _ := c.Plan("pro")
	require.True(t, pro.ForgiveOnUpgrade)
	require.True(t, pro.FreshAfterEarlyEnd)
	require.False(t, pro.Shadow)
	require.Equal(t, plans.NotBillableAllow, pro.NotBillable)
	require.Equal(t, plans.LateInvoiceItem, pro.Late)
	require.Equal(t, time.Duration(0), pro.PastDueGrace)
	require.Equal(t, plans.Quarterly, pro.Interval)

	a, _ := pro.Quota("a")
	require.Equal(t, "100", a.Price.UnitAmountDecimal())
	a.Price = plans.Price{}
	require.Equal(t, plans.Quota{Feature: "a", Included: plans.Units(5), BillOverage: true, Strict: true, PerQuantity: true}, a)
	b, _ := pro.Quota("b")
	require.Equal(t, plans.Quota{Feature: "b", Included: plans.Units(5), WarnAt: []int{7}, ContinueWithoutDatabase: true}, b)
	require.Empty(t, c.Warnings(), "max: 0 is a maximum")
}

func TestWarningsHavePlaces(t *testing.T) {
	t.Parallel()
	c := parse(t, `default_plan: free
currency: usd
features: {a: {meter: ma}}
plans:
  free: {}
  orphan: {}
  pro:
    prices: [pro]
    on_exceeded: bill_overage
    quota: {a: {included: 5, overage: {price: "0", per: 10, max: unlimited}}}
  scale:
    prices: [scale]
    on_exceeded: bill_overage
    quota: {a: {included: 5, overage: {price: "0.40", per: 1000}}}
`)
	var got []string
	for _, w := range c.Warnings() {
		got = append(got, w.String())
	}
	require.Equal(t, []string{
		"6:3: plans.orphan: has no prices: no subscription selects this plan; add prices, or give it to accounts by an override",
		"10:40: plans.pro.quota.a.overage.price: is zero: overage is admitted and costs nothing",
		"14:30: plans.scale.quota.a.overage: has no max: overage is unlimited; write max: unlimited when that is meant, or a number of units",
		`14:30: plans.scale.quota.a.overage: costs 0.40 usd per 1000, in "pro" it is 0.00 usd per 10; ` +
			"use one price per meter: changing a subscription's metered price can lose its usage at Stripe",
	}, got)
}

func TestQuantityMultipliesTheQuota(t *testing.T) {
	t.Parallel()
	q := plans.Quota{Feature: "events", Included: plans.Units(1000), BillOverage: true, Max: plans.Units(500), PerQuantity: true}
	five, err := q.ForQuantity(5)
	require.NoError(t, err)
	require.Equal(t, plans.Units(5000), five.Included)
	require.Equal(t, plans.Units(2500), five.Max)
	require.Equal(t, plans.Units(7500), five.Ceiling())

	none, err := q.ForQuantity(0)
	require.NoError(t, err)
	require.Equal(t, plans.Units(0), none.Ceiling())

	for name, quantity := range map[string]int64{"negative": -1, "past what Stripe bills": 1_000_000_000_000, "past int64": 1 << 62} {
		_, err = q.ForQuantity(quantity)
		require.Error(t, err, name)
	}
	q.PerQuantity = false
	_, err = q.ForQuantity(5)
	require.ErrorContains(t, err, "per: quantity", "a conflict")
	one, err := q.ForQuantity(1)
	require.NoError(t, err)
	require.Equal(t, q.Included, one.Included)
}
