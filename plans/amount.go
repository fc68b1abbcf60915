package plans

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Amount is a count of units, or unlimited. The zero value is 0 units: nothing.
// Amounts are immutable and comparable with ==.
type Amount struct {
	units     int64
	unlimited bool
}

// Units returns the amount of n units; a negative n gives 0.
func Units(n int64) Amount {
	return Amount{units: max(n, 0)}
}

// Unlimited returns the amount that no count reaches.
func Unlimited() Amount {
	return Amount{unlimited: true}
}

// IsUnlimited reports whether no count reaches the amount.
func (a Amount) IsUnlimited() bool { return a.unlimited }

// Units returns the count; finite is false, and n is 0, for an unlimited amount.
func (a Amount) Units() (n int64, finite bool) {
	return a.units, !a.unlimited
}

// Add returns a + b, unlimited when either is. An overflow of int64 is an error.
func (a Amount) Add(b Amount) (Amount, error) {
	if a.unlimited || b.unlimited {
		return Unlimited(), nil
	}
	if a.units > math.MaxInt64-b.units {
		return Amount{}, fmt.Errorf("add %s and %s units: the sum does not fit an int64", a, b)
	}
	return Amount{units: a.units + b.units}, nil
}

// Times returns the amount multiplied by n. Unlimited stays unlimited, also times 0.
// A negative n and an overflow of int64 are errors.
func (a Amount) Times(n int64) (Amount, error) {
	switch {
	case n < 0:
		return Amount{}, fmt.Errorf("multiply %s units by %d: the factor is negative", a, n)
	case a.unlimited:
		return a, nil
	case n > 0 && a.units > math.MaxInt64/n:
		return Amount{}, fmt.Errorf("multiply %s units by %d: the product does not fit an int64", a, n)
	}
	return Amount{units: a.units * n}, nil
}

// String is the count in digits, or "unlimited", as a plan file says it.
func (a Amount) String() string {
	if a.unlimited {
		return wordUnlimited
	}
	return strconv.FormatInt(a.units, 10)
}

// MarshalJSON writes a number, or null when unlimited.
func (a Amount) MarshalJSON() ([]byte, error) {
	if a.unlimited {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, a.units, 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes. Fractions and negative counts are errors.
func (a *Amount) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		*a = Unlimited()
		return nil
	}
	var n int64
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("read an amount: %w", err)
	}
	if n < 0 {
		return fmt.Errorf("read an amount: %d is negative", n)
	}
	*a = Amount{units: n}
	return nil
}
