package billing_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// mute is a connection to the database whose first commit is sent, and its answer lost: whoever reads it finds the
// connection closed.
type mute struct {
	net.Conn
	lost  *atomic.Bool
	looks *atomic.Int64 // at what became of a transaction
	gone  atomic.Bool
}

var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46} // the driver tries to call back what hangs: that is lost, too

func (c *mute) Write(p []byte) (int, error) {
	switch {
	case bytes.HasPrefix(p, cancelRequest):
		return 0, errors.Join(c.Close(), net.ErrClosed)
	case bytes.Contains(p, []byte("commit\x00")) && c.lost.CompareAndSwap(false, true):
		c.gone.Store(true)
	case bytes.Contains(p, []byte("pg_xact_status")):
		c.looks.Add(1)
	}
	return c.Conn.Write(p)
}

func (c *mute) Read(p []byte) (int, error) {
	if c.gone.Load() {
		return 0, errors.Join(c.Close(), net.ErrClosed)
	}
	return c.Conn.Read(p)
}

// mutes is a pool whose first commit is not answered. A commit that hangs is given up after a while.
func (w *world) mutes() (db *pgxpool.Pool, lost *atomic.Bool, looks *atomic.Int64) {
	w.Helper()
	cfg := w.db.Config()
	lost, looks = &atomic.Bool{}, &atomic.Int64{}
	// Each query carries its own text, so that the looks can be seen.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &mute{Conn: c, lost: lost, looks: looks}, err
	}
	db, err := pgxpool.NewWithConfig(w.Context(), cfg)
	require.NoError(w, err)
	w.Cleanup(db.Close)
	return db, lost, looks
}

var byAnn = usage.By{Actor: "ann", Way: usage.WayCLI, Reason: "a test"}

// An action whose commit was done, though its answer was lost, is done: the audit log has one row of it, which says so.
func TestAnActionWhoseCommitWasNotAnsweredIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	db, lost, _ := w.mutes()
	b, err := billing.New(db, billing.Config{Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = b.Do(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: 5}, byAnn)
	require.True(t, lost.Load())
	require.NoError(t, err)
	require.EqualValues(t, 5, w.number("SELECT adjusted FROM weir.totals WHERE key = $1", key))
	require.Equal(t, "done", w.text("SELECT string_agg(result, ', ') FROM weir.audit"))
}

// The same of a request, and of another person's decision about it.
func TestARequestWhoseCommitWasNotAnsweredIsMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	db, lost, _ := w.mutes()
	b, err := billing.New(db, billing.Config{Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	id, err := b.Request(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: 5}, byAnn)
	require.True(t, lost.Load())
	require.NoError(t, err)
	lost.Store(false)
	require.NoError(t, b.Decide(t.Context(), id, true, usage.By{Actor: "bob", Way: usage.WayCLI, Reason: "a test"}))
	require.True(t, lost.Load())
	require.EqualValues(t, 5, w.number("SELECT adjusted FROM weir.totals WHERE key = $1", key))
	require.Equal(t, "done, waiting", w.text("SELECT string_agg(result, ', ' ORDER BY result) FROM weir.audit"))
}

// A commit that still runs when its answer is lost is waited for: whatever comes of it then is what the action did. One
// that runs for longer than StoreTime is unknown, and nothing is written that says otherwise.
func TestACommitThatStillRunsIsWaitedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end     string // of the backend that commits; empty: it goes on after the bound
		done    bool
		results string
	}{
		"it is done":       {"SELECT pg_advisory_unlock(77)", true, "done"},
		"it is undone":     {"SELECT pg_terminate_backend(pid, 20000), pg_advisory_unlock(77) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", false, "failed"},
		"it is never over": {"", false, "done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			_, key := w.over("acme", 40)
			w.exec(`CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF NEW.reason = ''a test'' THEN PERFORM pg_advisory_xact_lock_shared(77); END IF; RETURN NULL; END'`)
			w.exec("CREATE CONSTRAINT TRIGGER hang AFTER INSERT ON weir.audit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang()")
			held, err := w.db.Acquire(t.Context())
			require.NoError(t, err)
			defer held.Release()
			_, err = held.Exec(t.Context(), "SELECT pg_advisory_lock(77)")
			require.NoError(t, err)
			db, lost, looks := w.mutes()
			cfg := billing.Config{Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), StoreTime: time.Minute}
			if c.end == "" {
				cfg.StoreTime = 300 * time.Millisecond
			}
			b, err := billing.New(db, cfg)
			require.NoError(t, err)
			answer := make(chan error, 1)
			go func() {
				_, err := b.Do(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: 5}, byAnn)
				answer <- err
			}()
			if c.end != "" {
				require.Eventually(t, func() bool { return looks.Load() >= 2 }, time.Minute, time.Millisecond, "it looks, and looks again")
				_, err = held.Exec(t.Context(), c.end)
				require.NoError(t, err)
			}
			err = <-answer
			require.True(t, lost.Load())
			require.Equal(t, c.done, err == nil, "%v", err)
			if c.end == "" {
				require.ErrorContains(t, err, "look into the audit log")
				require.EqualValues(t, 0, w.number("SELECT count(*) FROM weir.audit"))
			}
			_, err = held.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
			require.NoError(t, err)
			require.Eventually(t, func() bool { return w.text("SELECT string_agg(result, ', ') FROM weir.audit") == c.results }, 20*time.Second, time.Millisecond)
			adjusted := map[bool]int64{c.results == "done": 5}[true]
			require.EqualValues(t, adjusted, w.number("SELECT adjusted FROM weir.totals WHERE key = $1", key))
		})
	}
}
