package stripesim

import "time"

// boundary is the k-th period boundary of an anchor. It is computed from the
// anchor and never from another boundary, so the 31st comes back after
// February.
func boundary(anchor time.Time, interval string, count, k int64) time.Time {
	n := int(count * k)
	switch interval {
	case "day":
		return anchor.AddDate(0, 0, n)
	case "week":
		return anchor.AddDate(0, 0, 7*n)
	case "year":
		return addMonths(anchor, 12*n)
	}
	return addMonths(anchor, n)
}

// addMonths keeps the day of the month, or takes the month's last one.
func addMonths(t time.Time, n int) time.Time {
	first := time.Date(t.Year(), t.Month()+time.Month(n), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return first.AddDate(0, 0, min(t.Day(), last)-1)
}

// nextBoundary is the first boundary after a time, which may lie before the
// anchor.
func nextBoundary(anchor time.Time, r *recurring, after time.Time) time.Time {
	k := int64(after.Sub(anchor).Hours()/24) / longestDays(r)
	for boundary(anchor, r.interval, r.count, k).After(after) {
		k--
	}
	for !boundary(anchor, r.interval, r.count, k).After(after) {
		k++
	}
	return boundary(anchor, r.interval, r.count, k)
}

// previousBoundary is the last boundary at or before a time.
func previousBoundary(anchor time.Time, r *recurring, at time.Time) time.Time {
	k := int64(at.Sub(anchor).Hours()/24)/longestDays(r) + 1
	for !boundary(anchor, r.interval, r.count, k).After(at) {
		k++
	}
	for boundary(anchor, r.interval, r.count, k).After(at) {
		k--
	}
	return boundary(anchor, r.interval, r.count, k)
}

func longestDays(r *recurring) int64 {
	switch r.interval {
	case "day":
		return r.count
	case "week":
		return 7 * r.count
	case "year":
		return 366 * r.count
	}
	return 31 * r.count
}

// sameInterval tells whether two prices renew together.
func sameInterval(a, b *recurring) bool { return a.interval == b.interval && a.count == b.count }

// divides tells whether the shorter interval of two divides the longer one, as
// flexible billing demands.
func divides(a, b *recurring) bool {
	ma, mb := months(a), months(b)
	if ma > 0 && mb > 0 {
		return ma%mb == 0 || mb%ma == 0
	}
	if ma > 0 || mb > 0 {
		return false
	}
	da, db := longestDays(a), longestDays(b)
	return da%db == 0 || db%da == 0
}

func months(r *recurring) int64 {
	switch r.interval {
	case "month":
		return r.count
	case "year":
		return 12 * r.count
	}
	return 0
}
