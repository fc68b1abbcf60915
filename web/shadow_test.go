package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
)

// While nothing is refused, no page says that it is: by the account's own flag, and by the plan's.
func TestAPageInShadowModeSaysThatCallsGoOn(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]bool{"by account": false, "by plan": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			capped := w.subscribe("acme", "pro")
			budget := int64(0)
			require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &budget, "customer", noon))
			w.use("acme", "events", 7_000)
			w.use("acme", "seats", 5)
			w.use("oak", "events", 130)
			w.fold()
			require.Contains(t, w.page("acme"), "are refused until", "without it")
			if plan {
				usagetest.Publish(t, w.db, "shadow: true\n"+planFile, noon)
			} else {
				oak, err := usage.FindAccount(t.Context(), w.db, "oak", false, noon)
				require.NoError(t, err)
				require.NoError(t, usage.SetShadow(t.Context(), w.db, oak, true))
				require.NoError(t, usage.SetShadow(t.Context(), w.db, capped, true))
			}
			for account, says := range map[string][]string{
				"acme": {"your spending cap of $0.00 applies, but calls go on at present, and are not billed.", "In overage", "All included units used", "nothing more is billed until the next period, and calls go on at present."},
				"oak":  {"All 100 events are used: calls go on at present, and are not billed.", "All included units used"},
			} {
				page := w.page(account)
				for _, text := range says {
					require.Contains(t, page, text, account)
				}
				for _, text := range []string{"refused", "shadow", "Spending cap reached", "All used"} {
					require.NotContains(t, page, text, account)
				}
			}
			got := feature(t, w.numbers("oak"), 0)
			require.Equal(t, "over", got["status"], "the meter's word for full is that the limit is reached")
			require.Nil(t, got["limit"])
			require.Equal(t, true, got["shadow"])
		})
	}
}

// An account that nobody has called for yet has the terms that it would begin with, shadow mode included.
func TestAPageOfANewAccountKnowsItsPlansShadowMode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Contains(t, w.page("new"), "When all 100 events are used, further calls are refused until")
	usagetest.Publish(t, w.db, "shadow: true\n"+planFile, noon)
	require.Contains(t, w.page("new"), "When all 100 events are used, calls go on at present, and are not billed.")
}

// A feature that the plan has lost is refused in shadow mode too.
func TestAPageInShadowModeStillSaysWhatThePlanLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.subscribe("acme", "pro")
	w.use("acme", "seats", 3)
	w.fold()
	_, err := w.db.Exec(t.Context(), "UPDATE weir.keys k SET in_plan = false, included = 0, on_exceeded = 'block' FROM weir.features f WHERE f.id = k.feature_id AND f.name = 'seats' AND k.account_id = $1", id)
	require.NoError(t, err)
	require.NoError(t, usage.SetShadow(t.Context(), w.db, id, true))
	require.Contains(t, w.page("acme"), "Your plan no longer contains this: further calls are refused.")
}
