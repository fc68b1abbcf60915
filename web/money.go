package web

import (
	"strings"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/plans"
)

// currency writes amounts of one currency. The zero value knows none.
type currency struct {
	code     string // lower-case
	exponent int32  // decimals of the minor unit
}

// currencyOf knows the currencies that plan files know.
func currencyOf(code string) (currency, bool) {
	exponent, known := plans.CurrencyExponent(code)
	if !known {
		return currency{}, false
	}
	return currency{code: code, exponent: exponent}, true
}

func symbol(code string) string {
	switch code {
	case "usd":
		return "$"
	case "eur":
		return "€"
	case "gbp":
		return "£"
	case "jpy":
		return "¥"
	}
	return ""
}

// line is what units cost in minor units, rounded once.
func line(units int64, unitAmount decimal.Decimal) decimal.Decimal {
	return decimal.NewFromInt(units).Mul(unitAmount).Round(0)
}

// plain is an amount of minor units in whole ones, as JSON has it: 81.60.
func (c currency) plain(minor decimal.Decimal) string {
	return minor.Shift(-c.exponent).StringFixed(c.exponent)
}

// text is an amount of minor units for people: $1,081.60. Fractions of a minor unit are kept, as prices have them.
func (c currency) text(minor decimal.Decimal) string {
	whole := minor.Abs().Shift(-c.exponent)
	s := whole.StringFixed(max(c.exponent, -whole.Exponent()))
	if before, after, found := strings.Cut(s, "."); found {
		// No zeros behind the last decimal that says something, but never less than the currency has.
		for len(after) > int(c.exponent) && strings.HasSuffix(after, "0") {
			after = after[:len(after)-1]
		}
		s = before
		if after != "" {
			s += "." + after
		}
	}
	before, after, found := strings.Cut(s, ".")
	s = wording.Group(before)
	if found {
		s += "." + after
	}
	if sign := symbol(c.code); sign != "" {
		s = sign + s
	} else {
		s += " " + strings.ToUpper(c.code)
	}
	if minor.IsNegative() {
		s = "−" + s
	}
	return s
}

// whole is an estimate: without decimals once it is large enough to do without.
func (c currency) whole(minor decimal.Decimal) string {
	if unit := decimal.New(1, c.exponent); c.exponent > 0 && minor.GreaterThan(unit.Mul(decimal.NewFromInt(20))) {
		return strings.Replace(c.text(minor.DivRound(unit, 0).Mul(unit)), "."+strings.Repeat("0", int(c.exponent)), "", 1)
	}
	return c.text(minor)
}

// price is what overage costs, per as many units as make a readable amount: $0.40 per 1,000 events.
func (c currency) price(unitAmount decimal.Decimal, u unit) string {
	per := int64(1)
	for unitAmount.IsPositive() && per < 1_000_000_000 && unitAmount.Mul(decimal.NewFromInt(per)).LessThan(decimal.NewFromInt(1)) {
		per *= 1000
	}
	amount := c.text(unitAmount.Mul(decimal.NewFromInt(per)))
	if per == 1 {
		return amount + " per " + u.one
	}
	return amount + " per " + wording.Count(per) + " " + u.many
}

// capUnits is how many units an amount of whole currency units buys at most: floor(cap / unit price).
func (c currency) capUnits(amount, unitAmount decimal.Decimal) int64 {
	q, _ := amount.Shift(c.exponent).QuoRem(unitAmount, 0)
	return q.IntPart()
}

// unit is what one of a feature is called, and several.
type unit struct{ one, many string }

func unitOf(f plans.Feature) unit {
	one, many := wording.Unit(f.Unit, f.Units)
	return unit{one, many}
}

// of is a count with its unit: 1 event, 2,000 events.
func (u unit) of(n int64) string {
	return wording.Of(n, u.one, u.many)
}
