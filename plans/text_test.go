package plans_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

func TestDurations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "0s": 0, "0d": 0, "90m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		"1h30m15s": time.Hour + 30*time.Minute + 15*time.Second, `"2d"`: 48 * time.Hour, "1d0s": 24 * time.Hour,
	} {
		c := parse(t, file("", "", "    past_due_grace: "+text))
		require.Equal(t, want, c.DefaultPlan().PastDueGrace, text)
	}
	for text, message := range map[string]string{
		"d": "is not a duration", "1.5d": "is not a duration", "-7d": "is not a duration", "1d-1h": "is not a duration",
		"1dd": "is not a duration", "1d1d": "is not a duration", "99999999999999999999d": "is not a duration", "7 d": "is not a duration",
		"10001d": "is not a duration", "1d300000h": "is not a duration", "1w": "is not a duration", "week": "is not a duration",
		"7": "write the unit too: 7s", "-1m": "-1m is not a grace", "500ms": "500ms is not a grace", "100d": "100d is not a grace",
		"2200h": "2200h is not a grace", "2200h30m": "2200h30m is not a grace",
	} {
		_, err := plans.Parse([]byte(file("", "", "    past_due_grace: "+text)))
		require.ErrorContains(t, err, message, text)
	}
}

func TestLineEndingsDoNotMatter(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(designFile)
	require.NoError(t, err)
	windows := strings.ReplaceAll(string(data), "\n", "\r\n")
	require.Equal(t, parse(t, string(data)).Hash(), parse(t, windows).Hash())

	broken, err := os.ReadFile("../testdata/plans/broken/words.yaml")
	require.NoError(t, err)
	_, want := plans.Parse(broken)
	_, got := plans.Parse([]byte(strings.ReplaceAll(string(broken), "\n", "\r\n")))
	require.EqualError(t, got, want.Error())
}

func TestPlacesCountCharacters(t *testing.T) {
	t.Parallel()
	_, err := plans.Parse([]byte(file("", `  tokens: {display_name: "Größe ✓", zzzzzzzz: 1}`, "")))
	require.ErrorContains(t, err, "plan file:5:37: features.tokens.zzzzzzzz:")
}

func TestFlowAndBlockStyleMeanTheSame(t *testing.T) {
	t.Parallel()
	block := `
default_plan: free
features:
  events:
    meter: "m"
plans:
  free:
    rate:
      limit: 5
      window: 1m
    quota:
      events:
        included: 7
        warn_at:
          - 50
          - 100
  pro:
    prices:
    - a
    - 'b'
`
	flow := `{default_plan: free, features: {events: {meter: m}}, plans: {"free": {rate: {limit: 5, window: "60s"},
  quota: {events: {included: 7, warn_at: [50, 100]}}}, pro: {prices: [a, "b"]}}}`
	require.Equal(t, parse(t, block).Hash(), parse(t, flow).Hash())
}

func TestSmallMistakesInCurrency(t *testing.T) {
	t.Parallel()
	for currency, suggestion := range map[string]string{
		"USD": "write usd", "dollars": "three lower-case letters", "usx": "three lower-case letters", "$": "three lower-case letters",
	} {
		_, err := plans.Parse([]byte(file(fmt.Sprintf("currency: %q", currency), "", "")))
		require.ErrorContains(t, err, suggestion)
	}
	require.Empty(t, parse(t, file("", "", "")).Currency(), "not needed where nothing is billed")
}

// An unknown key that is close to a missing one is one mistake, not two.
func TestOneMistakeGivesOneError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"defualt_plan: free\nplans: {free: {}}",
		file("", "", "    rate: {limits: 1, window: 1m}"),
		file("", "", "    rate: {limit: 1, window: 1min}"),
		file("currency: us", "", "  pro: {prices: [a], on_exceeded: bill_overage, quota: {events: {included: 1, overage: {price: '1', per: 3}}}}"),
		file("", "", "  pro: {prices: [a], on_exceeded: bill, quota: {events: {included: 1, overage: {max: 3}}}}"),
		file("", "", "  pro: {prices: [a], on_exceeded: block, quota: {events: {included: x, overage: {max: 3}}}}"),
		file("", "  tokens: 5", ""),
		file("", "", "    warn_at: [x, 80, 80]\n    quota: {events: 5}"),
		file("", "", "    rate: {limit: 1, window: 1m, algorithm: bucket, burst: 9}"),
		file("", "", "    on_exceeded: bill_overage"),
		file("", "", "    on_exceeded: bill_overage\n    quota: {events: 5}\ncurrency: usd"),
	} {
		_, err := plans.Parse([]byte(text))
		var all *plans.Errors
		require.ErrorAs(t, err, &all, text)
		require.Len(t, all.Problems, 1, "%s\n%s", text, err)
	}
}

// Persian and the scripts of India can't be spelled without the two joiners; nothing else that cannot be seen is let in.
func TestNamesForPeopleMayJoinLetters(t *testing.T) {
	t.Parallel()
	names := func(s string) string {
		return file("", fmt.Sprintf("  calls: {display_name: %q, unit: %q, units: %q}", s, s, s), fmt.Sprintf("    display_name: %q", s))
	}
	for _, s := range []string{
		"می\u200cخواهم",          // Persian: the one that keeps letters apart
		"ක්\u200dරියා",           // Sinhala: after a virama, which is a mark
		"র\u200d্যাম",            // Bengali: before one
		"নথি ক্\u200dষ যোগ",      // in the middle of a text
		"خدمات ابری\u200cِ ویژه", // beside a vowel sign
	} {
		c := parse(t, names(s))
		require.Equal(t, s, c.DefaultPlan().DisplayName)
		f, _ := c.Feature("calls")
		require.Equal(t, [3]string{s, s, s}, [3]string{f.DisplayName, f.Unit, f.Units})
	}
	for _, s := range []string{
		"\u200cمی", "می\u200c", "\u200d", "می \u200cخواهم", "می\u200c خواهم", "می\u200c\u200cخواهم", "a\u200d1", "1\u200c2", "\U0001F469\u200d\U0001F4BB",
		"a\u200bb", "a\u200eb", "a\u200fb", "a\u202eb", "a\u2066b", "a\u2060b", "a\ufeffb", "a\u00adb", "a\u061cb",
	} {
		_, err := plans.Parse([]byte(names(s)))
		var all *plans.Errors
		require.ErrorAs(t, err, &all, "%+q", s)
		require.Len(t, all.Problems, 4, "%+q", s)
		require.ErrorContains(t, err, "has a character that cannot be shown")
	}
	for _, text := range []string{"  \"می\u200cخواهم\": {}", "  \"a\u200cb\": {}"} {
		_, err := plans.Parse([]byte(file("", text, "")))
		require.ErrorContains(t, err, "is not a feature name")
	}
}

func TestUnitsGoWithUnit(t *testing.T) {
	t.Parallel()
	c := parse(t, file("", "  pages: {unit: index, units: indices}", ""))
	f, _ := c.Feature("pages")
	require.Equal(t, "indices", f.Units)
	body, err := c.MarshalJSON()
	require.NoError(t, err)
	back, err := plans.Decode(body)
	require.NoError(t, err)
	require.Equal(t, c.Hash(), back.Hash())
	f, _ = back.Feature("pages")
	require.Equal(t, "indices", f.Units)
	// What is published without them stays what it was.
	body, err = parse(t, file("", "  pages: {unit: index}", "")).MarshalJSON()
	require.NoError(t, err)
	require.NotContains(t, string(body), "units\":")

	for text, message := range map[string]string{
		"{units: indices}": "units: is set, but unit is not; write unit too", `{unit: index, units: ""}`: "units: is empty",
		"{unit: index, units: [a]}": "units: is a list",
	} {
		_, err := plans.Parse([]byte(file("", "  pages: "+text, "")))
		require.ErrorContains(t, err, message)
	}
}
