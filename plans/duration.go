package plans

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	day     = 24 * time.Hour
	maxDays = 10_000 // so that days and the rest add up within an int64
)

// parseDuration reads Go's duration syntax plus days: "7d", "1d12h", "90s". A day is 24 hours.
func parseDuration(text string) (time.Duration, error) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%s is not a duration", quote(text))
		}
		return d, nil
	}
	n, err := strconv.ParseInt(days, 10, 32)
	if err != nil || !isDigits(days) || n > maxDays {
		return 0, fmt.Errorf("%s is not a duration", quote(text))
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, nil
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || more > maxDays*day {
		return 0, fmt.Errorf("%s is not a duration", quote(text))
	}
	return d + more, nil
}

// durationText writes what parseDuration reads, without empty minutes and seconds.
func durationText(d time.Duration) string {
	if d != 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if short, found := strings.CutSuffix(s, "m0s"); found {
		s = short + "m"
	}
	if short, found := strings.CutSuffix(s, "h0m"); found {
		s = short + "h"
	}
	return s
}

func suggestDuration(text string) string {
	if isDigits(text) && len(text) <= 6 {
		return "write the unit too: " + text + "s"
	}
	return "write a number with a unit: 30s, 1m, 24h, 7d"
}
