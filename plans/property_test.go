package plans_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/plans"
)

// drawn is a plan file as it was meant, beside the text that says so.
type drawn struct {
	text   string
	quotas map[string]map[string]plans.Quota // by plan and feature; prices apart
	prices map[string]map[string]string      // unit_amount_decimal
	order  []string
}

var nameGen = rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,20}`)

func drawFile(t *rapid.T) drawn {
	features := rapid.SliceOfNDistinct(nameGen, 1, 4, rapid.ID[string]).Draw(t, "features")
	names := rapid.SliceOfNDistinct(nameGen, 2, 5, rapid.ID[string]).Draw(t, "plans")
	d := drawn{quotas: map[string]map[string]plans.Quota{}, prices: map[string]map[string]string{}, order: names}
	var b strings.Builder
	fmt.Fprintf(&b, "currency: usd # of the file\ndefault_plan: %q\nfeatures:\n", names[0])
	for i, f := range features {
		fmt.Fprintf(&b, "  %q: {meter: m%d}\n", f, i)
	}
	b.WriteString("plans:\n")
	for i, name := range names {
		fmt.Fprintf(&b, "  %q:\n", name)
		bills := i > 0 && rapid.Bool().Draw(t, "bills")
		if i > 0 {
			fmt.Fprintf(&b, "    prices: [price_%d]\n", i)
		}
		if bills {
			b.WriteString("    on_exceeded: bill_overage\n")
		}
		b.WriteString("    quota:\n")
		d.quotas[name], d.prices[name] = map[string]plans.Quota{}, map[string]string{}
		for _, f := range features {
			q, price, text := drawQuota(t, f, bills)
			d.quotas[name][f], d.prices[name][f] = q, price
			fmt.Fprintf(&b, "      %q: %s\n", f, text)
		}
	}
	d.text = b.String()
	return d
}

func drawQuota(t *rapid.T, feature string, bills bool) (q plans.Quota, price, text string) {
	q = plans.Quota{Feature: feature, WarnAt: []int{80, 100}, ContinueWithoutDatabase: bills}
	largest := int64(1) << 62
	if bills {
		largest = 1_000_000_000
	}
	n := rapid.Int64Range(0, largest).Draw(t, "included")
	q.Included = plans.Units(n)
	included := spell(t, n)
	if rapid.IntRange(0, 4).Draw(t, "unlimited") == 0 {
		q.Included, included = plans.Unlimited(), "unlimited"
		q.ContinueWithoutDatabase = true
		return q, "", included
	}
	if !bills {
		return q, "", included
	}
	q.BillOverage, q.Max = true, plans.Unlimited()
	if rapid.Bool().Draw(t, "short") {
		return q, "", included
	}
	most := rapid.Int64Range(0, largest).Draw(t, "max")
	q.Max = plans.Units(most)
	cents := rapid.Int64Range(1, 1_000_000).Draw(t, "cents")
	per := rapid.SampledFrom([]int64{1, 10, 1000, 1_000_000}).Draw(t, "per")
	price = trimmed(new(big.Rat).SetFrac64(cents, per).FloatString(12))
	return q, price, fmt.Sprintf(`{included: %s, overage: {price: "%d.%02d", per: %s, max: %s}}`,
		included, cents/100, cents%100, spell(t, per), spell(t, most))
}

// spell writes a count with or without underscores.
func spell(t *rapid.T, n int64) string {
	s := fmt.Sprint(n)
	if !rapid.Bool().Draw(t, "grouped") {
		return s
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "_" + s[i:]
	}
	return s
}

func trimmed(s string) string {
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func TestAFileMeansWhatItSaysAndSurvivesTheDatabase(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawFile(t)
		c, err := plans.Parse([]byte(want.text))
		require.NoError(t, err, want.text)

		var order []string
		for _, p := range c.Plans() {
			order = append(order, p.Name)
			for _, got := range p.Quotas() {
				require.Equal(t, want.prices[p.Name][got.Feature], got.Price.UnitAmountDecimal())
				got.Price = plans.Price{}
				require.Equal(t, want.quotas[p.Name][got.Feature], got)
			}
		}
		require.Equal(t, want.order, order)
		requireSurvivesJSON(t, c)

		stored, err := plans.Decode(reordered(t, c))
		require.NoError(t, err)
		require.Equal(t, c.Hash(), stored.Hash(), "jsonb orders keys its own way")
		require.Equal(t, c.Plans(), stored.Plans())
	})
}

// reordered is the encoding with other spaces and another order of keys, as jsonb gives it back.
func reordered(t require.TestingT, c *plans.Catalog) []byte {
	data, err := json.Marshal(c)
	require.NoError(t, err)
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	require.NoError(t, dec.Decode(&v))
	out, err := json.MarshalIndent(v, "", " ")
	require.NoError(t, err)
	return out
}

// One mistake anywhere in a valid file is found, and never taken for a valid file.
func TestAnyDamagedLineIsAnErrorInThatLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := strings.Split(strings.TrimSuffix(drawFile(t).text, "\n"), "\n")
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "line")
		indent := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " "))]
		damage := rapid.SampledFrom([]string{"zzzzz: 1", "on_exceeded: -1", `"": 1`}).Draw(t, "damage")
		damaged := append(append(append([]string{}, lines[:i]...), indent+damage), lines[i:]...)

		_, err := plans.Parse([]byte(strings.Join(damaged, "\n")))
		var all *plans.Errors
		require.ErrorAs(t, err, &all)
		found := false
		for _, p := range all.Problems {
			found = found || p.Line == i+1
		}
		require.True(t, found, "line %d of\n%s\ngave\n%s", i+1, strings.Join(damaged, "\n"), err)
	})
}

func TestAPriceIsExactOrAnError(t *testing.T) {
	t.Parallel()
	minor := map[string]int64{"usd": 100, "jpy": 1, "kwd": 1000, "isk": 100, "ugx": 100}
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(0, 999_999_999).Draw(t, "whole")
		fraction := rapid.StringMatching(`[0-9]{1,12}`).Draw(t, "fraction")
		per := rapid.OneOf(
			rapid.Int64Range(1, 1_000_000_000),
			rapid.SampledFrom([]int64{1, 2, 8, 1000, 1_000_000, 1 << 20}),
		).Draw(t, "per")
		currency := rapid.SampledFrom([]string{"usd", "jpy", "kwd", "isk", "ugx"}).Draw(t, "currency")
		amount := fmt.Sprintf("%d.%s", whole, fraction)

		exact, ok := new(big.Rat).SetString(amount)
		require.True(t, ok)
		exact.Mul(exact, new(big.Rat).SetFrac64(minor[currency], per))
		places, finite := exact.FloatPrec()

		p, err := plans.NewPrice(amount, per, currency)
		if !finite || places > 12 {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		got, ok := new(big.Rat).SetString(p.UnitAmountDecimal())
		require.True(t, ok)
		require.Zero(t, exact.Cmp(got), "%s is not %s", got, exact)
		require.NotContains(t, strings.ToLower(p.UnitAmountDecimal()), "e")
	})
}

func TestAmountsNeverWrap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b")
		sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
		got, err := plans.Units(a).Add(plans.Units(b))
		requireInt64(t, sum, got, err)

		product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		got, err = plans.Units(a).Times(b)
		requireInt64(t, product, got, err)
	})
}

func requireInt64(t require.TestingT, want *big.Int, got plans.Amount, err error) {
	if !want.IsInt64() {
		require.Error(t, err)
		return
	}
	require.NoError(t, err)
	require.Equal(t, plans.Units(want.Int64()), got)
}
