package main

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

// shop is an installation whose plan file was pushed to Stripe.
func shop(t *testing.T) *place {
	t.Helper()
	p := newFile(t)
	p.stripe(stripesim.Config{})
	p.do("plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	require.Contains(t, p.do("plans", "check"), "Stripe has what the plan file says")
	return p
}

func TestCheckLooksAtAFileAlone(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	_, err := p.fails(exitUsage, "plans", "check")
	require.ErrorContains(t, err, "set STRIPE_API_KEY, or say --no-stripe")
	require.Contains(t, p.do("plans", "check", "--no-stripe"), "is valid; it was not compared")
	require.JSONEq(t, "[]", p.do("--json", "plans", "check", "--no-stripe"))
	require.NoError(t, os.WriteFile(p.env["WEIR_PLANS"], []byte(strings.Replace(testPlans, "quota", "qouta", 1)), 0o600))
	_, err = p.fails(exitUsage, "plans", "check", "--no-stripe")
	require.ErrorContains(t, err, "qouta")
}

// kinds are the differences that plans check finds.
func (p *place) kinds() []string {
	p.Helper()
	out, _, err := p.run("--json", "plans", "check")
	if err != nil {
		require.Equal(p, exitDisagree, exitCode(err), err)
	}
	var all []billing.Difference
	require.NoError(p, json.Unmarshal([]byte(out), &all), out)
	var kinds []string
	for _, d := range all {
		require.NotEmpty(p, d.Next)
		kinds = append(kinds, d.Kind)
	}
	return kinds
}

func writes(calls []stripesim.Call) int {
	n := 0
	for _, c := range calls {
		if c.Method != http.MethodGet {
			n++
		}
	}
	return n
}

func TestPushMakesWhatTheFileNeedsOnce(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	p.stripe(stripesim.Config{})
	require.ElementsMatch(t, []string{"meter_missing", "price_missing"}, p.kinds())

	out, err := p.fails(exitDisagree, "plans", "push", "--price", "pro_monthly=49.00/month")
	require.ErrorContains(t, err, "--yes")
	require.Zero(t, writes(p.sim.Calls()), "without --yes nothing is made")
	for _, text := range []string{"meter weir_events_overage", "0.40 usd per 1000 (0.04 minor units each)", "price pro_monthly of plan pro: 49.00 usd"} {
		require.Contains(t, out, text)
	}
	p.do("plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	require.Equal(t, 5, writes(p.sim.Calls()), "a meter, two products, two prices")
	require.Empty(t, p.kinds())

	p.do("plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	require.Contains(t, p.do("plans", "push", "--yes"), "nothing is to be made")
	require.Equal(t, 5, writes(p.sim.Calls()), "the second push makes nothing")

	// Another price in the file is another object; the old one stays as it is.
	file := p.env["WEIR_PLANS"]
	text := strings.Replace(testPlans, `price: "0.40"`, `price: "0.50"`, 1)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	require.ElementsMatch(t, []string{"overage_price_missing", "overage_price_amount"}, p.kinds())
	p.do("plans", "push", "--yes")
	require.Equal(t, 6, writes(p.sim.Calls()))
	require.Equal(t, []string{"overage_price_amount"}, p.kinds())
	for _, c := range p.sim.Calls() {
		require.True(t, c.Method == http.MethodGet || slices.Contains([]string{"/v1/billing/meters", "/v1/products", "/v1/prices"}, c.Path), "%s %s changes what is there", c.Method, c.Path)
	}
}

func TestPushGoesOnWhereItWasBrokenOff(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	p.stripe(stripesim.Config{})
	// The meter is made, and its answer lost; then the price is refused.
	p.sim.Faults().Inject(stripesim.Match{Method: http.MethodPost, Path: "/v1/billing/meters$", Count: 1}, stripesim.ExecuteAndFail(500))
	p.mustFail(exitFailed, "plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	p.sim.Faults().Inject(stripesim.Match{Method: http.MethodPost, Path: "/v1/prices$", Count: 1}, stripesim.Unavailable(503))
	p.mustFail(exitFailed, "plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	p.do("plans", "push", "--price", "pro_monthly=49.00/month", "--yes")
	require.Empty(t, p.kinds())
	n := 0
	it := p.sim.API.BillingMeters.List(&stripe.BillingMeterListParams{})
	for it.Next() {
		n++
	}
	require.Equal(t, 1, n)
}

func TestPushRefusesWhatItCannotMean(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	_, err := p.fails(exitUsage, "plans", "push", "--yes")
	require.ErrorContains(t, err, "STRIPE_API_KEY")
	p.stripe(stripesim.Config{APIKey: "sk_live_simulator"})
	_, err = p.fails(exitUsage, "plans", "push", "--yes")
	require.ErrorContains(t, err, "--live")
	for _, bad := range []string{"pro_monthly=49.00", "pro_monthly=49.00/week", "pro_monthly=free/month", "other=1.00/month"} {
		p.mustFail(exitUsage, "plans", "push", "--yes", "--live", "--price", bad)
	}
	_, err = p.fails(exitDisagree, "plans", "push", "--yes", "--live")
	require.ErrorContains(t, err, "1 places", "the plan's own price needs an amount")
	require.Equal(t, 3, writes(p.sim.Calls()))
}

// Each kind of drift is found by its name.
func TestCheckFindsEachDrift(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drift func(t *testing.T, p *place)
		want  []string
	}{
		"archived meter": {func(t *testing.T, p *place) { p.deactivate(p.meter()) }, []string{"meter_archived"}},
		"count meter":    {func(t *testing.T, p *place) { p.remake("count", "") }, []string{"meter_aggregation", "overage_price_missing"}},
		"daily meter":    {func(t *testing.T, p *place) { p.remake("sum", "day") }, []string{"meter_window", "overage_price_missing"}},
		"archived overage price": {func(t *testing.T, p *place) { p.archive("weir_events_overage_0.04_usd") },
			[]string{"overage_price_missing"}},
		"archived plan price": {func(t *testing.T, p *place) { p.archive("pro_monthly") }, []string{"price_archived"}},
		"moved lookup key": {func(t *testing.T, p *place) {
			_, err := p.sim.API.Prices.Update(p.price("pro_monthly"), &stripe.PriceParams{LookupKey: stripe.String("old")})
			require.NoError(t, err)
		}, []string{"price_missing"}},
		"archived product": {func(t *testing.T, p *place) {
			_, err := p.sim.API.Products.Update("weir_plan_pro", &stripe.ProductParams{Active: stripe.Bool(false)})
			require.NoError(t, err)
		}, []string{"product_archived"}},
		"another unit price": {func(t *testing.T, p *place) {
			p.metered(func(m *stripe.PriceParams) { m.UnitAmountDecimal = stripe.Float64(0.05) })
		},
			[]string{"overage_price_amount"}},
		"another currency": {func(t *testing.T, p *place) {
			p.metered(func(m *stripe.PriceParams) { m.Currency = stripe.String("eur") })
		},
			[]string{"overage_price_currency"}},
		"divided quantities": {func(t *testing.T, p *place) {
			p.metered(func(m *stripe.PriceParams) {
				m.TransformQuantity = &stripe.PriceTransformQuantityParams{DivideBy: stripe.Int64(1000), Round: stripe.String("up")}
			})
		}, []string{"overage_price_transform"}},
		"a free first tier": {func(t *testing.T, p *place) { p.metered(tiered(0, 0.04)) }, []string{"overage_price_free_tier"}},
		"tiers":             {func(t *testing.T, p *place) { p.metered(tiered(0.04, 0.02)) }, []string{"overage_price_tiers"}},
		"a metered price selects the plan": {func(t *testing.T, p *place) {
			p.archive("pro_monthly")
			_, err := p.sim.API.Prices.Update(p.price("pro_monthly"), &stripe.PriceParams{LookupKey: stripe.String("old")})
			require.NoError(t, err)
			p.metered(func(m *stripe.PriceParams) { m.LookupKey = stripe.String("pro_monthly") })
		}, []string{"price_metered"}},
		"a price that is charged once": {func(t *testing.T, p *place) {
			_, err := p.sim.API.Prices.New(&stripe.PriceParams{
				Currency: stripe.String("usd"), UnitAmount: stripe.Int64(4900), Product: stripe.String("weir_plan_pro"),
				LookupKey: stripe.String("pro_monthly"), TransferLookupKey: stripe.Bool(true),
			})
			require.NoError(t, err)
		}, []string{"price_once"}},
		"an id that does not exist": {func(t *testing.T, p *place) { p.names("price_1Missing") }, []string{"price_missing"}},
		"an id of the other mode": {func(t *testing.T, p *place) {
			p.names("price_1Live")
			p.sim.Faults().Inject(stripesim.Match{Path: "/v1/prices/price_1Live"},
				stripesim.Refuse("No such price: 'price_1Live'; a similar object exists in live mode, but a test mode key was used to make this request.", "resource_missing"))
		}, []string{"mode"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := shop(t)
			p.T = t
			c.drift(t, p)
			require.ElementsMatch(t, c.want, p.kinds())
		})
	}
}

// What is legal, and perhaps not meant, is a warning, and exit code 0.
func TestCheckWarnsOfWhatTheFileLeavesOut(t *testing.T) {
	t.Parallel()
	p := shop(t)
	text := strings.Replace(testPlans, `overage: {price: "0.40", per: 1000, max: 5_000_000}`, "overage: {max: unlimited}", 1)
	require.NotEqual(t, testPlans, text)
	require.NoError(t, os.WriteFile(p.env["WEIR_PLANS"], []byte(text), 0o600))
	require.ElementsMatch(t, []string{"file_price", "file_max"}, p.kinds())
	p.do("plans", "check")
}

func tiered(first, then float64) func(*stripe.PriceParams) {
	return func(m *stripe.PriceParams) {
		m.UnitAmountDecimal = nil
		m.BillingScheme, m.TiersMode = stripe.String("tiered"), stripe.String("graduated")
		m.Tiers = []*stripe.PriceTierParams{
			{UpTo: stripe.Int64(1000), UnitAmountDecimal: stripe.Float64(first)}, {UpToInf: stripe.Bool(true), UnitAmountDecimal: stripe.Float64(then)},
		}
	}
}

// meter is the id of the active meter.
func (p *place) meter() string {
	p.Helper()
	it := p.sim.API.BillingMeters.List(&stripe.BillingMeterListParams{Status: stripe.String("active")})
	require.True(p, it.Next())
	return it.BillingMeter().ID
}

func (p *place) deactivate(id string) {
	p.Helper()
	_, err := p.sim.API.BillingMeters.Deactivate(id, &stripe.BillingMeterDeactivateParams{})
	require.NoError(p, err)
}

// remake replaces the meter by another one.
func (p *place) remake(formula, window string) {
	p.Helper()
	p.deactivate(p.meter())
	m := &stripe.BillingMeterParams{
		DisplayName: stripe.String("x"), EventName: stripe.String("weir_events_overage"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: &formula},
	}
	if window != "" {
		m.EventTimeWindow = &window
	}
	_, err := p.sim.API.BillingMeters.New(m)
	require.NoError(p, err)
}

func (p *place) price(key string) string {
	p.Helper()
	it := p.sim.API.Prices.List(&stripe.PriceListParams{LookupKeys: []*string{&key}})
	require.True(p, it.Next())
	return it.Price().ID
}

func (p *place) archive(key string) {
	p.Helper()
	_, err := p.sim.API.Prices.Update(p.price(key), &stripe.PriceParams{Active: stripe.Bool(false)})
	require.NoError(p, err)
}

// metered adds a metered price to the meter.
func (p *place) metered(change func(*stripe.PriceParams)) {
	p.Helper()
	m := &stripe.PriceParams{
		Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04), Product: stripe.String("weir_meter_weir_events_overage"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(p.meter())},
	}
	change(m)
	_, err := p.sim.API.Prices.New(m)
	require.NoError(p, err)
}

// names adds a price to the plan in the file.
func (p *place) names(price string) {
	p.Helper()
	text := strings.Replace(testPlans, "[pro_monthly]", "[pro_monthly, "+price+"]", 1)
	require.NoError(p, os.WriteFile(p.env["WEIR_PLANS"], []byte(text), 0o600))
}
