package stripesim

import (
	"strings"
	"time"
)

// version is a Stripe API version, such as 2024-06-20 or 2025-03-31.basil. Its
// date leads, so versions compare as text.
type version string

const (
	versionPinned      version = "2024-06-20"
	versionThinEvents  version = "2024-09-30"
	versionBasil       version = "2025-03-31"
	versionBillingMode version = "2025-06-30"
	versionClover      version = "2025-09-30"
)

// validVersion tells whether text is a date, with or without a release's name.
func validVersion(text string) bool {
	date, release, named := strings.Cut(text, ".")
	if _, err := time.Parse(time.DateOnly, date); err != nil {
		return false
	}
	return !named || release != "" && len(release) <= 20 && strings.Trim(release, "abcdefghijklmnopqrstuvwxyz") == ""
}

// from tells whether v is the given version or a later one.
func (v version) from(first version) bool { return v >= first }

// basil tells whether periods are on items and invoices name their parents.
func (v version) basil() bool { return v.from(versionBasil) }
