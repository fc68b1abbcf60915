package web

import (
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
)

// The charts are drawn in fixed coordinates and stretched by the page.
const (
	barWidth    = 1000
	chartWidth  = 1000
	chartHeight = 140
	maxBars     = 400 // days of the longest period that is drawn; longer ones show their last days
)

// bar is the share of what is included and what lies above.
type bar struct {
	Included int64 // width of the units within the allowance
	Over     int64 // width of the overage, behind it
	Mark     int64 // where the allowance ends; -1: at the end
}

// barOf draws used units against the allowance. An unlimited one has no share to show.
func barOf(l *books.StatementLine) bar {
	if l.Included == nil {
		return bar{Mark: -1}
	}
	whole := max(*l.Included, l.Used, 1)
	b := bar{Included: scale(l.Free, whole, barWidth), Over: scale(l.Overage, whole, barWidth), Mark: -1}
	if l.Free > 0 {
		b.Included = max(b.Included, 4) // a little is not nothing
	}
	if l.Overage > 0 {
		b.Mark = b.Included
		b.Over = max(b.Over, 4)
	}
	return b
}

// column is one day of a chart.
type column struct {
	X, Width       int64
	Top, Height    int64 // of the included units
	OverTop        int64
	OverHeight     int64
	Today, Ahead   bool
	Label          string
	Used, Overage  string
	OverageNotZero bool
}

// chart is the usage of a period by day.
type chart struct {
	Columns []column
	Most    string // what the top of the chart stands for
	Half    string
	First   string
	Middle  string
	Last    string
}

// chartOf draws every day of a period, days to come included.
func chartOf(l *books.StatementLine, now time.Time) chart {
	first, last := dayOf(l.Starts), dayOf(l.Ends.Add(-time.Microsecond))
	n := int64(last.Sub(first)/(24*time.Hour)) + 1
	if n > maxBars {
		first, n = last.AddDate(0, 0, 1-maxBars), maxBars
	}
	used := make(map[time.Time]books.StatementDay, len(l.Days))
	top := int64(1)
	for _, d := range l.Days {
		used[dayOf(d.Day)] = d
		top = max(top, d.Used)
	}
	top = roundUp(top)
	today := dayOf(now)
	c := chart{Most: wording.Count(top), First: shortDay(first), Middle: shortDay(first.AddDate(0, 0, int(n/2))), Last: shortDay(last)}
	if top%2 == 0 {
		c.Half = wording.Count(top / 2)
	}
	for i := range n {
		day := first.AddDate(0, 0, int(i))
		d := used[day]
		left, right := i*chartWidth/n, (i+1)*chartWidth/n
		gap := (right - left) / 5
		over := scale(d.Overage, top, chartHeight)
		free := scale(max(0, d.Used-d.Overage), top, chartHeight)
		if d.Used > 0 && over+free < 2 {
			free = 2 // a little is not nothing
		}
		c.Columns = append(c.Columns, column{
			X: left, Width: right - left - gap, Top: chartHeight - free, Height: free, OverTop: chartHeight - free - over, OverHeight: over,
			Today: day.Equal(today), Ahead: day.After(today), Label: longDay(day), Used: wording.Count(d.Used), Overage: wording.Count(d.Overage), OverageNotZero: d.Overage != 0,
		})
	}
	return c
}

// scale maps part of whole to a length, without overflow.
func scale(part, whole, length int64) int64 {
	if part <= 0 {
		return 0
	}
	if part > 1<<50 {
		part, whole = part>>16, max(whole>>16, 1)
	}
	return min(length, part*length/whole)
}

// roundUp is the next number whose half is easily read too.
func roundUp(n int64) int64 {
	step := int64(1)
	for step < 1<<56 && step*100 <= n {
		step *= 10
	}
	for _, m := range []int64{1, 2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 40, 50, 60, 80, 100} {
		if n <= m*step {
			return m * step
		}
	}
	return n
}

// about cuts an estimate to three digits that say something.
func about(n int64) int64 {
	step := int64(1)
	for n/step >= 1000 {
		step *= 10
	}
	return n / step * step
}

func dayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
func shortDay(t time.Time) string { return t.UTC().Format("2 Jan") }
func longDay(t time.Time) string  { return t.UTC().Format("Mon 2 Jan") }
