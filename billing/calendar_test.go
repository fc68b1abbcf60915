package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/schematest"
)

func TestCase01AnchorOnTheLastOfTheMonth(t *testing.T) {
	t.Parallel()
	anchor := at("2026-01-31T10:00:00Z")
	var got []string
	for i, cursor := 0, anchor; i < 26; i++ {
		s, e := billing.NaturalPeriod(anchor, 1, cursor)
		require.Equal(t, cursor, s)
		got = append(got, s.Format("2006-01-02 15"))
		cursor = e
	}
	require.Equal(t, []string{"2026-01-31 10", "2026-02-28 10", "2026-03-31 10", "2026-04-30 10", "2026-05-31 10"}, got[:5])
	require.Equal(t, "2028-02-29 10", got[25], "from the anchor, never from the last boundary")
}

func TestCase02PeriodsAreContiguousAndAgreeWithTheDatabase(t *testing.T) {
	t.Parallel()
	db := schematest.Pool(t)
	rapid.Check(t, func(r *rapid.T) {
		anchor := at("2024-01-01T00:00:00Z").Add(time.Duration(rapid.Int64Range(0, 400*24*3600).Draw(r, "anchor")) * time.Second)
		months := rapid.SampledFrom([]int{1, 3, 12}).Draw(r, "months")
		when := anchor.Add(time.Duration(rapid.Int64Range(-3*365*24*3600, 10*365*24*3600).Draw(r, "when")) * time.Second)
		s, e := billing.NaturalPeriod(anchor, months, when)
		require.False(r, when.Before(s))
		require.True(r, when.Before(e))
		again, next := billing.NaturalPeriod(anchor, months, e)
		require.Equal(r, e, again, "the next one begins where this one ends")
		require.True(r, next.After(e))
		before, end := billing.NaturalPeriod(anchor, months, s.Add(-time.Nanosecond))
		require.Equal(r, s, end)
		require.True(r, before.Before(s))
		var ds, de time.Time
		require.NoError(r, db.QueryRow(t.Context(), "SELECT starts, ends FROM weir.natural_period($1, $2, $3)", anchor, months, when).Scan(&ds, &de))
		require.True(r, ds.Equal(s) && de.Equal(e), "the database says %s – %s, here %s – %s", ds.UTC(), de.UTC(), s, e)
	})
}
