package web

import (
	"net/url"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/internal/wording"
)

// All instants are shown in UTC, and say so.
func instant(t time.Time) string   { return t.UTC().Format("2 Jan 2006, 15:04:05") + " UTC" }
func day(t time.Time) string       { return t.UTC().Format("2 Jan 2006") }
func clockTime(t time.Time) string { return t.UTC().Format("15:04") + " UTC" }

// span is a half-open period for people. Bounds at midnight are told as whole days, the last one included.
func span(from, to time.Time) string {
	from, to = from.UTC(), to.UTC()
	if from.Equal(dayOf(from)) && to.Equal(dayOf(to)) && to.Sub(from) > 24*time.Hour {
		return day(from) + " – " + day(to.AddDate(0, 0, -1))
	}
	return from.Format("2 Jan 2006, 15:04") + " – " + to.Format("2 Jan 2006, 15:04") + " UTC"
}

// percent is a share in whole percent, cut and not rounded: 99 % until all is used.
func percent(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	if part > 0 && !reaches(part, whole, 1) {
		return "<1 %"
	}
	return wording.Count(decimal.NewFromInt(part).Mul(decimal.NewFromInt(100)).Div(decimal.NewFromInt(whole)).Floor().IntPart()) + " %"
}

// reaches reports whether part is at least that many percent of whole.
func reaches(part, whole, percent int64) bool {
	return decimal.NewFromInt(part).Mul(decimal.NewFromInt(100)).GreaterThanOrEqual(decimal.NewFromInt(whole).Mul(decimal.NewFromInt(percent)))
}

func signed(n int64, u unit) string {
	if n > 0 {
		return "+" + u.of(n)
	}
	return u.of(n)
}

func upper(code string) string { return strings.ToUpper(code) }

// webURL passes on a link that leads to a web page, and nothing else.
func webURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return ""
	}
	return u.String()
}
