package plans_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

// file is a small valid file with more put in: at the top, under features, under plans.free.
func file(top, features, free string) string {
	return "default_plan: free\n" + top + "\nfeatures:\n  events: {meter: m}\n" + features + "\nplans:\n  free:\n    shadow: false\n" + free + "\n"
}

func many(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

func chars(n int) string { return strings.Repeat("a", n) }

// At the limit a file is accepted; one past it, it is refused with an error that says why.
func TestEveryLimit(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return file("", "", "") + "#" + chars(n-len(file("", "", ""))-1) }
	for name, tc := range map[string]struct {
		file    func(n int) string
		most    int
		message string
	}{
		"bytes":    {long, 1 << 20, "larger than 1 MiB"},
		"plans":    {func(n int) string { return file("", "", many(n-1, "  p%[1]d: {prices: [q%[1]d]}\n")) }, 256, "257 plans are more than 256"},
		"features": {func(n int) string { return file("", many(n-1, "  f%d: {}\n"), "") }, 256, "257 features are more than 256"},
		"prices": {func(n int) string {
			return file("", "", "  pro: {prices: ["+strings.TrimSuffix(many(n, "p%d, "), ", ")+"]}")
		}, 100, "101 prices are more than 100"},
		"feature name": {func(n int) string { return file("", "  "+chars(n)+": {}", "") }, 63, "is not a feature name"},
		"plan name":    {func(n int) string { return file("", "", "  "+chars(n)+": {}") }, 63, "is not a plan name"},
		"meter":        {func(n int) string { return file("", "  f: {meter: "+chars(n)+"}", "") }, 100, "more than 100 characters"},
		"price id":     {func(n int) string { return file("", "", "  pro: {prices: ["+chars(n)+"]}") }, 200, "more than 200 characters"},
		"display name": {func(n int) string { return file("", "", "    display_name: "+chars(n)) }, 100, "more than 100 characters"},
		"unit":         {func(n int) string { return file("", "  f: {unit: "+strings.Repeat("é", n)+"}", "") }, 100, "more than 100 characters"},
		"upgrade url":  {func(n int) string { return file("upgrade_url: https://a.example/"+chars(n-18), "", "") }, 2048, "more than 2048 characters"},
		"thresholds": {func(n int) string {
			return file("", "", "    quota: {events: {included: 1, warn_at: ["+strings.TrimSuffix(many(n, "1%02d, "), ", ")+"]}}")
		}, 20, "21 thresholds are more than 20"},
		"threshold": {func(n int) string {
			return file("", "", fmt.Sprintf("    quota: {events: {included: 1, warn_at: [%d]}}", n))
		},
			1000, "not between 1 and 1000 percent"},
		"included": {func(n int) string { return file("", "", fmt.Sprintf("    quota: {events: %d}", n)) }, 1 << 62, "largest count"},
		"billable": {func(n int) string {
			return file("currency: usd", "", fmt.Sprintf(
				"  pro: {prices: [a], on_exceeded: bill_overage, quota: {events: {included: 1, overage: {max: %d}}}}", n-1))
		}, 999_999_999_999_999, "included and max together"},
		"rate": {func(n int) string { return file("", "", fmt.Sprintf("    rate: {limit: %d, window: 24h}", n)) },
			1_000_000_000, "1000000001 is not between 1 and 1000000000"},
		"burst": {func(n int) string {
			return file("", "", fmt.Sprintf("    rate: {limit: 1, window: 1s, algorithm: token_bucket, burst: %d}", n))
		}, 1_000_000_000, "1000000001 is not between 1 and 1000000000"},
		"window": {func(n int) string { return file("", "", fmt.Sprintf("    rate: {limit: 1, window: %ds}", n)) }, 86_400, "is not a window"},
		"grace":  {func(n int) string { return file("", "", fmt.Sprintf("    past_due_grace: %ds", n)) }, 90 * 86_400, "is not a grace"},
		"overage per": {func(n int) string {
			return file("currency: usd", "", fmt.Sprintf(
				`  pro: {prices: [a], on_exceeded: bill_overage, quota: {events: {included: 1, overage: {price: "10", per: %d}}}}`, n))
		}, 1_000_000_000, "1000000001 is not between 1 and 1000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plans.Parse([]byte(tc.file(tc.most)))
			require.NoError(t, err)
			_, err = plans.Parse([]byte(tc.file(tc.most + 1)))
			require.ErrorContains(t, err, tc.message)
			requireSafe(t, err)
		})
	}
}

func TestTheLargestCatalogIsRead(t *testing.T) {
	t.Parallel()
	c, err := plans.Parse([]byte(file("", many(255, "  f%d: {}\n"), "    quota: {f254: 7}\n"+
		many(255, "  p%[1]d:\n    prices: [price_%[1]d]\n    quota: {f%[1]d: %[1]d}\n"))))
	require.NoError(t, err)
	require.Len(t, c.Plans(), 256)
	require.Len(t, c.Features(), 256)
	p, ok := c.PlanForPrice("price_200")
	require.True(t, ok)
	q, ok := p.Quota("f200")
	require.True(t, ok)
	require.Equal(t, plans.Units(200), q.Included)
	requireSurvivesJSON(t, c)
}

// What costs a YAML library the square of its size, or its stack, is refused early.
func TestHostileFilesAreRefused(t *testing.T) {
	t.Parallel()
	const size = 32 << 10
	fill := func(s string) string { return strings.Repeat(s, size/len(s)) }
	for name, tc := range map[string]struct{ text, message string }{
		"lists in lists":       {fill("["), "nested deeper"},
		"mappings in mappings": {fill("{a: "), "nested deeper"},
		"both":                 {fill("[{"), "nested deeper"},
		"dashes":               {fill("- "), "a list directly inside a list"},
		"question marks":       {fill("? "), `the form "? key"`},
		"one line of keys":     {fill("a: "), "nested deeper"},
		"siblings":             {fill("a: 1\n"), "more than 1000 keys in one mapping"},
		"siblings in a plan":   {"plans:\n  free:\n" + fill("    a: 1\n"), "more than 1000 keys in one mapping"},
		"bare keys":            {"a: {" + fill("b,") + "}", "more than 100 keys without a value"},
		"bare colons":          {"a: {" + fill("b: ,") + "}", "more than 100 keys without a value"},
		"anchors":              {fill("&a "), "anchors (&)"},
		"aliases":              {"a: &a [x]\nb: [" + fill("*a,") + "]", "anchors (&)"},
		"tags":                 {fill("!!str "), "tags (!)"},
		"documents":            {fill("---\n"), "a second YAML document"},
		"only blank lines":     {fill("\n"), "the file is empty"},
		"only comments":        {fill("# x\n"), "the file is empty"},
		"only an end":          {"---\n...\n", "the file is empty"},
		"carriage returns":     {fill("\r"), "control character U+000D"},
		"zero bytes":           {fill("\x00"), "control character U+0000"},
		"not UTF-8":            {"default_plan: \xff\xfe", "not UTF-8"},
		"UTF-16":               {"d\x00e\x00f\x00", "control character"},
		"block text":           {"default_plan: |\n" + fill("  a\n"), "block text"},
		"merge keys":           {"plans: {a: {<<: {}}}", "merge keys"},
		"a directive":          {"%YAML 1.2\n---\na: 1\n", "directives (%)"},
		"deep indentation": {func() string {
			var b strings.Builder
			for i := range 200 {
				b.WriteString(strings.Repeat(" ", i) + "a:\n")
			}
			return b.String()
		}(), "nested deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plans.Parse([]byte(tc.text))
			require.ErrorContains(t, err, tc.message)
			requireSafe(t, err)
		})
	}
}

func TestManyProblemsAreCounted(t *testing.T) {
	t.Parallel()
	_, err := plans.Parse([]byte(file("", "", "    quota:\n"+many(250, "      f%d: 1\n"))))
	var all *plans.Errors
	require.ErrorAs(t, err, &all)
	require.Len(t, all.Problems, 100)
	require.Equal(t, 150, all.More)
	require.True(t, strings.HasSuffix(err.Error(), "\nplan file: and 150 more problems"))
	require.Equal(t, 10, all.Problems[0].Line, "the first of the file are the ones printed")
}
