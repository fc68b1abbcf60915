package warnings

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// "rows for Rows" says one thing twice.
func TestAUnitNamedLikeItsFeatureIsNamedOnce(t *testing.T) {
	t.Parallel()
	m, err := NewMail(MailConfig{Server: "smtp://127.0.0.1?tls=off", From: "billing@example.com"})
	require.NoError(t, err)
	catalog, err := plans.Parse([]byte(`
default_plan: free
features: {rows: {unit: row, display_name: Rows}, row: {unit: row}, exports: {unit: row}, plain: {}}
plans: {free: {quota: {rows: 100, row: 100, exports: 100, plain: 100}, on_exceeded: block}}
`))
	require.NoError(t, err)
	for feature, want := range map[string]string{
		"rows": "100 rows in this period", "row": "100 rows in this period", "exports": "rows for exports in this period", "plain": "units for plain in this period",
	} {
		_, plain, rich, err := m.write(letter(notice{Catalog: catalog, Send: usage.Send{Warning: usage.Warning{Account: "acme", Plan: "free", Feature: feature, Used: 80, Allowance: 100}}}))
		require.NoError(t, err)
		require.Contains(t, plain, want)
		require.Contains(t, rich, want)
	}
}

// Use that goes on for money says up to where; of a cap it says what is billed below.
func TestALetterSaysWhatIsBilledUpToTheCap(t *testing.T) {
	t.Parallel()
	m, err := NewMail(MailConfig{Server: "smtp://127.0.0.1?tls=off", From: "billing@example.com"})
	require.NoError(t, err)
	catalog, err := plans.Parse([]byte(`
default_plan: free
features: {searches: {unit: search}, calls: {unit: call to a model, units: calls to models}}
plans: {free: {quota: {searches: 100, calls: 100}, on_exceeded: block}}
`))
	require.NoError(t, err)
	limit := int64(100_000)
	for name, c := range map[string]struct {
		w    usage.Warning
		want []string
	}{
		"end of the included": {
			usage.Warning{Feature: "searches", Used: 1_000, Allowance: 1_000, Included: 1_000, Threshold: 100, OverageOpen: true, SpendingCap: &limit},
			[]string{"1,000 of", "1,000 searches", "Use goes on. What goes over is billed with your subscription, up to your spending cap of 100,000 searches."},
		},
		"no cap": {
			usage.Warning{Feature: "searches", Used: 1_000, Allowance: 1_000, Included: 1_000, Threshold: 100, OverageOpen: true},
			[]string{"Use goes on. What goes over is billed with your subscription."},
		},
		"most of the cap": {
			usage.Warning{Feature: "calls", Used: 90_000, Allowance: 101_000, Included: 1_000, Threshold: 80, Capped: true, SpendingCap: &limit},
			[]string{"calls to models", "What went over the 1,000 included is billed with your subscription. When all are used, further calls are refused."},
		},
		"little of the cap": {
			usage.Warning{Feature: "searches", Used: 800, Allowance: 1_000, Included: 900, Threshold: 80, Capped: true, SpendingCap: &limit},
			[]string{"1,000 searches, the bound that your spending cap sets"},
		},
	} {
		_, plain, rich, err := m.write(letter(notice{Catalog: catalog, Send: usage.Send{Warning: c.w}}))
		require.NoError(t, err)
		for _, text := range c.want {
			require.Contains(t, plain, text, name)
			require.Contains(t, strings.NewReplacer("<b>", "", "</b>", "").Replace(rich), text, name)
		}
		require.Equal(t, name == "most of the cap", strings.Contains(plain, "What went over"), name)
	}
}
