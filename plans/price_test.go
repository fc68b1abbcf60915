package plans_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

func TestUnitAmountDecimal(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		amount   string
		per      int64
		currency string
		want     string
	}{
		{"0.40", 1000, "usd", "0.04"},
		{"0.40", 1, "usd", "40"},
		{"1", 3, "usd", ""},
		{"3", 3, "usd", "100"},
		{"40", 1000, "jpy", "0.04"},
		{"0.5", 1, "jpy", "0.5"},
		{"0.400", 1000, "kwd", "0.4"},
		{"5", 1, "ugx", "500"},
		{"5", 1, "isk", "500"},
		{"0.00", 1000, "usd", "0"},
		{"999999999.999999999999", 100, "usd", "999999999.999999999999"},
		{"0.000000000001", 100, "usd", "0.000000000001"},
		{"0.000000000001", 1000, "usd", ""},
		{"0.000000000001", 1, "jpy", "0.000000000001"},
		{"0.000000000001", 10, "jpy", ""},
	} {
		p, err := plans.NewPrice(tc.amount, tc.per, tc.currency)
		if tc.want == "" {
			require.ErrorContains(t, err, "no exact form within 12 decimal places", "%v", tc)
			continue
		}
		require.NoError(t, err, "%v", tc)
		require.Equal(t, tc.want, p.UnitAmountDecimal(), "%v", tc)
		require.Equal(t, tc.want, p.UnitAmount().String(), "%v", tc)
		require.Equal(t, tc.per, p.Per())
		require.False(t, p.FromStripe())
	}
}

func TestPricesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, amount := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "1,5", "0x1", " 1", "1 ", "NaN", "Inf", "1_000",
		"1234567890", "0.1234567890123", "١"} {
		_, err := plans.NewPrice(amount, 1, "usd")
		require.ErrorContains(t, err, "is not a price", amount)
	}
	for _, per := range []int64{0, -1, math.MinInt64, math.MaxInt64, 1_000_000_001} {
		_, err := plans.NewPrice("1", per, "usd")
		require.ErrorContains(t, err, "per is", per)
	}
	for _, currency := range []string{"", "us", "usdt", "USD", "xxx", "d a", "aed ", " ae"} {
		_, err := plans.NewPrice("1", 1, currency)
		require.ErrorContains(t, err, "not a currency", currency)
	}
}

func TestPricesForPeople(t *testing.T) {
	t.Parallel()
	for want, in := range map[string][2]string{
		"0.40 usd per 1000": {"0.4", "usd"}, "40 jpy per 1000": {"40", "jpy"}, "0.400 kwd per 1000": {"0.4", "kwd"},
		"0.00125 usd per 1000": {"0.00125", "usd"},
	} {
		p, err := plans.NewPrice(in[0], 1000, in[1])
		require.NoError(t, err)
		require.Equal(t, want, p.String())
	}
	require.Equal(t, "as at Stripe", plans.Price{}.String())
	require.True(t, plans.Price{}.FromStripe())
	require.Empty(t, plans.Price{}.UnitAmountDecimal())

	a, err := plans.NewPrice("0.40", 1000, "usd")
	require.NoError(t, err)
	b, err := plans.NewPrice("400", 1_000_000, "usd")
	require.NoError(t, err)
	c, err := plans.NewPrice("0.40", 1000, "eur")
	require.NoError(t, err)
	require.True(t, a.Equal(b))
	require.False(t, a.Equal(c))
	require.False(t, a.Equal(plans.Price{}))
}

func TestAmounts(t *testing.T) {
	t.Parallel()
	var zero plans.Amount
	require.Equal(t, plans.Units(0), zero)
	require.Equal(t, "0", zero.String())
	require.Equal(t, plans.Units(0), plans.Units(-5))
	require.Equal(t, "unlimited", plans.Unlimited().String())
	n, finite := plans.Unlimited().Units()
	require.False(t, finite)
	require.Zero(t, n)

	sum, err := plans.Units(5).Add(plans.Unlimited())
	require.NoError(t, err)
	require.True(t, sum.IsUnlimited())
	product, err := plans.Unlimited().Times(0)
	require.NoError(t, err)
	require.True(t, product.IsUnlimited())
	_, err = plans.Units(5).Times(-1)
	require.Error(t, err)
	_, err = plans.Units(math.MaxInt64).Add(plans.Units(1))
	require.Error(t, err)
}
