package main

import (
	"testing"

	"github.com/shopspring/decimal"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/books"
)

func TestUnitsAreWorthWhatAnInvoiceLineSays(t *testing.T) {
	t.Parallel()
	price := func(s string) decimal.NullDecimal {
		return decimal.NullDecimal{Decimal: decimal.RequireFromString(s), Valid: true}
	}
	for _, c := range []struct {
		units          int64
		unit, currency string
		want           string
	}{
		{234_567, "0.04", "usd", "93.83"}, {0, "0.04", "usd", "0.00"}, {5, "0.1", "jpy", "1"}, {1_000, "0.0004", "usd", "0.00"}, {1_250, "0.0004", "usd", "0.01"},
	} {
		require.Equal(t, c.want, *books.Worth(c.units, price(c.unit), c.currency), c)
	}
	require.Nil(t, books.Worth(1, decimal.NullDecimal{}, "usd"))
	require.Nil(t, books.Worth(1, price("1"), ""))
	require.Equal(t, "no price known", orUnknown(nil, "usd"))
}
