package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
)

// tap is an address of a database's that cuts all connections once so many bytes came back through it, again and again
// until the list is at its end.
type tap struct {
	network, to string

	mu    sync.Mutex
	after []int // bytes until the next cut
	conns map[net.Conn]bool
	cuts  int
}

// newTap returns the database's URL through it.
func newTap(t *testing.T, database string, after ...int) (*tap, string) {
	t.Helper()
	cfg, err := pgx.ParseConfig(database)
	require.NoError(t, err)
	g := &tap{after: after, conns: map[net.Conn]bool{}}
	g.network, g.to = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial(g.network, g.to)
			if err != nil {
				_ = in.Close()
				continue
			}
			g.mu.Lock()
			g.conns[in], g.conns[out] = true, true
			g.mu.Unlock()
			open.Go(func() { _, _ = io.Copy(out, in); _ = out.Close() })
			open.Go(func() { g.pass(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.mu.Lock()
		g.cutAll()
		g.mu.Unlock()
		open.Wait()
	})
	u := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: l.Addr().String(), Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	return g, u.String()
}

// count is how many cuts there were.
func (g *tap) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cuts
}

func (g *tap) cutAll() {
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *tap) pass(in, out net.Conn) {
	defer func() { _, _ = in.Close(), out.Close() }()
	b := make([]byte, 512)
	for {
		n, err := out.Read(b)
		if err != nil || !g.take(n) {
			return
		}
		if _, err := in.Write(b[:n]); err != nil {
			return
		}
	}
}

// take counts bytes, and reports false when they are one cut too many.
func (g *tap) take(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.after) == 0 {
		return true
	}
	if g.after[0] -= n; g.after[0] >= 0 {
		return true
	}
	g.after = g.after[1:]
	g.cuts++
	g.cutAll()
	return false
}

// Wherever in its start the worker loses the database, it tries again.
func TestAStartThatLosesTheDatabaseIsMadeAgain(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	g, through := newTap(t, p.env["DATABASE_URL"], 0, 900, 2_500, 5_000)
	p.env["DATABASE_URL"] = through
	s := p.serve("--no-stripe")
	require.Equal(t, 4, g.count())
	require.Contains(t, s.log.String(), "the worker tries again by itself")
	require.NoError(t, s.stop())
}

// A worker that starts before its database is alive and not ready, and says why. It works once the database is there.
func TestAWorkerWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	p := newFile(t)
	p.env["DATABASE_URL"] = server.URL("postgres")
	require.NoError(t, server.Kill())
	s := p.begin("--no-stripe", "--migrate")
	require.Equal(t, http.StatusOK, s.status("GET", "/healthz", "", ""))
	status, body := s.request("GET", "/readyz", "", "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, body, "has not reached the database yet")
	require.NotContains(t, body, "0001-01-01", "business time is not known")
	status, body = s.request("POST", "/stripe/webhook", "", "{}")
	require.Equal(t, http.StatusServiceUnavailable, status, "Stripe sends it again")
	require.Contains(t, body, "The worker starts")
	_, body = s.request("GET", "/metrics", "", "")
	require.Contains(t, body, "weir_worker_up 0")
	require.NoError(t, server.Restart(t.Context()))
	s.ready()
	require.NoError(t, s.stop())
}

// A database that takes connections and never answers holds no command for ever.
func TestACommandDoesNotWaitForADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	p := newFile(t)
	p.env["DATABASE_URL"] = "postgres://weir@" + l.Addr().String() + "/weir"
	_, err = p.fails(exitFailed, "nodes")
	require.ErrorContains(t, err, "see that it runs and that this machine reaches it")
}

func TestAStopBeforeTheStartEndsTheWorker(t *testing.T) {
	t.Parallel()
	p := newFile(t)
	p.env["DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/none"
	s := p.begin("--no-stripe")
	require.NoError(t, s.stop())
}

// What no waiting mends ends the program at once.
func TestWhatNoWaitingMendsEndsTheWorker(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	out, err := p.fails(exitFailed, "serve", "--no-stripe", "--addr", "127.0.0.1:0")
	require.ErrorContains(t, err, "worker migrate")
	require.Empty(t, out, "a worker that can't stay serves nowhere")
	u, err := url.Parse(p.env["DATABASE_URL"])
	require.NoError(t, err)
	u.Path = "/weir_no_such_database"
	p.env["DATABASE_URL"] = u.String()
	_, err = p.fails(exitFailed, "serve", "--no-stripe", "--addr", "127.0.0.1:0")
	require.ErrorContains(t, err, "create the database, or mend DATABASE_URL")
	p.env["DATABASE_URL"] = "postgres://x:y@host:port/db"
	p.mustFail(exitUsage, "serve", "--no-stripe", "--addr", "127.0.0.1:0")
}

// servesInVain serves from a database that is not to be had, and returns what was said until it tried again or ended.
func (p *place) servesInVain() string {
	p.Helper()
	ctx, cancel := context.WithCancel(p.Context())
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"serve", "--addr", "127.0.0.1:0"}, p.getenv, io.Discard, write)
		_ = write.Close()
		ended <- err
	}()
	var seen strings.Builder
	for lines := bufio.NewScanner(read); lines.Scan(); {
		seen.WriteString(lines.Text())
		if strings.Contains(lines.Text(), "again_in") {
			cancel()
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			seen.WriteString(err.Error())
		}
	case <-time.After(time.Minute):
		require.FailNow(p, "the worker did not end")
	}
	return seen.String()
}

// A call that is under way when the worker is told to stop is answered: the database is closed after it.
func TestACallIsAnsweredWhileTheWorkerStops(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	const token = "admin-token-of-a-test"
	p.env["WEIR_ADMIN_TOKEN"] = token
	s := p.serve("--no-stripe")
	db := pgtest.Pool(t, p.env["DATABASE_URL"])
	hold, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), "LOCK TABLE weir.catalogs IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	answered := make(chan int, 1)
	go func() { answered <- s.status(http.MethodGet, "/v1/accounts/acme/usage", token, "") }()
	sessions := func(where string) (n int) {
		require.NoError(t, db.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND "+where).Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return sessions("wait_event_type = 'Lock' AND query ILIKE '%weir.catalogs%'") > 0 }, 30*time.Second, 5*time.Millisecond)
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	require.Eventually(t, func() bool { return sessions("query ILIKE 'LISTEN%'") == 0 }, 30*time.Second, 5*time.Millisecond, "the jobs end")
	require.NoError(t, hold.Rollback(t.Context()))
	require.Equal(t, http.StatusOK, <-answered, s.log)
	require.NoError(t, <-ended)
}
