package plans

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

const wordUnlimited = "unlimited"

// parseCount reads a whole number as a plan file writes it: digits, with single underscores
// between them for the eye. On failure it says what is wrong and what to write.
func parseCount(text string) (n int64, message, suggestion string) {
	digits := strings.ReplaceAll(text, "_", "")
	switch {
	case strings.HasPrefix(text, "-") && isDigits(digits[1:]):
		return 0, quote(text) + " is negative", "write 0 or more"
	case !isDigits(digits) || strings.HasPrefix(text, "_") || strings.HasSuffix(text, "_") || strings.Contains(text, "__"):
		return 0, quote(text) + " is not a whole number", suggestCount(text)
	case len(digits) > 1 && digits[0] == '0':
		return 0, quote(text) + " begins with a zero", "write " + strings.TrimLeft(digits[:len(digits)-1], "0") + digits[len(digits)-1:]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return 0, quote(text) + " is too large", "write unlimited, or a smaller number"
	}
	if err != nil {
		return 0, quote(text) + " is not a whole number", suggestCount(text)
	}
	return n, "", ""
}

// suggestCount guesses which whole number was meant.
func suggestCount(text string) string {
	lower := strings.ToLower(text)
	if s := strings.ReplaceAll(lower, ",", ""); s != lower && isDigits(s) {
		return "write " + grouped(s)
	}
	for suffix, zeros := range map[string]string{"k": "000", "m": "000000"} {
		if s, found := strings.CutSuffix(lower, suffix); found && isDigits(s) && len(s) <= 9 {
			return "write " + grouped(s+zeros)
		}
	}
	if whole, fraction, point := strings.Cut(lower, "."); point && isDigits(whole) && strings.Trim(fraction, "0") == "" {
		return "write " + grouped(whole)
	}
	return "write digits, 1_000_000 if you like; units are never fractions"
}

// grouped writes digits in groups of three: 1_000_000.
func grouped(digits string) string {
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "0"
	}
	var b strings.Builder
	for i, r := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// scalar returns the text of a single value, or reports that n is none.
func (r *reader) scalar(path string, n *node, want string) (string, bool) {
	switch n.kind {
	case kindScalar:
		return n.text, true
	case kindNull:
		r.report(path, n.at, "has no value", "write "+want+", or delete the key")
	case kindList, kindMapping:
		r.report(path, n.at, "is "+n.kind.String()+", not "+want, "")
	}
	return "", false
}

// text reads a string. Numbers are text too; what may be in it is checked later.
func (r *reader) text(path string, n *node, want string) string {
	s, _ := r.scalar(path, n, want)
	return s
}

// count reads a whole number.
func (r *reader) count(path string, n *node) (int64, bool) {
	s, ok := r.scalar(path, n, "a whole number")
	if !ok {
		return 0, false
	}
	if n.quoted {
		r.report(path, n.at, quote(s)+" is text, not a whole number", "remove the quotes")
		return 0, false
	}
	v, message, suggestion := parseCount(s)
	if message != "" {
		r.report(path, n.at, message, suggestion)
		return 0, false
	}
	return v, true
}

// amount reads a whole number or the word unlimited.
func (r *reader) amount(path string, n *node) (Amount, bool) {
	if n.kind == kindScalar {
		switch strings.ToLower(n.text) {
		case wordUnlimited:
			if n.text == wordUnlimited {
				return Unlimited(), true
			}
			fallthrough
		case "infinite", "infinity", "inf", ".inf", "none", "max":
			r.report(path, n.at, quote(n.text)+" is not a count", "write unlimited for no bound, 0 for none")
			return Amount{}, false
		}
		if digits, negative := strings.CutPrefix(n.text, "-"); negative && isDigits(digits) && !n.quoted {
			r.report(path, n.at, quote(n.text)+" is negative", "write unlimited for no bound, 0 for none")
			return Amount{}, false
		}
	}
	v, ok := r.count(path, n)
	return Units(v), ok
}

// word reads one of the known words.
func (r *reader) word(path string, n *node, known ...string) string {
	s, ok := r.scalar(path, n, strings.Join(known, " or "))
	if !ok {
		return ""
	}
	for _, k := range known {
		if s == k {
			return s
		}
	}
	suggestion := "write one of these"
	if best := closest(s, known); best != "" {
		suggestion = "did you mean " + quote(best) + "?"
	}
	r.report(path, n.at, quote(s)+" is not one of "+strings.Join(known, ", "), suggestion)
	return ""
}

// flag reads true or false.
func (r *reader) flag(path string, n *node) bool {
	s, ok := r.scalar(path, n, "true or false")
	if ok && (n.quoted || s != "true" && s != "false") {
		r.report(path, n.at, quote(s)+" is neither true nor false", "write true or false, without quotes")
	}
	return s == "true"
}

// duration reads a duration; its bounds are checked later.
func (r *reader) duration(path string, n *node) time.Duration {
	s, ok := r.scalar(path, n, "a duration such as 1m")
	if !ok {
		return 0
	}
	d, err := parseDuration(s)
	if err != nil {
		r.report(path, n.at, err.Error(), suggestDuration(s))
	}
	return d
}
