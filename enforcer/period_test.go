package enforcer_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// handClock stands where the test puts it.
type handClock struct{ at atomic.Int64 }

func clockAt(t time.Time) *handClock {
	c := &handClock{}
	c.set(t)
	return c
}

func (c *handClock) Now() time.Time  { return time.Unix(0, c.at.Load()).UTC() }
func (c *handClock) set(t time.Time) { c.at.Store(t.UnixNano()) }

// ownServer returns a pool on a migrated server that the test may stall and restart.
func ownServer(t *testing.T) (*postgres.Server, *pgxpool.Pool) {
	t.Helper()
	s := pgtest.Server(t)
	url := s.URL("postgres")
	require.NoError(t, schematest.Migrate(t.Context(), url))
	return s, pgtest.Pool(t, url)
}

func fold(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	for {
		n, err := usage.Fold(t.Context(), pool, 5000)
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
}

func consume(t *testing.T, e *enforcer.Enforcer, account, feature string, n int64) enforcer.Decision {
	t.Helper()
	d, err := e.Consume(t.Context(), account, feature, n)
	require.NoError(t, err)
	return d
}

func totals(t *testing.T, pool *pgxpool.Pool, account string) []usage.Total {
	t.Helper()
	all, err := usage.Totals(t.Context(), pool, account, time.Time{})
	require.NoError(t, err)
	return all
}

// stored is what the database has of an account's feature, the inbox included.
func stored(t *testing.T, pool *pgxpool.Pool, account string) int64 {
	t.Helper()
	var sum int64
	for _, x := range totals(t, pool, account) {
		sum += x.Used
	}
	return sum
}

// publish makes one plan with one quota.
func publish(t *testing.T, pool *pgxpool.Pool, included int64) {
	t.Helper()
	plan := catalog(t, fmt.Sprintf("currency: usd\ndefault_plan: free\nfeatures: {events: {}}\nplans: {free: {quota: {events: %d}, on_exceeded: block}}\n", included))
	_, _, err := usage.Publish(t.Context(), pool, plan, "test", time.Now())
	require.NoError(t, err)
}

// Case 3 of docs/cases: the last instant of a period, its end, and the first one after.
func TestCase03UnitsAroundAnEndLieInThePeriodOfTheirAdmission(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := clockAt(end.Add(-time.Hour))
	e := start(t, pool, enforcer.Config{Plans: catalog(t, testPlans), Clock: clock})
	require.True(t, consume(t, e, "acme", "events", 7).Allowed)
	clock.set(end.Add(-1))
	require.True(t, consume(t, e, "acme", "events", 1).Allowed)
	clock.set(end)
	d := consume(t, e, "acme", "events", 2)
	require.True(t, d.Allowed)
	require.Equal(t, end, d.Terms.StartsAt)
	require.EqualValues(t, 2, d.Used)
	clock.set(end.Add(1))
	require.True(t, consume(t, e, "acme", "events", 3).Allowed)
	clock.set(end.Add(90 * time.Second))
	require.NoError(t, e.Flush(t.Context()))
	fold(t, pool)
	all := totals(t, pool, "acme")
	require.GreaterOrEqual(t, len(all), 2)
	require.Equal(t, end, all[0].Ends.UTC())
	require.EqualValues(t, 8, all[0].Used)
	require.EqualValues(t, 5, all[1].Used)
}

const awayPlans = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans:
  free:
    quota:
      events: {included: 1000, when_database_away: continue}
      tokens: 1000
    on_exceeded: block
    when_database_away: unavailable
`

func TestARolloverNeedsNoDatabase(t *testing.T) {
	t.Parallel()
	server, pool := ownServer(t)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := clockAt(end.Add(-time.Hour))
	e := start(t, pool, enforcer.Config{Plans: catalog(t, awayPlans), Clock: clock, MaxWait: time.Second})
	require.Eventually(t, func() bool { return consume(t, e, "acme", "events", 7).Allowed }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, server.Pause())
	t.Cleanup(func() { _ = server.Resume() })
	clock.set(end)
	var d enforcer.Decision
	require.Eventually(t, func() bool { d = consume(t, e, "acme", "events", 3); return d.Allowed }, 10*time.Second, time.Millisecond,
		"it goes on as its plan says, once the database is known to be away")
	require.EqualValues(t, 3, d.Used)
	require.Equal(t, end, d.Terms.StartsAt)
	d = consume(t, e, "acme", "tokens", 1)
	require.Equal(t, enforcer.Unavailable, d.Reason, "this one does not, once its lease is spent")
	require.ErrorIs(t, d.Err(), enforcer.ErrUnavailable)
	require.NoError(t, server.Resume())
	require.NoError(t, e.Flush(t.Context()))
	fold(t, pool)
	used := map[string]int64{}
	for _, x := range totals(t, pool, "acme") {
		if x.Used > 0 {
			used[x.Feature+x.Starts.UTC().Format(" Jan")] += x.Used
		}
	}
	require.Equal(t, map[string]int64{"events Jan": 7, "events Feb": 3}, used)
}

func TestPlanChangesReachEveryNodeWithinASecond(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	plans := catalog(t, testPlans)
	a, b := start(t, pool, enforcer.Config{Plans: plans}), start(t, pool, enforcer.Config{Plans: plans})
	for range 50 {
		require.True(t, consume(t, a, "acme", "events", 1).Allowed)
	}
	require.False(t, consume(t, a, "acme", "events", 1).Allowed)
	require.Equal(t, enforcer.QuotaExceeded, consume(t, b, "acme", "events", 1).Reason)
	require.Equal(t, enforcer.NotInPlan, consume(t, b, "acme", "tokens", 1).Reason)

	id, err := usage.FindAccount(t.Context(), pool, "acme", false, time.Time{})
	require.NoError(t, err)
	now := time.Now().UTC()
	_, err = usage.ApplyPlan(t.Context(), pool, id, usage.PlanState{
		Plan: "large", Anchor: now.Add(-time.Hour), Starts: now.Add(-time.Hour), Ends: now.AddDate(0, 1, 0),
	}, now)
	require.NoError(t, err)
	began := time.Now()
	for _, e := range []*enforcer.Enforcer{a, b} {
		require.Eventually(t, func() bool { return consume(t, e, "acme", "events", 1).Allowed }, 5*time.Second, time.Millisecond)
		require.Eventually(t, func() bool { return consume(t, e, "acme", "tokens", 1_000_000).Allowed }, 5*time.Second, time.Millisecond)
	}
	t.Logf("both nodes after %s", time.Since(began))

	limit := int64(10)
	require.NoError(t, usage.SetOverride(t.Context(), pool, id, "events", usage.Override{Included: &limit, Reason: "test", Actor: "test"}, time.Now()))
	require.Eventually(t, func() bool { return !consume(t, a, "acme", "events", 10).Allowed }, 5*time.Second, time.Millisecond)
}

func TestReservations(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := start(t, pool, enforcer.Config{Plans: catalog(t, testPlans)})
	ctx := t.Context()
	r, err := e.Reserve(ctx, "acme", "events", 40)
	require.NoError(t, err)
	require.False(t, consume(t, e, "acme", "events", 11).Allowed, "40 of 50 are held")
	d, err := r.Settle(ctx, 15)
	require.NoError(t, err)
	require.EqualValues(t, 15, d.Used)
	again, err := r.Settle(ctx, 30)
	require.NoError(t, err)
	require.Equal(t, d, again, "settled twice counts once")
	require.True(t, consume(t, e, "acme", "events", 25).Allowed, "25 came back")

	r, err = e.Reserve(ctx, "acme", "events", 10)
	require.NoError(t, err)
	_, err = e.Reserve(ctx, "acme", "events", 1)
	var refused *enforcer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, enforcer.QuotaExceeded, refused.Decision.Reason)
	require.NoError(t, r.Cancel(ctx))

	r, err = e.Reserve(ctx, "acme", "events", 5)
	require.NoError(t, err)
	d, err = r.Settle(ctx, 12)
	require.NoError(t, err, "10 were there, two are an overrun")
	require.EqualValues(t, 52, d.Used)
	u, err := e.Usage(ctx, "acme", "events")
	require.NoError(t, err)
	require.EqualValues(t, 52, u.Used)
	require.NoError(t, e.Flush(ctx))
	fold(t, pool)
	require.EqualValues(t, 52, stored(t, pool, "acme"))
	require.EqualValues(t, 7, e.Stats().Overruns)
}

func TestAReservationOverAnEndStaysInItsPeriod(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := clockAt(end.Add(-time.Hour))
	e := start(t, pool, enforcer.Config{Plans: catalog(t, testPlans), Clock: clock})
	settled, err := e.Reserve(t.Context(), "acme", "events", 20)
	require.NoError(t, err)
	cancelled, err := e.Reserve(t.Context(), "acme", "events", 20)
	require.NoError(t, err)
	clock.set(end.Add(time.Second))
	require.True(t, consume(t, e, "acme", "events", 50).Allowed, "the new period is whole")
	require.NoError(t, e.Flush(t.Context()))
	var held int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.held").Scan(&held))
	require.Equal(t, 1, held, "the old key's close waits for it")
	_, err = settled.Settle(t.Context(), 12)
	require.NoError(t, err)
	require.NoError(t, cancelled.Cancel(t.Context()))
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.held").Scan(&held))
	require.Zero(t, held)
	fold(t, pool)
	all := totals(t, pool, "acme")
	require.EqualValues(t, 12, all[0].Used)
	require.EqualValues(t, 50, all[1].Used)
}

func TestWhatAStoppedNodeHeldIsForTheOthers(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	plans := catalog(t, testPlans)
	for i := range 5 {
		e := start(t, pool, enforcer.Config{Plans: plans, Name: fmt.Sprint("node ", i)})
		require.True(t, consume(t, e, "acme", "events", 10).Allowed)
		require.NoError(t, e.Stop(t.Context()))
		_, err := e.Consume(t.Context(), "acme", "events", 1)
		require.ErrorIs(t, err, enforcer.ErrUnavailable)
	}
	e := start(t, pool, enforcer.Config{Plans: plans})
	require.Equal(t, enforcer.QuotaExceeded, consume(t, e, "acme", "events", 1).Reason)
}

func TestCallsBeforeStartAndBadArguments(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e, err := enforcer.New(pool, &enforcer.Config{NoJournal: true, Plans: catalog(t, testPlans)})
	require.NoError(t, err)
	_, err = e.Consume(t.Context(), "acme", "events", 1)
	require.ErrorIs(t, err, enforcer.ErrUnavailable)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	for _, account := range []string{"", " ", "a\nb", "a\x00", " acme", string(make([]byte, 300)), "\xff"} {
		_, err = e.Consume(t.Context(), account, "events", 1)
		require.ErrorIs(t, err, enforcer.ErrInvalidAccount, "%q", account)
	}
	for _, feature := range []string{"", "Events", "nope"} {
		_, err = e.Consume(t.Context(), "acme", feature, 1)
		require.ErrorIs(t, err, enforcer.ErrUnknownFeature)
	}
	_, err = e.Consume(t.Context(), "acme", "events", -1)
	require.ErrorIs(t, err, enforcer.ErrInvalidUnits)
	require.Zero(t, e.Stats().Accounts, "nothing was stored")
}

func TestStartSaysWhatIsWrongWithTheDatabase(t *testing.T) {
	t.Parallel()
	begin := func(pool *pgxpool.Pool, cfg enforcer.Config) error {
		cfg.NoJournal = true
		e, err := enforcer.New(pool, &cfg)
		require.NoError(t, err)
		return e.Start(t.Context())
	}
	require.ErrorContains(t, begin(pgtest.New(t), enforcer.Config{}), "worker migrate")
	pool := schematest.Pool(t)
	require.ErrorIs(t, begin(pool, enforcer.Config{}), usage.ErrNoCatalog)
	_, err := pool.Exec(t.Context(), "INSERT INTO weir.schema_version SELECT max(version) + 2, 'future' FROM weir.schema_version")
	require.NoError(t, err)
	require.ErrorContains(t, begin(pool, enforcer.Config{Plans: catalog(t, testPlans)}), "install a newer program")
	none, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(none.Close)
	require.ErrorContains(t, begin(none, enforcer.Config{}), "connect")
	for _, cfg := range []enforcer.Config{
		{FlushInterval: time.Millisecond}, {MaxWait: time.Hour}, {NoJournal: true, JournalDir: "x"}, {ListenURL: "::"},
	} {
		_, err := enforcer.New(pool, &cfg)
		require.Error(t, err, "%+v", cfg)
	}
	_, err = enforcer.New(nil, nil)
	require.Error(t, err)
}
