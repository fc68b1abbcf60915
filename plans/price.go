package plans

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"
)

// Price is what overage costs: an amount of money per so many units, linear. The zero value means
// that the file states none and the Stripe price decides. Prices are immutable.
type Price struct {
	amount   decimal.Decimal // in whole currency units: dollars, not cents
	per      int64
	currency string
	unit     decimal.Decimal // minor units per unit, at most 12 places, exact
}

// NewPrice makes a price of amount (a decimal string in whole currency units, "0.40") per so many
// units. It is an error when the price of one unit in minor units has no exact decimal form of at
// most 12 places, as Stripe's unit_amount_decimal demands, when the amount is no plain decimal,
// when per is not in 1..1e9, or when the currency is unknown.
func NewPrice(amount string, per int64, currency string) (Price, error) {
	exponent, ok := CurrencyExponent(currency)
	if !ok {
		return Price{}, fmt.Errorf("%s is not a currency that Stripe knows", quote(currency))
	}
	if per < 1 || per > maxPer {
		return Price{}, fmt.Errorf("per is %d, not 1 to %d", per, maxPer)
	}
	if !isDecimal(amount) {
		return Price{}, fmt.Errorf("%s is not a price: up to %d digits, a point, up to %d digits",
			quote(amount), maxPriceWhole, maxPlaces)
	}
	value, err := decimal.NewFromString(trimZeros(amount)) // so that "0.40" and "0.4" are one value
	if err != nil {
		return Price{}, fmt.Errorf("read the price %s: %w", quote(amount), err)
	}
	minor := value.Shift(exponent)
	unit, rest := minor.QuoRem(decimal.NewFromInt(per), maxPlaces)
	if !rest.IsZero() {
		return Price{}, fmt.Errorf("%s %s ÷ %d has no exact form within %d decimal places",
			plain(minor), minorName(exponent), per, maxPlaces)
	}
	return Price{amount: value, per: per, currency: currency, unit: unit}, nil
}

// FromStripe reports whether the file states no price, so that the Stripe price decides.
func (p Price) FromStripe() bool { return p.per == 0 }

// Amount is the stated price in whole currency units (dollars), for Per units.
func (p Price) Amount() decimal.Decimal { return p.amount }

// Per is the number of units that Amount buys; 0 when FromStripe.
func (p Price) Per() int64 { return p.per }

// UnitAmount is the price of one unit in minor units of the currency (cents), exact.
func (p Price) UnitAmount() decimal.Decimal { return p.unit }

// UnitAmountDecimal is UnitAmount as Stripe writes unit_amount_decimal: plain digits, at most 12
// places, no trailing zeros. It is empty when FromStripe.
func (p Price) UnitAmountDecimal() string {
	if p.FromStripe() {
		return ""
	}
	return plain(p.unit)
}

// Equal reports whether both charge the same for one unit in the same currency.
func (p Price) Equal(other Price) bool {
	return p.FromStripe() == other.FromStripe() && p.currency == other.currency && p.unit.Equal(other.unit)
}

// String is the price as a person writes it: "0.40 usd per 1000".
func (p Price) String() string {
	if p.FromStripe() {
		return "as at Stripe"
	}
	exponent, _ := CurrencyExponent(p.currency)
	places := max(exponent, -p.amount.Exponent())
	return fmt.Sprintf("%s %s per %d", p.amount.StringFixed(places), p.currency, p.per)
}

// plain writes a decimal without exponent and without trailing zeros.
func plain(d decimal.Decimal) string { return trimZeros(d.String()) }

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func minorName(exponent int32) string {
	if exponent == 0 {
		return "whole units"
	}
	return "minor units"
}

// isDecimal accepts 1 to 9 digits, and a point with 1 to 12 digits after it: no sign, no exponent.
func isDecimal(s string) bool {
	whole, fraction, point := strings.Cut(s, ".")
	if !isDigits(whole) || len(whole) > maxPriceWhole {
		return false
	}
	return !point || isDigits(fraction) && len(fraction) <= maxPlaces
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
