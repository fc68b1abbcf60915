package enforcer

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

// between runs something once, after the database has answered a query and before the asker has seen the answer.
type between struct {
	query string
	run   atomic.Pointer[func()]
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, b, d.SQL)
}

func (b *between) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(b).(string); strings.Contains(sql, b.query) {
		if run := b.run.Swap(nil); run != nil {
			(*run)()
		}
	}
}

func hookedPool(t *testing.T, query string) (*pgxpool.Pool, *between) {
	t.Helper()
	config := schematest.Pool(t).Config().Copy()
	hook := &between{query: query}
	config.ConnConfig.Tracer = hook
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, hook
}

// startHooked is an enforcer that a test stops between the database's answer to a query and what it does with it.
func startHooked(t *testing.T, query string) (*Enforcer, *between) {
	t.Helper()
	pool, hook := hookedPool(t, query)
	catalog, err := plans.Parse([]byte(idlePlans))
	require.NoError(t, err)
	e, err := New(pool, &Config{Plans: catalog, JournalDir: t.TempDir(), MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	return e, hook
}

// A period is cut and opened again at once. Its counter stores what it counted last while the account is being read: the
// rows that were read before that must not begin another counter below it.
func TestAReopenedPeriodBeginsAtWhatItsCounterStoredMeanwhile(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"change", "contact"} {
		e, hook := startHooked(t, map[string]string{"change": "weir.load(", "contact": "weir.contact("}[how])
		_, err := e.Consume(t.Context(), "acme", "events", 1000)
		require.NoError(t, err)
		require.NoError(t, e.Flush(t.Context()))
		s := e.slotOf("acme", "events")
		a, c := s.account, s.cur.Load()
		e.flushing <- struct{}{} // no batch until the rows are read
		require.True(t, c.take(e, 3))
		a.mu.Lock()
		e.endNow(c)
		s.cur.CompareAndSwap(c, nil)
		e.outdate(a)
		a.mu.Unlock()
		meanwhile := func() {
			<-e.flushing
			require.NoError(t, e.Flush(t.Context()))
			require.Eventually(t, func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return c.acked == c.total() && c.back == 0 && !c.busy
			}, 5*time.Second, time.Millisecond)
			require.NoError(t, e.Flush(t.Context())) // nothing of the counter is left to store
		}
		hook.run.Store(&meanwhile)
		if how == "change" {
			require.NoError(t, e.reload(t.Context(), []*account{a}))
		}
		d, err := e.Consume(t.Context(), "acme", "events", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Nil(t, hook.run.Load())
		require.NoError(t, e.Flush(t.Context()))
		var stored int64
		require.NoError(t, e.pool.QueryRow(t.Context(), "SELECT weir.stored($1)", c.key()).Scan(&stored))
		require.EqualValues(t, 1004, stored, how)
	}
}

// A return that waited while its counter was dropped must not give away what the counter after it spends.
func TestACounterThatWasDroppedReturnsNothing(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	_, err := e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	s := e.slotOf("acme", "events")
	old := s.cur.Load()
	e.idleFor(t, old)
	_, err = e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	c := s.cur.Load()
	require.NotSame(t, old, c)
	asked := e.Stats().Exchanges
	e.give(old, func() bool { return true })
	require.Equal(t, asked, e.Stats().Exchanges)
	e.give(c, func() bool { return true })
	require.Equal(t, asked+1, e.Stats().Exchanges)
}
