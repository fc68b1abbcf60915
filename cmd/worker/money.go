package main

import (
	"strings"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/plans"
)

// worth is what units cost at a price in minor units, as a plain number of whole units of the currency, rounded as an
// invoice line is. Nil: no price is known.
func worth(units int64, unitAmount decimal.NullDecimal, currency string) *string {
	one, err := plans.NewPrice("1", 1, currency) // one whole unit is as many minor units as the currency has
	if !unitAmount.Valid || err != nil {
		return nil
	}
	exponent := int32(len(one.UnitAmount().String()) - 1)
	text := unitAmount.Decimal.Mul(decimal.NewFromInt(units)).Round(0).Shift(-exponent).StringFixed(exponent)
	return &text
}

func orUnknown(amount *string, currency string) string {
	if amount == nil {
		return "no price known"
	}
	return *amount + " " + strings.ToUpper(currency)
}
