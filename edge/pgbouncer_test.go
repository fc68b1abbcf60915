package edge_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/postgres"
)

// The whole flow (migrate, worker, three nodes, traffic, a month's end, invoices, every number compared) goes through
// PgBouncer in transaction mode, as Debian packages it: no prepared statement that has a name survives there. Only
// LISTEN and the migration use the server's own address.
func TestTheFlowPassesThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{TCP: true, Fast: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	direct := server.TCPURL("postgres")
	pooled := pooler(t, direct)
	dir := t.TempDir()
	for _, name := range []string{"worker", "enforcer"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "./cmd/"+name)
		build.Dir = ".."
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	env := append(os.Environ(), "NO_COLOR=1", "DATABASE_URL="+pooled, "WEIR_LISTEN_URL="+direct)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "worker"), args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("demo", "--existing", "--seed", "7")
	t.Logf("%s", out)
	require.NoError(t, err)
	require.Contains(t, out, "all numbers agree")

	out, _ = run("doctor")
	require.Contains(t, out, "a pooler in transaction mode")
	require.NotContains(t, out, "named prepared statements")
	require.Contains(t, out, "a notice arrives")
	u, err := url.Parse(pooled)
	require.NoError(t, err)
	u.RawQuery = ""
	env = append(os.Environ(), "DATABASE_URL="+u.String())
	out, err = run("doctor")
	require.Error(t, err)
	require.Contains(t, out, "default_query_exec_mode=cache_describe")
	require.Contains(t, out, "LISTEN goes through a pooler")
}

// The flow tests of the packages themselves go through it too: first contacts, leases, strict calls, reservations,
// folds, periods, plan changes, closes, reports and jobs. LISTEN goes through the pooler there as well and is lost, so
// they also show that everything is found without a notice.
func TestThePackagesPassThroughPgBouncer(t *testing.T) {
	t.Parallel()
	server, err := postgres.Start(t.Context(), postgres.Options{TCP: true, Fast: true, MaxConnections: 300})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	direct := server.TCPURL("postgres")
	u, err := url.Parse(pooler(t, direct))
	require.NoError(t, err)
	for _, c := range []struct{ pkg, run, skip string }{
		{"./enforcer", "^(TestReservations|TestAHundredCallers|TestCase03|TestCase29)", "none"},
		{"./usage", "^(TestFold|TestStrict|TestOnce|TestPeriods|TestRetire|TestReap)", "none"},
		{"./billing", "^(TestOverageReachesTheInvoice|TestCase16|TestCase17|TestCase37|TestLateUsage|TestARestoredDatabase)", "none"},
		{"./jobs", ".", "^TestMigrateRunsTwiceAtOnce$"}, // migrations lock a session, so they take the direct address
	} {
		t.Run(c.pkg, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout", "5m", "-v", "-run", c.run, "-skip", c.skip, c.pkg)
			cmd.Dir = ".."
			cmd.Env = append(os.Environ(), "DATABASE_URL="+direct, "WEIR_TEST_POOLER="+u.Host)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.GreaterOrEqual(t, strings.Count(string(out), "\n--- PASS: "), 4, "%s", out)
		})
	}
}

// pooler starts PgBouncer in front of a server and returns its URL, with the mode of queries that it needs.
func pooler(t *testing.T, direct string) string {
	t.Helper()
	binary, err := exec.LookPath("pgbouncer")
	require.NoError(t, err, "install it: apt-get install pgbouncer")
	cfg, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	dir := t.TempDir()
	file := filepath.Join(dir, "pgbouncer.ini")
	users := filepath.Join(dir, "users.txt")
	require.NoError(t, os.WriteFile(users, []byte("\"weir\" \"\"\n"), 0o644))
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `[databases]
weir = host=%[1]s port=%[2]d dbname=%[3]s user=%[4]s password=%[5]s
* = host=%[1]s port=%[2]d user=%[4]s password=%[5]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[6]d
unix_socket_dir =
auth_type = trust
auth_file = %[7]s
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
`, cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password, port, users), 0o644))
	// PgBouncer refuses to be root and then reads its files as somebody else.
	for at := dir; at != filepath.Dir(filepath.Dir(dir)); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755))
	}
	args := []string{file}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", file}
	}
	cmd := exec.Command(binary, args...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("pgbouncer: %s", log.String())
		}
	})
	pooled := fmt.Sprintf("postgres://weir@127.0.0.1:%d/weir?default_query_exec_mode=cache_describe&sslmode=disable", port)
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), pooled)
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	}, 15*time.Second, 50*time.Millisecond)
	return pooled
}
