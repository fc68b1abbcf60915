package web

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var plainAmount = regexp.MustCompile(`^[0-9]{1,15}(\.[0-9]{1,3})?$`)

// An amount that a customer may enter is a plain number, and means what it says.
func FuzzAmountsAreWhatWasEntered(f *testing.F) {
	for _, s := range []string{"25", "25.00", " 0.1 ", "", "-1", "1e3", "1,000", "٣", "99999999999999999999", "1.", ".5"} {
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, s string, exponent uint8) {
		d, err := parseAmount(s, currency{code: "usd", exponent: int32(exponent % 4)})
		if err != nil {
			return
		}
		require.Regexp(t, plainAmount, strings.TrimSpace(s))
		require.False(t, d.IsNegative())
		require.GreaterOrEqual(t, d.Exponent(), -int32(exponent%4))
	})
}
