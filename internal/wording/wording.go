// Package wording writes numbers as people read them.
package wording

import "strconv"

// Count writes a number in groups of three: 1,234,567. A negative one has a minus sign, not a hyphen.
func Count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	if n < 0 {
		return "−" + Group(digits[1:])
	}
	return Group(digits)
}

// Group is Count for digits that stand as text already.
func Group(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Of is a number with what is counted: 1 event, 2,000 events.
func Of(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Count(n) + " " + many
}
