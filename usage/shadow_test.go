package usage_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// The catalog that counts says whether a plan refuses, to nodes, to warnings and to the report alike: also of periods
// that began under another one.
func TestAPlanIsInShadowModeByTheCatalogThatCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.key("acme", "events", noon)
	w.use(w.node(), k.Key, 130)
	is := func(want bool) {
		t.Helper()
		require.Equal(t, want, w.key("acme", "events", noon).Shadow)
		told, err := usage.Warnings(t.Context(), w.db, 0, 10)
		require.NoError(t, err)
		require.Len(t, told, 1)
		require.Equal(t, want, told[0].Shadow)
		sends, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, noon)
		require.NoError(t, err)
		require.Len(t, sends, 1)
		require.Equal(t, want, sends[0].Shadow)
		w.exec("UPDATE weir.warning_sends SET due_at = '-infinity'")
		report, err := usage.Shadowed(t.Context(), w.db, noon)
		require.NoError(t, err)
		if !want {
			require.Empty(t, report)
			return
		}
		require.Len(t, report, 1)
		require.EqualValues(t, 30, report[0].Passed)
	}
	is(false)
	w.publish("shadow: true\n"+planFile, noon)
	is(true)
	w.publish(planFile, noon)
	is(false)
	require.NoError(t, usage.SetShadow(t.Context(), w.db, k.AccountID, true))
	is(true)
	require.NoError(t, usage.SetShadow(t.Context(), w.db, k.AccountID, false))
	is(false)
}
