package enforcer_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
)

// lossy is a connection that ends before the answer to a registration's commit; once it has, nobody is connected anew.
type lossy struct {
	net.Conn
	registers, commits bool
	lost               *atomic.Bool
}

func (c *lossy) Write(p []byte) (int, error) {
	c.registers = c.registers || bytes.Contains(p, []byte("INSERT INTO weir.nodes"))
	c.commits = c.registers && bytes.Contains(p, []byte("commit"))
	return c.Conn.Write(p)
}

func (c *lossy) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.commits && n > 0 {
		c.lost.Store(true)
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// The commit of a registration is carried out and its answer lost, with the way to the database: nobody would ever end
// the node, and periods would wait for it. The next start of the process ends it.
func TestARegistrationWhoseAnswerIsLostIsEndedByTheNextStart(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 1000)
	cfg := pool.Config()
	var lost atomic.Bool
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if lost.Load() {
			return nil, io.ErrUnexpectedEOF
		}
		conn, err := dial(ctx, network, addr)
		return &lossy{Conn: conn, lost: &lost}, err
	}
	cut, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(cut.Close)
	e, err := enforcer.New(cut, &enforcer.Config{NoJournal: true})
	require.NoError(t, err)
	live := func() (n int) {
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.nodes WHERE state = 'live'").Scan(&n))
		return n
	}
	require.Error(t, e.Start(t.Context()))
	require.True(t, lost.Load())
	require.Equal(t, 1, live())
	lost.Store(false)
	require.Error(t, e.Start(t.Context()), "lost again: the first one is ended by then")
	require.Equal(t, 1, live())
}
