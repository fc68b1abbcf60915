package enforcer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// countLoads tells of each load when it is asked for.
type countLoads chan time.Time

func (c countLoads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "weir.load(") {
		select {
		case c <- time.Now():
		default:
		}
	}
	return ctx
}

func (countLoads) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Changes that can be seen and not loaded are tried at growing distances, and what is to be loaded doesn't grow.
func TestAChangeThatCantBeLoadedIsTriedWithPauses(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	loads := make(countLoads, 1000)
	cfg := pool.Config()
	cfg.ConnConfig.Tracer = loads
	watched, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(watched.Close)
	e := startHere(t, watched, thousand)
	_, err = e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	c := a.at(0).cur.Load()

	_, err = pool.Exec(t.Context(), "ALTER FUNCTION weir.load RENAME TO load_away")
	require.NoError(t, err)
	for len(loads) > 0 {
		<-loads
	}
	negotiated := int64(5_000)
	require.NoError(t, usage.SetOverride(t.Context(), pool, a.loadedID(), "events",
		usage.Override{Included: &negotiated, Reason: "test", Actor: "test"}, e.clock.time()))
	_, err = pool.Exec(t.Context(), "SELECT weir.touch(NULL)") // and everybody's
	require.NoError(t, err)
	first := <-loads
	var last time.Time
	for range 6 {
		last = <-loads
	}
	require.GreaterOrEqual(t, last.Sub(first), firstChangePause<<5, "the last pause alone is as long")
	e.behindMu.Lock()
	require.LessOrEqual(t, len(e.behind), 1)
	e.behindMu.Unlock()

	_, err = pool.Exec(t.Context(), "ALTER FUNCTION weir.load_away RENAME TO load")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return c.view.Load().limit == negotiated }, 20*time.Second, time.Millisecond)

	_, err = pool.Exec(t.Context(), "ALTER FUNCTION weir.load RENAME TO load_away; SELECT weir.touch(NULL)")
	require.NoError(t, err)
	<-loads
	require.NoError(t, e.Stop(t.Context()), "a pause holds up no stop")
}

// A period that runs keeps a feature that a later plan file has lost, and a process that starts then knows it: calls of it
// are answered by the period's terms, and no load asks for another one.
func TestAFeatureThatThePlanFileHasLostGoesOnInAPeriodThatRuns(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	now := time.Now()
	larger := strings.NewReplacer("events: {}", "events: {}\n  extra: {}", "1_000", "1_000, extra: 5").Replace(thousand)
	for _, file := range []string{larger, thousand} {
		catalog, err := plans.Parse([]byte(file))
		require.NoError(t, err)
		_, _, err = usage.Publish(t.Context(), pool, catalog, "test", now)
		require.NoError(t, err)
		_, err = usage.Contact(t.Context(), pool, usage.ContactRequest{Node: -5, Account: "acme", At: now, Feature: "events"})
		require.NoError(t, err)
	}
	e := startHere(t, pool, thousand)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.False(t, e.stale.Load(), "or the changer would read everything again, and again")
	d, err := e.Consume(t.Context(), "acme", "extra", 5)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	d, err = e.Consume(t.Context(), "acme", "extra", 1)
	require.NoError(t, err)
	require.Equal(t, QuotaExceeded, d.Reason)
}
