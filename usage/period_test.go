package usage_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

type span struct{ Starts, Ends time.Time }

// natural asks the database for the allowances at instants.
func natural(t require.TestingT, w *world, anchor *time.Time, months int, at []time.Time) []span {
	rows, err := w.db.Query(w.Context(), "SELECT n.starts, n.ends FROM unnest($3::timestamptz[]) WITH ORDINALITY AS x(at, i), weir.natural_period($1, $2, x.at) n ORDER BY x.i",
		anchor, months, at)
	require.NoError(t, err)
	defer rows.Close()
	var all []span
	for rows.Next() {
		var s span
		require.NoError(t, rows.Scan(&s.Starts, &s.Ends))
		all = append(all, span{s.Starts.UTC(), s.Ends.UTC()})
	}
	require.NoError(t, rows.Err())
	return all
}

func TestPeriodsClampToTheMonthFromTheAnchor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anchor := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	want := []string{"2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30", "2026-05-31", "2026-06-30"}
	at := anchor
	for i, day := range want {
		s := natural(t, w, &anchor, 1, []time.Time{at})[0]
		require.Equal(t, day+"T10:00:00Z", s.Starts.Format(time.RFC3339), "period %d", i)
		at = s.Ends
	}
	leap := natural(t, w, &anchor, 1, []time.Time{time.Date(2028, 3, 1, 0, 0, 0, 0, time.UTC)})[0]
	require.Equal(t, "2028-02-29T10:00:00Z", leap.Starts.Format(time.RFC3339))
	require.Equal(t, "2028-03-31T10:00:00Z", leap.Ends.Format(time.RFC3339))
	born := time.Date(2024, 2, 29, 0, 0, 0, 0, time.UTC)
	year := natural(t, w, &born, 12, []time.Time{noon})[0]
	require.Equal(t, "2026-02-28T00:00:00Z", year.Starts.Format(time.RFC3339))
	require.Equal(t, "2027-02-28T00:00:00Z", year.Ends.Format(time.RFC3339))
}

func TestYearlyPriceWithMonthlyAllowanceEndsWithTheYear(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anchor := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	at, count := anchor, 0
	for ; at.Before(anchor.AddDate(1, 0, 0)); count++ {
		at = natural(t, w, &anchor, 1, []time.Time{at})[0].Ends
	}
	require.Equal(t, 12, count)
	require.Equal(t, anchor.AddDate(1, 0, 0), at)
}

// Ten years from any anchor, by month, quarter or year: contiguous, increasing, every instant in exactly one.
func TestPeriodsTileTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rapid.Check(t, func(t *rapid.T) {
		from := time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC)
		anchor := from.Add(time.Duration(rapid.Int64Range(0, int64(9*365*24*time.Hour/time.Microsecond)).Draw(t, "anchor")) * time.Microsecond)
		months := rapid.SampledFrom([]int{1, 3, 12}).Draw(t, "months")
		var at []time.Time
		for i := range 120 / months {
			// The expected boundary, from the anchor: the day is clamped to the month's length.
			first := time.Date(anchor.Year(), anchor.Month()+time.Month(i*months), 1, 0, 0, 0, 0, time.UTC)
			day := min(anchor.Day(), first.AddDate(0, 1, -1).Day())
			h, m, s := anchor.Clock()
			at = append(at, time.Date(first.Year(), first.Month(), day, h, m, s, anchor.Nanosecond(), time.UTC))
		}
		got := natural(t, w, &anchor, months, at)
		for i, s := range got {
			require.Equal(t, at[i], s.Starts)
			if i+1 < len(at) {
				require.Equal(t, at[i+1], s.Ends)
			}
			require.True(t, s.Starts.Before(s.Ends))
		}
		// The last microsecond before a boundary belongs to the period before it.
		i := rapid.IntRange(1, len(at)-1).Draw(t, "boundary")
		before := natural(t, w, &anchor, months, []time.Time{at[i].Add(-time.Microsecond)})[0]
		require.Equal(t, span{at[i-1], at[i]}, before)
	})
}

func TestWithoutASubscriptionItIsTheCalendarMonth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := natural(t, w, nil, 12, []time.Time{time.Date(2026, 12, 31, 23, 59, 59, 999999000, time.UTC)})[0]
	require.Equal(t, "2026-12-01T00:00:00Z 2027-01-01T00:00:00Z", s.Starts.Format(time.RFC3339)+" "+s.Ends.Format(time.RFC3339))
}

// The session's zone is New York, instants lie in the repeated and in the skipped hour: nothing changes.
func TestTheSessionsTimeZoneChangesNothing(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	config.ConnConfig.RuntimeParams["timezone"] = "America/New_York"
	there, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(there.Close)
	w := worldOn(t, pgtest.Pool(t, url))
	far := &world{TB: t, db: there}
	for name, at := range map[string]time.Time{
		"skipped":  time.Date(2026, 3, 8, 7, 30, 0, 0, time.UTC),
		"repeated": time.Date(2026, 11, 1, 5, 30, 0, 0, time.UTC),
		"new year": time.Date(2027, 1, 1, 2, 0, 0, 0, time.UTC),
		"first":    time.Date(2026, 11, 1, 0, 30, 0, 0, time.UTC),
	} {
		here, away := w.contact(-5, "here "+name, at), far.contact(-5, "away "+name, at)
		require.Len(t, away, len(here))
		for i := range here {
			require.True(t, here[i].Starts.Equal(away[i].Starts) && here[i].Ends.Equal(away[i].Ends), name)
		}
		anchor := at.AddDate(0, -1, 0)
		require.Equal(t, natural(t, w, &anchor, 1, []time.Time{at}), natural(t, far, &anchor, 1, []time.Time{at}), name)
		n := far.node()
		far.flush(n, at, away[0].Key, 5)
		far.fold()
		require.EqualValues(t, 1, far.number("SELECT count(*) FROM weir.history WHERE key = $1 AND day = $2::date", away[0].Key, at.Format(time.DateOnly)), name)
	}
	w.sound()
}

func TestASubscriptionSetToEndFallsToTheDefaultPlanAtThatInstant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := noon.AddDate(0, 0, -5), noon.AddDate(0, 0, 26)
	until := noon.AddDate(0, 0, 10)
	w.subscribe("acme", "pro", starts, ends, noon, func(s *usage.PlanState) { s.Until = until })
	require.Equal(t, "pro", w.key("acme", "events", until.Add(-time.Microsecond)).Plan)
	k := w.key("acme", "events", until)
	require.Equal(t, "free", k.Plan)
	require.True(t, k.Starts.Equal(until))
	require.True(t, k.Ends.Equal(time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)), "the rest of the calendar month")
	// Taken back (case 11): the full plan until the end.
	w.subscribe("acme", "pro", starts, ends, noon.Add(time.Hour))
	k = w.key("acme", "events", until)
	require.Equal(t, "pro", k.Plan)
	require.True(t, k.Ends.Equal(ends))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.periods WHERE starts = $1", starts))
	w.sound()
}

// Taken back after the clock had ended the plan already: the row that the clock made becomes the subscription's.
func TestASubscriptionThatGoesOnAfterTheClockEndedIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := noon.AddDate(0, -1, 0), noon
	w.subscribe("acme", "pro", starts, ends, starts.Add(time.Hour), func(s *usage.PlanState) { s.Until = ends })
	n, k := w.node(), w.key("acme", "events", noon)
	require.Equal(t, "free", k.Plan)
	w.flush(n, noon.Add(time.Minute), k.Key, 30)
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon.Add(2*time.Minute))
	now := w.key("acme", "events", noon.Add(3*time.Minute))
	require.Equal(t, k.Key, now.Key)
	require.Equal(t, "pro", now.Plan)
	require.EqualValues(t, 30, now.Folded)
	require.EqualValues(t, 6000, now.Ceiling)
	w.sound()
}

// An end that Stripe set in the past: units between stay in the old row, which ends at our cut.
func TestAnEndInThePastCutsNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	free := w.key("acme", "events", noon)
	w.flush(n, noon, free.Key, 7)
	began := noon.Add(-5 * time.Minute)
	w.subscribe("acme", "pro", began, began.AddDate(0, 1, 0), noon)
	require.Equal(t, free.Key, w.key("acme", "events", noon.Add(-time.Second)).Key, "before the cut")
	pro := w.key("acme", "events", noon)
	require.Equal(t, "pro", pro.Plan)
	require.True(t, pro.Starts.Equal(began))
	require.Equal(t, total{Used: 7, Free: 7}, w.total(free.Key))
	require.Equal(t, total{}, w.total(pro.Key))
	var ends, cut time.Time
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT ends, cut FROM weir.periods WHERE id = $1", free.PeriodID).Scan(&ends, &cut))
	require.True(t, ends.Equal(began) && cut.Equal(noon))
	w.sound()
}

// Case 41b: the anchor is moved ten times in a month, after everything was used: one allowance.
func TestMovingTheAnchorMintsNoAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon)
	w.flush(n, noon, w.key("acme", "events", noon).Key, 1000)
	for i := 1; i <= 10; i++ {
		at := noon.AddDate(0, 0, i)
		w.subscribe("acme", "pro", at, at.AddDate(0, 1, 0), at)
		k := w.key("acme", "events", at)
		require.EqualValues(t, 5000, k.Ceiling, "overage only, reset %d", i)
		require.Equal(t, total{Free: 1000, Carried: 1000}, w.total(k.Key))
	}
	w.sound()
}

// A renewal is not an early end: the next period has its allowance, also where periods are shorter than 28 days.
func TestARenewalIsFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 0, 7), noon)
	w.flush(n, noon, w.key("acme", "events", noon).Key, 1000)
	next := noon.AddDate(0, 0, 7)
	w.subscribe("acme", "pro", next, next.AddDate(0, 0, 7), next)
	require.EqualValues(t, 6000, w.key("acme", "events", next).Ceiling)
	require.Zero(t, w.number("SELECT count(*) FROM weir.periods WHERE carried_from IS NOT NULL"))
	w.sound()
}

// Case 10: toggling plans mints no second allowance in one month.
func TestTogglingPlansMintsNoAllowance(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	spend := func(at time.Time, units int64) usage.Key {
		k := w.key("acme", "events", at)
		w.flush(n, at, k.Key, units)
		return k
	}
	spend(noon, 100)
	day := func(i int) time.Time { return noon.AddDate(0, 0, i) }
	id := w.subscribe("acme", "pro", day(1), day(1).AddDate(0, 1, 0), day(1))
	spend(day(1), 1000)
	w.unsubscribe(id, day(2))
	require.EqualValues(t, 0, w.key("acme", "events", day(2)).Ceiling, "the free plan is used up")
	w.subscribe("acme", "pro", day(3), day(3).AddDate(0, 1, 0), day(3))
	require.EqualValues(t, 5000, w.key("acme", "events", day(3)).Ceiling, "the pro plan's included units are used up")
	w.unsubscribe(id, day(4))
	require.EqualValues(t, 0, w.key("acme", "events", day(4)).Ceiling)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	require.EqualValues(t, 100, w.key("acme", "events", april).Ceiling, "a new month")
	w.sound()
}

// Rows that have not begun go with a plan change, leases and all; one that a fast clock has counted under is kept.
func TestUnbegunPeriodsGoUnlessCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	none, calm, fast := w.key("none", "events", april), w.key("calm", "events", april), w.key("fast", "events", april)
	for _, k := range []usage.Key{calm, fast} {
		require.EqualValues(t, 10, w.ask(n, usage.LeaseCall{Key: k.Key, Units: 10, Want: 10, Waiting: 10}).Got)
	}
	w.flush(n, april, fast.Key, 10)
	start := april.Add(-time.Second)
	for _, a := range []string{"none", "calm", "fast"} {
		w.subscribe(a, "pro", start, start.AddDate(0, 1, 0), start)
	}
	require.Equal(t, usage.LeaseUnknown, w.ask(n, usage.LeaseCall{Key: none.Key, Units: 1}).Status)
	require.Equal(t, usage.LeaseEnded, w.ask(n, usage.LeaseCall{Key: calm.Key, Ver: 1, Units: 1}).Status)
	w.flush(n, april, calm.Key, 7) // it had spent them already
	w.fold()
	w.exec("SELECT weir.drain_voids($1)", april)
	require.Equal(t, total{Free: 7, Adjusted: 7}, w.total(w.key("calm", "events", april).Key))
	require.Zero(t, w.number("SELECT count(*) FROM weir.inbox_parked"))
	pro := w.key("fast", "events", april)
	require.Equal(t, total{Free: 10, Adjusted: 10}, w.total(pro.Key), "the true period takes what was counted")
	require.Equal(t, usage.LeaseEnded, w.ask(n, usage.LeaseCall{Key: fast.Key, Ver: 1, Units: 1}).Status)
	w.sound()
}

// An ask that is under way for a period that has not begun, and a plan change that deletes it: no deadlock.
func TestAPlanChangeWaitsForTheAskUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	next := w.key("acme", "events", time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC))
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM weir.quotas WHERE key = $1 FOR UPDATE", next.Key) // as an ask begins
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon)
	}()
	w.waitsForLock("weir.apply_plan")
	got, err := usage.Ask(t.Context(), tx, n, true, []usage.LeaseCall{call(next, 0, 1)})
	require.NoError(t, err)
	require.Equal(t, usage.LeaseOK, got[0].Status)
	require.NoError(t, tx.Commit(t.Context()))
	<-done
	require.Equal(t, usage.LeaseEnded, w.ask(n, call(next, 1, 1)).Status)
	w.sound()
}
