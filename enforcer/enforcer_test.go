package enforcer_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const testPlans = `
currency: usd
default_plan: free
features:
  events: {meter: weir_events_overage}
  tokens: {}
plans:
  free:
    rate: {limit: 60, window: 1m}
    quota: {events: 50}
    on_exceeded: block
  large:
    quota: {events: 100_000, tokens: unlimited}
    on_exceeded: block
`

func catalog(t testing.TB, text string) *plans.Catalog {
	t.Helper()
	c, err := plans.Parse([]byte(text))
	require.NoError(t, err)
	return c
}

// start starts an enforcer on the pool and stops it when t ends.
func start(t testing.TB, pool *pgxpool.Pool, cfg enforcer.Config) *enforcer.Enforcer {
	t.Helper()
	if cfg.JournalDir == "" && !cfg.NoJournal {
		cfg.JournalDir = t.TempDir()
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = 5 * time.Second // a loaded machine is not what these tests are about
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	e, err := enforcer.New(pool, &cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	return e
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestAHundredCallersOnACapOfFiftyAdmitExactlyFifty(t *testing.T) {
	t.Parallel()
	e := start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, testPlans)})
	var admitted, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			d, err := e.Consume(t.Context(), "acme", "events", 1)
			switch {
			case err != nil:
				t.Error(err)
			case d.Allowed:
				admitted.Add(1)
			default:
				refused.Add(1)
				if d.Reason != enforcer.QuotaExceeded {
					t.Errorf("refused as %s", d.Reason)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, admitted.Load())
	require.EqualValues(t, 50, refused.Load())
	u, err := e.Usage(t.Context(), "acme", "events")
	require.NoError(t, err)
	require.EqualValues(t, 50, u.Used)
	require.EqualValues(t, 0, u.Remaining)
	require.EqualValues(t, 50, u.Limit)
	require.False(t, u.Allowed)
}

func TestARateLimitRefusesTheCallOverItAndRecoversInTheNextWindow(t *testing.T) {
	t.Parallel()
	clock := clockAt(time.Date(2027, 1, 5, 12, 0, 0, 0, time.UTC))
	e := start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, testPlans), Clock: clock})
	for range 60 {
		d, err := e.Allow(t.Context(), "acme", "")
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	d, err := e.Allow(t.Context(), "acme", "")
	require.NoError(t, err)
	require.False(t, d.Allowed)
	require.Equal(t, enforcer.RateLimited, d.Reason)
	require.EqualValues(t, 60, d.Limit)
	require.Positive(t, d.RetryAfter)
	require.LessOrEqual(t, d.RetryAfter, time.Minute)
	other, err := e.Allow(t.Context(), "acme", "another key")
	require.NoError(t, err)
	require.True(t, other.Allowed)
	clock.set(clock.Now().Add(d.RetryAfter))
	d, err = e.Allow(t.Context(), "acme", "")
	require.NoError(t, err)
	require.True(t, d.Allowed, "the next window")
}
