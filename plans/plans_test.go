package plans_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

const designFile = "../testdata/plans.yaml"

func load(t *testing.T) *plans.Catalog {
	t.Helper()
	c, err := plans.Load(designFile)
	require.NoError(t, err)
	return c
}

func quotaOf(t *testing.T, c *plans.Catalog, plan, feature string) plans.Quota {
	t.Helper()
	p, ok := c.Plan(plan)
	require.True(t, ok)
	q, ok := p.Quota(feature)
	require.True(t, ok)
	return q
}

func TestTheFileOfTheDesignIsRead(t *testing.T) {
	t.Parallel()
	c := load(t)

	require.Equal(t, "usd", c.Currency())
	require.Equal(t, "free", c.DefaultPlan().Name)
	require.Equal(t, 402, c.QuotaStatus())
	require.True(t, c.BillsOverage())
	anonymous, ok := c.Anonymous()
	require.True(t, ok)
	require.Equal(t, plans.Rate{Limit: 30, Window: time.Minute, Algorithm: plans.FixedWindow}, anonymous)
	require.Equal(t, []plans.Feature{{Name: "events", Meter: "weir_events_overage", DisplayName: "events"}}, c.Features())

	names := []string{}
	for _, p := range c.Plans() {
		names = append(names, p.Name)
	}
	require.Equal(t, []string{"free", "pro", "scale"}, names, "in the order of the file")
}

func TestBothFormsOfAQuota(t *testing.T) {
	t.Parallel()
	c := load(t)

	free := quotaOf(t, c, "free", "events")
	require.Equal(t, plans.Quota{Feature: "events", Included: plans.Units(10_000), WarnAt: []int{80, 100}}, free)

	pro := quotaOf(t, c, "pro", "events")
	require.Equal(t, plans.Units(1_000_000), pro.Included)
	require.Equal(t, plans.Units(5_000_000), pro.Max)
	require.True(t, pro.BillOverage)
	require.True(t, pro.ContinueWithoutDatabase, "bill_overage goes on by default")
	require.Equal(t, "0.04", pro.Price.UnitAmountDecimal())
	require.Equal(t, "0.40 usd per 1000", pro.Price.String())
	require.Equal(t, plans.Units(6_000_000), pro.Ceiling())

	scale := quotaOf(t, c, "scale", "events")
	require.True(t, scale.Max.IsUnlimited())
	require.True(t, scale.Price.FromStripe())
	require.True(t, scale.Ceiling().IsUnlimited())
}

func TestAPriceFindsItsPlan(t *testing.T) {
	t.Parallel()
	c := load(t)
	for id, want := range map[string]string{"pro_monthly": "pro", "scale_monthly": "scale", "scale_yearly": "scale"} {
		p, ok := c.PlanForPrice(id)
		require.True(t, ok)
		require.Equal(t, want, p.Name)
	}
	for _, id := range []string{"", "pro", "PRO_MONTHLY", "pro_monthly "} {
		_, ok := c.PlanForPrice(id)
		require.False(t, ok, id)
	}
}

func TestMissingMaxAndPriceAreWarnings(t *testing.T) {
	t.Parallel()
	w := load(t).Warnings()
	require.Len(t, w, 2)
	require.Equal(t, 20, w[0].Line)
	require.Contains(t, w[0].String(), "plans.scale.quota.events: has no max")
	require.Contains(t, w[1].String(), "plans.scale.quota.events: has no price")
}

func TestJSONGivesTheSameCatalogBack(t *testing.T) {
	t.Parallel()
	c := load(t)
	data, err := json.Marshal(c)
	require.NoError(t, err)

	var back plans.Catalog
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, c.Hash(), back.Hash())
	require.Equal(t, c.Plans(), back.Plans())
	require.Equal(t, c.Features(), back.Features())
	require.Error(t, json.Unmarshal(data, &back), "a catalog that holds plans does not change")
}

func TestLoadNamesTheFile(t *testing.T) {
	t.Parallel()
	_, err := plans.Load(t.TempDir() + "/none.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)

	path := t.TempDir() + "/broken.yaml"
	require.NoError(t, os.WriteFile(path, []byte("plans: {a: {}}\n"), 0o600))
	_, err = plans.Load(path)
	var all *plans.Errors
	require.ErrorAs(t, err, &all)
	require.Equal(t, path, all.File)
	require.Equal(t, path+":1:1: default_plan: is missing; name the plan of accounts without a subscription", err.Error())
}
