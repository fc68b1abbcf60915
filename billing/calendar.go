package billing

import (
	"time"

	"github.com/weirhq/weir/plans"
)

// addMonths counts months from an anchor, in UTC; a day that the month lacks becomes its last one.
func addMonths(anchor time.Time, n int) time.Time {
	y, m, d := anchor.Date()
	first := time.Date(y, m+time.Month(n), 1, anchor.Hour(), anchor.Minute(), anchor.Second(), anchor.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(d, last)-1)
}

// naturalPeriod is the period of so many months, cut from the anchor and never from the last boundary, that holds at.
// It agrees with weir.natural_period.
func naturalPeriod(anchor time.Time, months int, at time.Time) (start, end time.Time) {
	anchor, at = anchor.UTC(), at.UTC()
	k := ((at.Year()-anchor.Year())*12 + int(at.Month()) - int(anchor.Month())) / months
	for addMonths(anchor, k*months).After(at) {
		k--
	}
	for !addMonths(anchor, (k+1)*months).After(at) {
		k++
	}
	return addMonths(anchor, k*months), addMonths(anchor, (k+1)*months)
}

// onBoundary reports whether a period that is cut from the anchor begins at at.
func onBoundary(anchor time.Time, months int, at time.Time) bool {
	if anchor.IsZero() {
		return false
	}
	start, _ := naturalPeriod(anchor, months, at)
	return start.Equal(at)
}

func intervalMonths(i plans.Interval) int {
	switch i {
	case plans.Quarterly:
		return 3
	case plans.Yearly:
		return 12
	case plans.Monthly:
	}
	return 1
}
