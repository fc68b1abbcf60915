package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A stamp lies 60 s inside segment, window and period, 2 minutes ago at the latest, and within Stripe's 35 days.
func TestWhichMinutesAreLegal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	type bounds struct{ segment, segmentEnd, window, windowEnd, period, periodEnd, now string }
	all := bounds{
		segment: "2026-01-10T09:30:00Z", window: "2026-01-10T09:30:00Z", windowEnd: "2026-02-10T09:30:00Z",
		period: "2026-01-10T09:30:00Z", periodEnd: "2026-02-10T09:30:00Z", now: "2026-02-10T10:00:00Z",
	}
	for name, c := range map[string]struct {
		set    func(b *bounds)
		lo, hi string
	}{
		"all the same":                {func(*bounds) {}, "2026-01-10T09:31:00Z", "2026-02-10T09:29:00Z"},
		"seconds are rounded inwards": {func(b *bounds) { b.period, b.periodEnd = "2026-01-10T09:30:17Z", "2026-02-10T09:29:43Z" }, "2026-01-10T09:32:00Z", "2026-02-10T09:28:00Z"},
		"the segment began later":     {func(b *bounds) { b.segment = "2026-01-20T00:00:00Z" }, "2026-01-20T00:01:00Z", "2026-02-10T09:29:00Z"},
		"the segment ended earlier":   {func(b *bounds) { b.segmentEnd = "2026-01-20T00:00:00Z" }, "2026-01-10T09:31:00Z", "2026-01-19T23:59:00Z"},
		"the window began later":      {func(b *bounds) { b.window = "2026-01-20T00:00:00Z" }, "2026-01-20T00:01:00Z", "2026-02-10T09:29:00Z"},
		"the window ends earlier":     {func(b *bounds) { b.windowEnd = "2026-01-20T00:00:00Z" }, "2026-01-10T09:31:00Z", "2026-01-19T23:59:00Z"},
		"the period began later":      {func(b *bounds) { b.period = "2026-01-20T00:00:00Z" }, "2026-01-20T00:01:00Z", "2026-02-10T09:29:00Z"},
		"the period ends earlier":     {func(b *bounds) { b.periodEnd = "2026-01-20T00:00:00Z" }, "2026-01-10T09:31:00Z", "2026-01-19T23:59:00Z"},
		"it runs":                     {func(b *bounds) { b.now = "2026-01-20T00:00:59Z" }, "2026-01-10T09:31:00Z", "2026-01-19T23:58:00Z"},
		"it has just begun":           {func(b *bounds) { b.now = "2026-01-10T09:32:59Z" }, "2026-01-10T09:31:00Z", "2026-01-10T09:30:00Z"},
		"its first legal minute":      {func(b *bounds) { b.now = "2026-01-10T09:33:00Z" }, "2026-01-10T09:31:00Z", "2026-01-10T09:31:00Z"},
		"35 days later":               {func(b *bounds) { b.now = "2026-02-16T09:30:00Z" }, "2026-01-12T10:31:00Z", "2026-02-10T09:29:00Z"},
	} {
		b := all
		c.set(&b)
		var lo, hi time.Time
		err := w.db.QueryRow(t.Context(), `SELECT m.lo, m.hi FROM (SELECT ROW(1, 1, 'cus', 'sub', 'si', 'price', NULL, 'usd', NULL, NULL, 'meter', $1::timestamptz, $2::timestamptz,
				$3::timestamptz, nullif($4, '')::timestamptz, $3::timestamptz)::weir.segments AS s) x
			CROSS JOIN LATERAL weir.legal_minutes(x.s, $5::timestamptz, $6::timestamptz, $7::timestamptz) m`,
			at(b.window), at(b.windowEnd), at(b.segment), b.segmentEnd, at(b.period), at(b.periodEnd), at(b.now)).Scan(&lo, &hi)
		require.NoError(t, err, name)
		require.Equal(t, []string{c.lo, c.hi}, []string{lo.UTC().Format(time.RFC3339), hi.UTC().Format(time.RFC3339)}, name)
	}
}
