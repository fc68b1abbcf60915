package billing_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
)

// mortal is a process that dies at its n-th step: a message to the database, or a call to Stripe. It dies before the
// step has any effect, or after it had its whole effect and before anybody here knows.
type mortal struct {
	mu    sync.Mutex
	left  int
	after bool
	dead  bool
}

var errDead = errors.New("the process was killed")

// step runs do, unless the process is dead or dies now.
func (m *mortal) step(do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return errDead
	}
	m.left--
	if m.left > 0 {
		return do()
	}
	m.dead = true
	if m.after {
		if err := do(); err != nil {
			return err
		}
	}
	return errDead
}

// mortalConn is a connection to the database of a mortal: each write is one message.
type mortalConn struct {
	net.Conn
	m *mortal
}

func (c *mortalConn) Write(p []byte) (n int, err error) {
	err = c.m.step(func() error {
		if n, err = c.Conn.Write(p); err != nil || !c.m.dead {
			return err
		}
		// Dead after the effect: the server has answered, and nobody reads it.
		_, err = c.Conn.Read(make([]byte, 1))
		return err
	})
	if err != nil {
		return 0, errors.Join(err, c.Close())
	}
	return n, nil
}

func (m *mortal) RoundTrip(r *http.Request) (res *http.Response, err error) {
	err = m.step(func() error {
		if res, err = http.DefaultTransport.RoundTrip(r); err == nil && m.dead {
			return res.Body.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// mortalBiller is a Biller in a process that dies at its n-th step.
func (w *world) mortalBiller(n int, after bool) (*billing.Biller, *mortal) {
	w.Helper()
	cfg := w.db.Config()
	cfg.MaxConns, cfg.MinConns = 1, 0
	m := &mortal{left: 1 << 30, after: after}
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &mortalConn{c, m}, nil
	}
	db, err := pgxpool.NewWithConfig(w.Context(), cfg)
	require.NoError(w, err)
	w.Cleanup(db.Close)
	require.NoError(w, db.Ping(w.Context()))
	client, err := billing.NewClient(billing.ClientConfig{
		Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: m}, EventsPerSecond: 100_000, ReadsPerSecond: 100_000,
	})
	require.NoError(w, err)
	b, err := billing.New(db, billing.Config{Stripe: client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), Senders: 1, Readers: 1, LookEach: time.Nanosecond, SecondLook: time.Nanosecond})
	require.NoError(w, err)
	m.left = n
	return b, m
}

// A worker is killed at each step of close and report, before and after its effect; another one goes on. Every account
// meets one of the deaths at its own period's end.
func TestKilledAtEachStepOfCloseAndReport(t *testing.T) {
	t.Parallel()
	const deaths = 52
	w := newWorld(t, setup{})
	type tenant struct {
		customer string
		key      int64
		end      time.Time
	}
	var all []tenant
	for i := range 2 * deaths {
		account := fmt.Sprintf("acme-%d", i)
		c, _ := w.subscribe(account, "pro_monthly", "usage")
		all = append(all, tenant{customer: c, end: w.sim.Now().AddDate(0, 1, 0)})
		require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(2*time.Hour)))
	}
	w.work()
	for i := range all {
		all[i].key = w.node.use(fmt.Sprintf("acme-%d", i), int64(1_000+i+1))
	}
	w.fold()
	survived := map[bool]bool{}
	for i, a := range all {
		require.NoError(t, w.sim.Advance(t.Context(), a.end.Add(10*time.Minute)))
		w.node.flush()
		w.fold()
		after := i%2 == 1
		b, m := w.mortalBiller(i/2+1, after)
		_, err := b.Close(t.Context())
		if err == nil {
			err = b.Report(t.Context())
		}
		require.True(t, err == nil || m.dead, "it died of something else: %v", err)
		survived[after] = !m.dead
		w.patience()
		w.work()
	}
	require.True(t, survived[true] && survived[false], "there are more steps than %d: raise the number", deaths)
	w.advance(all[len(all)-1].end.Add(3*time.Hour), time.Hour)
	w.reportedOnce()
	for i, a := range all {
		require.EqualValues(t, i+1, w.reported(a.customer), "reported = overage")
		require.EqualValues(t, i+1, w.billed(a.customer))
		require.Equal(t, book{Overage: int64(i + 1), Invoiced: int64(i + 1)}, w.book(a.key))
	}
	r := w.closeReport(start.AddDate(0, 1, 0))
	require.Empty(t, r.Breaks)
}
