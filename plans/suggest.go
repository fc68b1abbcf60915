package plans

import (
	"strings"
	"unicode/utf8"
)

// didYouMean suggests the closest of the known words, or lists some when none is close.
func didYouMean(word string, known []string) string {
	if best := closest(word, known); best != "" {
		return "did you mean " + quote(best) + "?"
	}
	return listed(known)
}

// closest returns the known word with the fewest differences, when these are few; else "".
func closest(word string, known []string) string {
	best, bestDistance := "", -1
	if utf8.RuneCountInString(word) > 2*maxNameBytes {
		return ""
	}
	for _, k := range known {
		d := distance(strings.ToLower(word), strings.ToLower(k))
		if d <= max(1, len(k)/3) && (bestDistance < 0 || d < bestDistance) {
			best, bestDistance = k, d
		}
	}
	return best
}

// listed names the known words, a dozen at most.
func listed(known []string) string {
	const most = 12
	switch {
	case len(known) == 0:
		return ""
	case len(known) <= most:
		return "known here: " + strings.Join(known, ", ")
	}
	return "known here: " + strings.Join(known[:most], ", ") + ", …"
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between a and b.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, prev, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			cost := 1
			if x[i-1] == y[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(y)]
}
