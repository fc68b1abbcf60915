package usage_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// told lists what is told, as "threshold of allowance at used".
func (w *world) told(after int64) []string {
	w.Helper()
	all, err := usage.Warnings(w.Context(), w.db, after, 100)
	require.NoError(w, err)
	out := []string{}
	for _, x := range all {
		out = append(out, fmt.Sprintf("%d%% of %d at %d", x.Threshold, x.Allowance, x.Used))
	}
	return out
}

// use counts up to an amount under a key and folds.
func (w *world) use(node, key, upto int64) {
	w.Helper()
	w.flush(node, noon, key, upto)
	w.fold()
}

func TestAThresholdIsToldWhenItIsReachedAndOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, k := w.node(), w.key("acme", "events", noon)
	w.use(n, k.Key, 79)
	require.Empty(t, w.told(0))
	w.use(n, k.Key, 80)
	require.Equal(t, []string{"80% of 100 at 80"}, w.told(0))
	w.use(n, k.Key, 80)
	w.use(n, k.Key, 99)
	require.Len(t, w.told(0), 1)
	w.use(n, k.Key, 100)
	require.Equal(t, []string{"80% of 100 at 80", "100% of 100 at 100"}, w.told(0))
	w.use(n, k.Key, 130)
	require.Len(t, w.told(0), 2)

	all, err := usage.Warnings(t.Context(), w.db, 0, 100)
	require.NoError(t, err)
	require.Equal(t, "acme", all[0].Account)
	require.Equal(t, "events", all[0].Feature)
	require.Equal(t, "free", all[0].Plan)
	require.Equal(t, "block", all[0].OnExceeded)
	require.True(t, all[0].At.Equal(noon))
	require.True(t, all[0].Ends.Equal(k.Ends))
	last, err := usage.LastWarning(t.Context(), w.db)
	require.NoError(t, err)
	require.Equal(t, all[1].ID, last)
}

func TestAJumpOverBothThresholdsTellsTheHigherAndRecordsBoth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, k := w.node(), w.key("acme", "events", noon)
	w.use(n, k.Key, 79)
	w.use(n, k.Key, 105)
	require.Equal(t, []string{"100% of 100 at 105"}, w.told(0))
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.warnings"))
}

func TestARaisedAllowanceArmsItsThresholdsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, k := w.node(), w.key("acme", "events", noon)
	id, err := usage.FindAccount(t.Context(), w.db, "acme", false, noon)
	require.NoError(t, err)
	w.use(n, k.Key, 105)
	require.Len(t, w.told(0), 1)
	included := int64(200)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Included: &included, Reason: "asked", Actor: "test"}, noon))
	w.use(n, k.Key, 159)
	require.Len(t, w.told(0), 1)
	w.use(n, k.Key, 160)
	require.Equal(t, []string{"100% of 100 at 105", "80% of 200 at 160"}, w.told(0))
	// Back to the first allowance: it has been told of already.
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Reason: "undone", Actor: "test"}, noon))
	w.use(n, k.Key, 161)
	require.Len(t, w.told(0), 2)
}

func TestNothingIsToldOfAnAllowanceOfNothingOrWithoutABound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("open", "open", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
	w.use(n, w.key("open", "events", noon).Key, 1_000_000)
	none := w.key("none", "events", noon)
	zero := int64(0)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, none.AccountID, "events", usage.Override{Included: &zero, Reason: "none", Actor: "test"}, noon))
	w.use(n, none.Key, 5)
	require.Empty(t, w.told(0))
	require.Zero(t, w.number("SELECT count(*) FROM weir.warnings"))
}

func TestALowerSpendingCapIsWhatThresholdsArePercentOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("acme", "pro", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
	k := w.key("acme", "events", noon)
	budget := int64(500)
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &budget, "customer", noon))
	w.use(n, k.Key, 999)
	require.Empty(t, w.told(0))
	w.use(n, k.Key, 1_199)
	require.Equal(t, []string{"100% of 1000 at 1199"}, w.told(0))
	w.use(n, k.Key, 1_200)
	require.Equal(t, []string{"100% of 1000 at 1199", "80% of 1500 at 1200"}, w.told(0))
	w.use(n, k.Key, 1_500)
	require.Equal(t, []string{"100% of 1000 at 1199", "80% of 1500 at 1200", "100% of 1500 at 1500"}, w.told(0))
	all, err := usage.Warnings(t.Context(), w.db, 0, 2)
	require.NoError(t, err)
	require.False(t, all[0].Capped)
	require.True(t, all[0].OverageOpen)
	require.EqualValues(t, 500, *all[0].SpendingCap)
	require.True(t, all[1].Capped)

	higher := int64(9_000) // than the plan's maximum: it binds nothing
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &higher, "customer", noon))
	w.use(n, k.Key, 1_501)
	require.Len(t, w.told(0), 3, "the end of the included units was told already")
	all, err = usage.Warnings(t.Context(), w.db, 0, 1)
	require.NoError(t, err)
	require.Nil(t, all[0].SpendingCap)
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", nil, "customer", noon))
	require.EqualValues(t, 0, w.number("SELECT count(*) FROM weir.overrides WHERE spending_cap IS NOT NULL"))
	require.ErrorIs(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "nothing", nil, "customer", noon), usage.ErrNotFound)
	require.ErrorIs(t, usage.SetSpendingCap(t.Context(), w.db, "nobody", "events", nil, "customer", noon), usage.ErrNotFound)
}

func TestASpendingCapLeavesWhatWasNegotiated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.subscribe("acme", "pro", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
	included, budget := int64(7_000), int64(100)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Included: &included, Reason: "contract", Actor: "sales"}, noon))
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &budget, "customer", noon))
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 7_000, *k.Included)
	require.EqualValues(t, 7_100, k.Ceiling)
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.overrides WHERE reason = 'contract' AND actor = 'sales'"))
}

func TestNewThresholdsOfAPlanComeWithItsTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(`
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: {included: 100, warn_at: [50]}}, on_exceeded: block}}
`, noon.Add(-time.Hour))
	n, k := w.node(), w.key("acme", "events", noon)
	w.use(n, k.Key, 100)
	require.Equal(t, []string{"50% of 100 at 100"}, w.told(0))
}

// Eight workers at once claim what three nodes crossed: one delivery a warning and channel.
func TestEightWorkersDeliverOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.key("acme", "events", noon)
	for range 3 {
		w.flush(w.node(), noon, k.Key, 35)
	}
	w.fold()
	require.NoError(t, usage.SetContact(t.Context(), w.db, "acme", "ops@acme.example", "test", noon))
	channels := []string{"email", "webhook"}
	due, err := usage.SendsDue(t.Context(), w.db, channels)
	require.NoError(t, err)
	require.True(t, due)
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			sends, err := usage.ClaimSends(t.Context(), w.db, channels, 0, noon)
			if !assertNoError(t, err) {
				return
			}
			for _, s := range sends {
				mu.Lock()
				got = append(got, fmt.Sprintf("%s: %s %d%% to %s", s.Channel, s.Account, s.Threshold, s.Email))
				mu.Unlock()
				assertNoError(t, usage.SettleSend(t.Context(), w.db, s, usage.Sent, ""))
			}
		})
	}
	wg.Wait()
	slices.Sort(got)
	require.Equal(t, []string{"email: acme 100% to ops@acme.example", "webhook: acme 100% to ops@acme.example"}, got)
	due, err = usage.SendsDue(t.Context(), w.db, channels)
	require.NoError(t, err)
	require.False(t, due)
}

func TestAHigherThresholdTakesThePlaceOfOneThatWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, k := w.node(), w.key("acme", "events", noon)
	w.use(n, k.Key, 85)
	sends, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, time.Hour, noon)
	require.NoError(t, err)
	require.Empty(t, sends, "it waits for a higher one")
	w.use(n, k.Key, 100)
	w.exec("UPDATE weir.warning_sends SET due_at = '-infinity'")
	sends, err = usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, noon)
	require.NoError(t, err)
	require.Len(t, sends, 1)
	require.Equal(t, 100, sends[0].Threshold)
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.warning_sends WHERE state = 'skipped'"))
}

func TestAClaimThatWasLostIsFreeAgainAndItsLateOutcomeIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use(w.node(), w.key("acme", "events", noon).Key, 100)
	first, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, noon)
	require.NoError(t, err)
	require.Len(t, first, 1)
	w.exec("UPDATE weir.warning_sends SET due_at = '-infinity'") // the hold is over
	second, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, noon)
	require.NoError(t, err)
	require.Len(t, second, 1)
	require.Equal(t, 2, second[0].Attempts)
	require.NoError(t, usage.SettleSend(t.Context(), w.db, first[0], usage.Failed, "too late"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.warning_sends WHERE state = 'due'"))
	require.NoError(t, usage.RetrySend(t.Context(), w.db, second[0], time.Hour, "no answer"))
	due, err := usage.SendsDue(t.Context(), w.db, []string{"email"})
	require.NoError(t, err)
	require.False(t, due)
}

func TestNobodyIsWarnedOfAPeriodThatIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.key("acme", "events", noon)
	w.use(w.node(), k.Key, 100)
	sends, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, k.Ends)
	require.NoError(t, err)
	require.Empty(t, sends)
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.warning_sends WHERE state = 'skipped'"))
}

// What a warning says of the calls to come is what the ceiling does: a trial's overage is not open, and a cap ends it.
func TestAWarningSaysWhetherCallsGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	none, some := int64(0), int64(200)
	for _, c := range []struct {
		account, plan string
		cap           *int64
		trial         bool
		open          bool
	}{
		{"billed", "pro", nil, false, true},
		{"trial", "pro", nil, true, false},
		{"no overage wanted", "pro", &none, false, false},
		{"capped", "pro", &some, false, false},
	} {
		w.subscribe(c.account, c.plan, noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon, func(p *usage.PlanState) {
			if c.trial {
				p.Billable = nil
			}
		})
		k := w.key(c.account, "events", noon)
		if c.cap != nil {
			require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, c.account, "events", c.cap, "customer", noon))
		}
		w.use(n, k.Key, 1_200)
		all, err := usage.Warnings(t.Context(), w.db, 0, 100)
		require.NoError(t, err)
		last := all[len(all)-1]
		require.Equal(t, c.account, last.Account)
		require.Equal(t, 100, last.Threshold)
		require.Equal(t, c.open, last.OverageOpen, c.account)
	}
}

// Percentages of a high cap are far away when the included units end and use begins to cost.
func TestTheEndOfTheIncludedUnitsIsToldWhateverTheCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	subscribe := func(account string, cap int64) int64 {
		w.subscribe(account, "pro", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
		k := w.key(account, "events", noon)
		require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, account, "events", &cap, "customer", noon))
		return k.Key
	}
	last := func() int64 {
		id, err := usage.LastWarning(t.Context(), w.db)
		require.NoError(t, err)
		return id
	}
	for _, c := range []struct {
		account   string
		cap, step int64
		want      []string
	}{
		{"no overage", 0, 100, []string{"80% of 1000 at 800", "100% of 1000 at 1000"}},
		{"a little", 100, 20, []string{"80% of 1100 at 880", "100% of 1000 at 1000", "100% of 1100 at 1100"}},
		{"alike", 250, 50, []string{"100% of 1000 at 1000", "100% of 1250 at 1250"}}, // 80 % of all is the included units' end
		{"much", 4_999, 500, []string{"100% of 1000 at 1000", "80% of 5999 at 5000", "100% of 5999 at 6000"}},
		{"more than the plan's", 9_000, 100, []string{"80% of 1000 at 800", "100% of 1000 at 1000"}},
		{"in one jump", 4_999, 6_000, []string{"100% of 5999 at 6000"}},
	} {
		after, key := last(), subscribe(c.account, c.cap)
		for used := c.step; used <= 6_000; used += c.step {
			w.use(n, key, used)
			if used >= 1_000+c.cap {
				break
			}
		}
		require.Equal(t, c.want, w.told(after), c.account)
	}
}

func TestAPlanThatWarnsOfNothingWarnsOfNoEndEither(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(strings.Replace(planFile, "  pro:\n", "  pro:\n    warn_at: []\n", 1), noon.AddDate(0, -6, 0))
	w.subscribe("acme", "pro", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
	k, budget := w.key("acme", "events", noon), int64(500)
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &budget, "customer", noon))
	w.use(w.node(), k.Key, 1_500)
	require.Zero(t, w.number("SELECT count(*) FROM weir.warnings"))
}

// The end of the included units and a percentage of the cap are of the same terms: who waits for the settling of one
// is told of the higher alone.
func TestOfTheEndAndAPercentageOfTheCapTheHigherIsDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("acme", "pro", noon.AddDate(0, 0, -3), noon.AddDate(0, 1, -3), noon)
	k, little := w.key("acme", "events", noon), int64(100)
	require.NoError(t, usage.SetSpendingCap(t.Context(), w.db, "acme", "events", &little, "customer", noon))
	deliver := func() (all []string) {
		w.exec("UPDATE weir.warning_sends SET due_at = '-infinity' WHERE state = 'due'")
		sends, err := usage.ClaimSends(t.Context(), w.db, []string{"email"}, 0, noon)
		require.NoError(t, err)
		for _, s := range sends {
			all = append(all, fmt.Sprintf("%d%% of %d", s.Threshold, s.Allowance))
			require.NoError(t, usage.SettleSend(t.Context(), w.db, s, usage.Sent, ""))
		}
		return all
	}
	w.use(n, k.Key, 880)
	w.use(n, k.Key, 1_000)
	require.Equal(t, []string{"100% of 1000"}, deliver(), "80 % of 1,100 are less")
	w.use(n, k.Key, 1_100)
	require.Equal(t, []string{"100% of 1100"}, deliver())
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.warning_sends WHERE note = 'a higher threshold is told instead'"))
}
