package warnings

import (
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
