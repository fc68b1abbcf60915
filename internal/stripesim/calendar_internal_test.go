package stripesim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Case 2: whatever the anchor and the interval, periods are contiguous, grow,
// hold their own instants, and keep the anchor's day where the month has it.
func TestPeriodsOfAnyAnchor(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		anchor := time.Unix(rapid.Int64Range(1_500_000_000, 2_000_000_000).Draw(t, "anchor"), 0).UTC()
		r := &recurring{interval: rapid.SampledFrom([]string{"day", "week", "month", "year"}).Draw(t, "interval"), count: rapid.Int64Range(1, 6).Draw(t, "count")}
		at := anchor.Add(time.Duration(rapid.Int64Range(-10*365*24*3600, 10*365*24*3600).Draw(t, "offset")) * time.Second)
		start, end := previousBoundary(anchor, r, at), nextBoundary(anchor, r, at)
		require.False(t, start.After(at))
		require.True(t, end.After(at))
		require.Equal(t, end, nextBoundary(anchor, r, start), "one period")
		require.Equal(t, start, previousBoundary(anchor, r, end.Add(-time.Nanosecond)))
		require.Equal(t, anchor.Sub(anchor.Truncate(24*time.Hour)), end.Sub(end.Truncate(24*time.Hour)), "the time of day stays")
		if r.interval == "month" || r.interval == "year" {
			last := time.Date(end.Year(), end.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
			require.Equal(t, min(anchor.Day(), last), end.Day())
		}
	})
}

func TestIntervalsThatDivideEachOther(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b recurring
		want bool
	}{
		{recurring{interval: "month", count: 1}, recurring{interval: "year", count: 1}, true},
		{recurring{interval: "month", count: 5}, recurring{interval: "year", count: 1}, false},
		{recurring{interval: "month", count: 3}, recurring{interval: "month", count: 2}, false},
		{recurring{interval: "day", count: 1}, recurring{interval: "week", count: 2}, true},
		{recurring{interval: "week", count: 1}, recurring{interval: "month", count: 1}, false},
	} {
		require.Equal(t, tc.want, divides(&tc.a, &tc.b))
		require.Equal(t, tc.want, divides(&tc.b, &tc.a))
	}
}

func TestMonthsHaveTheirLastDay(t *testing.T) {
	t.Parallel()
	leap := time.Date(2028, 2, 29, 23, 59, 59, 0, time.UTC)
	require.Equal(t, time.Date(2029, 2, 28, 23, 59, 59, 0, time.UTC), boundary(leap, "year", 1, 1))
	require.Equal(t, time.Date(2032, 2, 29, 23, 59, 59, 0, time.UTC), boundary(leap, "year", 1, 4))
	require.Equal(t, time.Date(2028, 1, 29, 23, 59, 59, 0, time.UTC), boundary(leap, "month", 1, -1))
}
