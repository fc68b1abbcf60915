package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// gate is an address at which the database may be away: connections pass only while it is open.
type gate struct {
	url         string // of the database through the gate
	network, to string
	addr        string

	mu    sync.Mutex
	l     net.Listener
	conns []net.Conn
}

func newGate(t testing.TB, database string) *gate {
	t.Helper()
	cfg, err := pgx.ParseConfig(database) // its address may stand in the query
	require.NoError(t, err)
	g := &gate{}
	g.network, g.to = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	// The port stays this test's own while the gate is closed: a listener that is never read from would be a stall.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g.addr = l.Addr().String()
	require.NoError(t, l.Close())
	u := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: g.addr, Path: "/" + cfg.Database, RawQuery: "sslmode=disable"}
	g.url = u.String()
	t.Cleanup(g.close)
	return g
}

func (g *gate) open(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", g.addr)
	require.NoError(t, err)
	g.mu.Lock()
	g.l = l
	g.mu.Unlock()
	go func() {
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
			g.conns = append(g.conns, in, out)
			g.mu.Unlock()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		}
	}()
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l != nil {
		_ = g.l.Close()
	}
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

func TestCallsAreAnsweredWhileTheDatabaseIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	g := newGate(t, schematest.URL(t))
	s := boot(t, map[string]string{"DATABASE_URL": g.url, "WEIR_PLANS": planFile(t, testPlans)})
	for _, a := range []answer{
		s.post("/v1/consume", `{"account":"acme","feature":"events"}`),
		s.post("/v1/consume", `{"account":"acme","feature":"events","rate":false}`),
		s.get("/v1/usage/acme"), s.get("/readyz"),
	} {
		require.Equal(t, 503, a.status, a.body)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Equal(t, "unavailable", a.json(t)["error"])
		require.Equal(t, "1", a.header.Get("Retry-After"))
	}
	require.Contains(t, s.get("/readyz").json(t)["message"], "has not reached the database yet")
	require.Equal(t, 200, s.get("/healthz").status)

	g.open(t)
	s.ready()
	require.Equal(t, 200, s.post("/v1/consume", `{"account":"acme","feature":"events"}`).status)
	require.NoError(t, s.stop())
}

// Nothing says which of a deployment's processes comes first: one that is there before the plans waits for them.
func TestASidecarWaitsForThePlans(t *testing.T) {
	t.Parallel()
	database := schematest.URL(t)
	s := boot(t, map[string]string{"DATABASE_URL": database})
	waiting := func() bool {
		return strings.Contains(s.get("/readyz").body, "no plan file is published yet: run `worker serve")
	}
	require.Eventually(t, waiting, 30*time.Second, 5*time.Millisecond)
	for _, a := range []answer{
		s.post("/v1/consume", `{"account":"acme","feature":"events"}`), s.post("/v1/reserve", `{"account":"acme","feature":"events","units":1}`),
		s.get("/v1/usage/acme"), s.get("/v1/auth/events", "X-Weir-Account", "acme"),
	} {
		require.Equal(t, 503, a.status, a.body)
		require.Equal(t, "unavailable", a.json(t)["error"])
		require.Equal(t, "1", a.header.Get("Retry-After"))
	}
	require.Equal(t, 200, s.get("/healthz").status)

	catalog, err := plans.Parse([]byte(testPlans))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), pgtest.Pool(t, database), catalog, "test", time.Now())
	require.NoError(t, err)
	s.ready()
	require.Equal(t, 200, s.post("/v1/consume", `{"account":"acme","feature":"events"}`).status)
	require.NoError(t, s.stop())
}

func TestAStopBeforeTheStartEndsTheProcess(t *testing.T) {
	t.Parallel()
	g := newGate(t, "postgres://nobody@127.0.0.1:1/none")
	s := boot(t, map[string]string{"DATABASE_URL": g.url})
	require.NoError(t, s.stop())
}

func TestWhatNoWaitingMendsEndsTheProcessWithTheCommandToRun(t *testing.T) {
	t.Parallel()
	ahead := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), ahead)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "INSERT INTO weir.schema_version (version, name) SELECT max(version) + 2, 'later' FROM weir.schema_version")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	missing, err := url.Parse(ahead)
	require.NoError(t, err)
	missing.Path = "/weir_no_such_database"
	plans := planFile(t, testPlans)

	for name, c := range map[string]struct {
		env  map[string]string
		want string
	}{
		"no schema":      {map[string]string{"DATABASE_URL": pgtest.URL(t), "WEIR_PLANS": plans}, "run `worker migrate` first"},
		"newer schema":   {map[string]string{"DATABASE_URL": ahead, "WEIR_PLANS": plans}, "install a newer program"},
		"no database":    {map[string]string{"DATABASE_URL": missing.String(), "WEIR_PLANS": plans}, "create the database, or mend DATABASE_URL"},
		"no journal dir": {map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": plans, "WEIR_JOURNAL_DIR": plans}, "name a folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := tryBoot(t, c.env)
			if err == nil { // it served until it knew
				err = s.wait()
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestWrongSettingsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	socketless := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(socketless, []byte("x"), 0o600))
	const db = "postgres://127.0.0.1:1/none"
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want []string
	}{
		"nothing":             {nil, nil, []string{"DATABASE_URL is not set"}},
		"unknown flag":        {map[string]string{"DATABASE_URL": db}, []string{"--port=1"}, []string{"unknown flag --port", "--help"}},
		"outside, no token":   {map[string]string{"DATABASE_URL": db, "WEIR_ADDR": ":0"}, nil, []string{"which other machines can reach", "set WEIR_API_TOKEN"}},
		"outside by address":  {map[string]string{"DATABASE_URL": db, "WEIR_ADDR": "0.0.0.0:0"}, nil, []string{"set WEIR_API_TOKEN"}},
		"no address":          {map[string]string{"DATABASE_URL": db, "WEIR_ADDR": "8787"}, nil, []string{"use host:port"}},
		"no socket":           {map[string]string{"DATABASE_URL": db, "WEIR_ADDR": socketless}, nil, []string{"there is a file that is no socket"}},
		"several":             {map[string]string{"WEIR_API_TOKEN": "short", "WEIR_STOP_TIMEOUT": "1ms"}, nil, []string{"DATABASE_URL is not set", "at least 16 characters", "--stop-timeout is 1ms"}},
		"secret as argument":  {nil, []string{"--database-url=postgres://u:secret@h/d"}, []string{"which every user of this machine can read"}},
		"secret in a query":   {nil, []string{"--database-url", "postgres://h/d?password=secret"}, []string{"which every user of this machine can read"}},
		"secret in keywords":  {nil, []string{"--listen-url", "host=h password=secret"}, []string{"which every user of this machine can read"}},
		"both":                {map[string]string{"DATABASE_URL": db, "DATABASE_URL_FILE": empty}, nil, []string{"are both given"}},
		"empty file":          {map[string]string{"DATABASE_URL_FILE": empty}, nil, []string{"is empty"}},
		"database URL":        {map[string]string{"DATABASE_URL": "postgres://u:secret@h:port/d"}, nil, []string{"DATABASE_URL can't be used", "write it as postgres://"}},
		"listen URL":          {map[string]string{"DATABASE_URL": db, "WEIR_LISTEN_URL": "postgres://h:port"}, nil, []string{"ListenURL"}},
		"plan file":           {map[string]string{"DATABASE_URL": db, "WEIR_PLANS": planFile(t, "plans: {free: {quota: {event: -1}}}")}, nil, []string{"plans.yaml:1"}},
		"missing plan file":   {map[string]string{"DATABASE_URL": db, "WEIR_PLANS": filepath.Join(t.TempDir(), "none")}, nil, []string{"no such file"}},
		"unreadable interval": {map[string]string{"DATABASE_URL": db, "WEIR_FLUSH_INTERVAL": "1h"}, nil, []string{"FlushInterval is 1h0m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tryBoot(t, c.env, c.args...)
			require.Error(t, err)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
			require.NotContains(t, err.Error(), "secret@")
			require.NotContains(t, err.Error(), "=secret")
		})
	}
}

func TestHelpIsNoFault(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	require.NoError(t, run(context.Background(), []string{"--help"}, func(string) string { return "" }, &out, io.Discard))
	for _, name := range []string{"DATABASE_URL", "WEIR_LISTEN_URL", "WEIR_PLANS", "WEIR_JOURNAL_DIR", "WEIR_ADDR", "WEIR_API_TOKEN"} {
		require.Contains(t, out.String(), "$"+name)
	}
}

func TestSecretsAreReadFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	s := boot(t, map[string]string{
		"DATABASE_URL_FILE": file("db", schematest.URL(t)+"\n"), "WEIR_PLANS": planFile(t, testPlans),
	}, "--api-token-file", file("token", "0123456789abcdef0123\n"), "--log-format=json").ready()
	require.Equal(t, 401, s.get("/v1/usage/acme").status)
	require.Equal(t, 200, s.get("/v1/usage/acme", "Authorization", "Bearer 0123456789abcdef0123").status)
}

func TestWithATokenOnlyItsHoldersAreAnswered(t *testing.T) {
	t.Parallel()
	const token = "correct horse battery staple"
	_, err := tryBoot(t, map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none", "WEIR_API_TOKEN": token})
	require.ErrorContains(t, err, "without blanks")
	good := strings.ReplaceAll(token, " ", "-")
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans), "WEIR_API_TOKEN": good, "WEIR_ADDR": "0.0.0.0:0"}).ready()
	call := `{"account":"acme","feature":"events"}`
	for i, h := range []string{"", "Bearer", "Bearer ", "Basic " + good, good, "Bearer " + good + "x", "Bearer " + good[1:], "Bearer " + strings.ToUpper(good)} {
		a := s.post("/v1/consume", call, "Authorization", h)
		require.Equal(t, 401, a.status, "%d %q", i, h)
		require.Equal(t, "unauthorized", a.json(t)["error"])
		require.Equal(t, `Bearer realm="weir"`, a.header.Get("WWW-Authenticate"))
	}
	for _, path := range []string{"/metrics", "/v1/usage/acme", "/nothing"} {
		require.Equal(t, 401, s.get(path).status, path)
	}
	require.Equal(t, 200, s.get("/healthz").status)
	require.Equal(t, 200, s.post("/v1/consume", call, "Authorization", "bearer "+good).status)
	require.Equal(t, 200, s.post("/v1/consume", call, "X-Weir-Token", good).status)
	a := s.get("/v1/usage/acme", "Authorization", "Bearer "+good).json(t)
	require.EqualValues(t, 2, a["features"].(map[string]any)["events"].(map[string]any)["used"])
}

func TestAUnixSocketIsServed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "weir") // t.TempDir is too long for a socket's path
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	env := map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans), "WEIR_ADDR": path}
	s := boot(t, env).ready()
	require.Equal(t, 200, s.post("/v1/consume", `{"account":"acme","feature":"events"}`).status)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, "0660", fmt.Sprintf("%04o", info.Mode().Perm()))
	_, err = tryBoot(t, env)
	require.ErrorContains(t, err, "another process serves there")
	require.NoError(t, s.stop())

	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	require.NoError(t, err)
	dead.SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())
	env["WEIR_ADDR"] = "unix:" + path
	s = boot(t, env).ready()
	require.EqualValues(t, 1, s.get("/v1/usage/acme").json(t)["features"].(map[string]any)["events"].(map[string]any)["used"])
}
