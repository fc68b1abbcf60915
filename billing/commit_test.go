package billing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// mute is a connection to the database whose first commit is done, and its answer lost: whoever reads it finds the
// connection closed.
type mute struct {
	net.Conn
	lost *atomic.Bool
	gone atomic.Bool
}

func (c *mute) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("commit\x00")) && c.lost.CompareAndSwap(false, true) {
		c.gone.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *mute) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.gone.Load() {
		return 0, errors.Join(c.Close(), net.ErrClosed)
	}
	return n, err
}

// An action whose commit was done, though its answer was lost, is done: the audit log has one row of it, which says so.
func TestAnActionWhoseCommitWasNotAnsweredIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	cfg, lost := w.db.Config(), &atomic.Bool{}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &mute{Conn: c, lost: lost}, err
	}
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	b, err := billing.New(db, billing.Config{Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = b.Do(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: 5}, usage.By{Actor: "ann", Way: usage.WayCLI, Reason: "a test"})
	require.True(t, lost.Load())
	require.NoError(t, err)
	require.EqualValues(t, 5, w.number("SELECT adjusted FROM weir.totals WHERE key = $1", key))
	require.Equal(t, "done", w.text("SELECT string_agg(result, ', ') FROM weir.audit"))
}
