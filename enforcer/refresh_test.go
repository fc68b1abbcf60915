package enforcer

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// holdLoads keeps the answer of the next load from its caller.
type holdLoads struct {
	armed      atomic.Bool
	held, free chan struct{}
}

type loadKey struct{}

func (h *holdLoads) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	if strings.Contains(d.SQL, "weir.load(") && h.armed.CompareAndSwap(true, false) {
		return context.WithValue(ctx, loadKey{}, true)
	}
	return ctx
}

func (h *holdLoads) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if ctx.Value(loadKey{}) != nil {
		close(h.held)
		<-h.free
	}
}

// A look at the usage that was read before a change, and answered after it, must not bring the old terms back.
func TestALookAtTheUsageDoesNotUndoAChange(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	h := &holdLoads{held: make(chan struct{}), free: make(chan struct{})}
	cfg := pool.Config()
	cfg.ConnConfig.Tracer = h
	watched, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(watched.Close)
	e := startHere(t, watched, thousand)
	_, err = e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	c := a.at(0).cur.Load()

	h.armed.Store(true)
	done := make(chan error, 1)
	go func() { done <- e.refresh(t.Context(), c) }()
	<-h.held
	negotiated := int64(5_000)
	require.NoError(t, usage.SetOverride(t.Context(), pool, a.loadedID(), "events",
		usage.Override{Included: &negotiated, Reason: "test", Actor: "test"}, e.clock.time()))
	require.Eventually(t, func() bool { return c.view.Load().limit == negotiated }, 20*time.Second, time.Millisecond)
	close(h.free)
	require.NoError(t, <-done)
	require.EqualValues(t, negotiated, c.view.Load().limit)
}
