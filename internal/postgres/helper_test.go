package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirhq/weir/internal/postgres"
)

// roleVariable makes this test program play the owner of a server, so that
// tests can kill one.
const roleVariable = "WEIR_POSTGRES_TEST_ROLE"

// patience bounds waits for something that is certain to happen; the machine
// may be busy.
const patience = 60 * time.Second

// told is what an owner tells about its server.
type told struct {
	URL, Folder    string
	Server, Keeper int // process ids, of a private server
	Failure        string
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	answer, held := play(context.Background(), role)
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		os.Exit(1)
	}
	// Lives until it is killed, or its standard input is closed.
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(held)
}

func play(ctx context.Context, role string) (answer told, held any) {
	if role == "private" {
		server, err := postgres.Start(ctx, postgres.Options{Fast: true})
		if err != nil {
			return told{Failure: err.Error()}, nil
		}
		return told{
			URL: server.URL("postgres"), Folder: server.Folder(),
			Server: server.ServerPid(), Keeper: server.KeeperPid(),
		}, server
	}
	lease, err := postgres.Join(ctx, role, sharedOptions())
	if err != nil {
		return told{Failure: err.Error()}, nil
	}
	return told{URL: lease.URL("postgres"), Folder: lease.Folder()}, lease
}

func sharedOptions() postgres.Options {
	return postgres.Options{Fast: true, Linger: 300 * time.Millisecond}
}

// owner is another process that owns a server.
type owner struct {
	told
	cmd   *exec.Cmd
	stdin io.Closer
}

// newOwner starts a process that owns a private server, or a lease on the
// shared one that role names.
func newOwner(t *testing.T, role string) *owner {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	o := &owner{cmd: cmd, stdin: stdin}
	t.Cleanup(o.kill)
	require.NoError(t, json.NewDecoder(out).Decode(&o.told))
	require.Empty(t, o.Failure)
	return o
}

// kill ends the process with SIGKILL. Killing twice does nothing.
func (o *owner) kill() {
	_ = o.cmd.Process.Kill()
	_ = o.cmd.Wait()
}

func start(t *testing.T, options postgres.Options) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	var answer string
	require.NoError(t, connect(t, url).QueryRow(t.Context(), sql).Scan(&answer))
	return answer
}

// requireGone waits until nothing of a server is left: no connection to it, no
// folder, and no process.
func requireGone(t *testing.T, conn *pgx.Conn, folder string, pids ...int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_sleep(3600)")
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the server did not break the connection")
	require.Eventually(t, func() bool {
		_, err := os.Stat(folder)
		return os.IsNotExist(err)
	}, patience, 10*time.Millisecond, "%s is still there", folder)
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !running(t, pid) }, patience, 10*time.Millisecond)
	}
}

func postmasterOf(t *testing.T, folder string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "data", "postmaster.pid"))
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
	require.NoError(t, err)
	return pid
}

// segmentExists says whether a System V shared memory segment exists.
func segmentExists(t *testing.T, id string) bool {
	t.Helper()
	number, err := strconv.Atoi(id)
	require.NoError(t, err)
	var segment unix.SysvShmDesc
	_, err = unix.SysvShmCtl(number, unix.IPC_STAT, &segment)
	if err != nil {
		require.True(t, errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EIDRM), err)
	}
	return err == nil
}

// running says whether a process exists and is more than a dead child whose
// parent has not asked for its status.
func running(t *testing.T, pid int) bool {
	t.Helper()
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	state := bytes.TrimSpace(out)
	return len(state) > 0 && state[0] != 'Z'
}
