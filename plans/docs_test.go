package plans_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

func docsPage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../docs/plan-file.md")
	require.NoError(t, err)
	return string(page)
}

func docsExample(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(docsPage(t), "```yaml\n")
	require.True(t, found)
	example, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	return example
}

func TestTheExampleOfTheDocsMeansWhatTheDocsSay(t *testing.T) {
	t.Parallel()
	c, err := plans.Parse([]byte(docsExample(t)))
	require.NoError(t, err)
	require.Empty(t, c.Warnings())
	require.Equal(t, "https://example.com/upgrade", c.UpgradeURL())

	events, _ := c.Feature("events")
	require.Equal(t, plans.Feature{Name: "events", Meter: "weir_events_overage", DisplayName: "Events", Unit: "event", Units: "events"}, events)

	free := c.DefaultPlan()
	require.Equal(t, "https://example.com/upgrade", free.UpgradeURL)
	exports, ok := free.Quota("exports")
	require.True(t, ok)
	require.Equal(t, plans.Units(0), exports.Included)
	_, ok = free.Quota("tokens")
	require.False(t, ok, "not in the plan")

	pro, _ := c.Plan("pro")
	require.Equal(t, "Pro", pro.DisplayName)
	require.Equal(t, []string{"pro_monthly", "price_1PZ3kLB7WZ01zgkW"}, pro.Prices())
	require.Equal(t, plans.Rate{Limit: 600, Window: time.Minute, Algorithm: plans.TokenBucket, Burst: 50}, pro.Rate)
	require.Equal(t, "https://example.com/talk-to-us", pro.UpgradeURL)
	require.Equal(t, 7*24*time.Hour, pro.PastDueGrace)
	proEvents, _ := pro.Quota("events")
	require.Equal(t, []int{50, 80, 100}, proEvents.WarnAt)
	tokens, _ := pro.Quota("tokens")
	require.True(t, tokens.Strict)
	require.False(t, tokens.BillOverage)
	require.False(t, tokens.ContinueWithoutDatabase)
	unlimited, _ := pro.Quota("exports")
	require.True(t, unlimited.Included.IsUnlimited())
	require.False(t, unlimited.BillOverage, "nothing is ever over")
	require.True(t, unlimited.ContinueWithoutDatabase)

	team, _ := c.Plan("team")
	require.True(t, team.Rate.Each)
	teamEvents, _ := team.Quota("events")
	require.True(t, teamEvents.PerQuantity)
	five, err := teamEvents.ForQuantity(5)
	require.NoError(t, err)
	require.Equal(t, plans.Units(10_000_000), five.Included)
}

// A key that the reader knows and the page does not, or that the example lacks, fails.
func TestEveryKeyIsDocumented(t *testing.T) {
	t.Parallel()
	page, example := docsPage(t), docsExample(t)
	sources, err := filepath.Glob("read*.go")
	require.NoError(t, err)
	found := 0
	for _, name := range sources {
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\{"([a-z_]+)", func\(path`).FindAllStringSubmatch(string(source), -1) {
			found++
			require.Contains(t, page, "`"+m[1]+"`", "docs/plan-file.md lacks the key")
			require.Regexp(t, `(^|[ {\n])`+m[1]+`:`, example, "its example lacks the key")
		}
	}
	require.Greater(t, found, 30)
}
