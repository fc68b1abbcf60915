// Package wording writes numbers, and what they count, as people read them.
package wording

import (
	"strconv"
	"strings"
)

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

// Unit names one of what is counted and several: as they are given, several by the rule of English where they are not,
// and units where nothing is.
func Unit(one, many string) (string, string) {
	switch {
	case one == "":
		return "unit", "units"
	case many == "":
		return one, plural(one)
	}
	return one, many
}

// plural is the plural of a regular English noun: events, queries, batches.
func plural(one string) string {
	lower := strings.ToLower(one)
	stem, y := strings.CutSuffix(lower, "y")
	last := stem[max(0, len(stem)-1):]
	switch {
	case y && last >= "a" && last <= "z" && !strings.Contains("aeiou", last):
		return one[:len(one)-1] + "ies"
	case strings.HasSuffix(lower, "s"), strings.HasSuffix(lower, "x"), strings.HasSuffix(lower, "z"), strings.HasSuffix(lower, "ch"), strings.HasSuffix(lower, "sh"):
		return one + "es"
	}
	return one + "s"
}
