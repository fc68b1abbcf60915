package postgres_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/postgres"
)

func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{})
	conn := connect(t, server.URL("postgres"))
	folder, pid := server.Folder(), server.ServerPid()

	require.NoError(t, server.Stop(t.Context()))
	requireGone(t, conn, folder, pid)
	require.NoError(t, server.Stop(t.Context()), "a second Stop")
	require.ErrorContains(t, server.Restart(t.Context()), "stopped")
	require.ErrorContains(t, server.Kill(), "not running")
}

func TestStopWithoutTimeKills(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{Fast: true})
	conn := connect(t, server.URL("postgres"))
	folder, pid := server.Folder(), server.ServerPid()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	require.NoError(t, server.Stop(ctx))
	requireGone(t, conn, folder, pid)
}

func TestOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	durable := start(t, postgres.Options{}).URL("postgres")
	require.Equal(t, "on", query(t, durable, "SHOW fsync"))
	require.Equal(t, "on", query(t, durable, "SHOW synchronous_commit"))
	require.Equal(t, "on", query(t, durable, "SHOW full_page_writes"))
	require.Equal(t, "100", query(t, durable, "SHOW max_connections"))
	require.Empty(t, query(t, durable, "SHOW listen_addresses"))

	fast := start(t, postgres.Options{
		Fast:           true,
		MaxConnections: 17,
		Settings:       map[string]string{"work_mem": "7MB", "search_path": `"it's"`, "full_page_writes": "on"},
	}).URL("postgres")
	require.Equal(t, "off", query(t, fast, "SHOW fsync"))
	require.Equal(t, "off", query(t, fast, "SHOW synchronous_commit"))
	require.Equal(t, "17", query(t, fast, "SHOW max_connections"))
	require.Equal(t, "7MB", query(t, fast, "SHOW work_mem"))
	require.Equal(t, `"it's"`, query(t, fast, "SHOW search_path"))
	require.Equal(t, "on", query(t, fast, "SHOW full_page_writes"), "Settings win")
}

func TestBadSettingIsReportedWithTheServersWords(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(t.Context(), postgres.Options{Settings: map[string]string{"no_such_setting": "1"}})
	require.ErrorContains(t, err, "start private PostgreSQL")
	require.ErrorContains(t, err, `unrecognized configuration parameter "no_such_setting"`)
}

func TestTCPNeedsThePassword(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{Fast: true, TCP: true})
	require.Equal(t, "1", query(t, server.TCPURL("postgres"), "SELECT '1'"))
	require.Equal(t, "1", query(t, server.URL("postgres"), "SELECT '1'"))

	config, err := pgx.ParseConfig(server.TCPURL("postgres"))
	require.NoError(t, err)
	require.True(t, net.ParseIP(config.Host).IsLoopback())
	config.Password = "guessed"
	_, err = pgx.ConnectConfig(t.Context(), config)
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "28P01", refused.Code, "invalid_password")

	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, "1", query(t, server.TCPURL("postgres"), "SELECT '1'"), "the same URL after a restart")
	require.Empty(t, start(t, postgres.Options{Fast: true}).TCPURL("postgres"))
}

func TestOnlyTheServersUserReachesTheFolder(t *testing.T) {
	t.Parallel()
	folder := start(t, postgres.Options{Fast: true}).Folder()
	info, err := os.Stat(folder)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	require.NotZero(t, owner, "PostgreSQL refuses to run as root")
	if os.Geteuid() != 0 {
		require.Equal(t, os.Geteuid(), owner)
	}
}

func TestRestartKeepsData(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{})
	old := connect(t, server.URL("postgres"))
	_, err := old.Exec(t.Context(), "CREATE TABLE kept AS SELECT 'yes' AS answer")
	require.NoError(t, err)

	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, "yes", query(t, server.URL("postgres"), "SELECT answer FROM kept"))
	require.Error(t, old.Ping(t.Context()))
}

func TestKilledServerRecoversWhatWasCommitted(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{})
	conn := connect(t, server.URL("postgres"))
	_, err := conn.Exec(t.Context(), "CREATE TABLE kept (answer text)")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "INSERT INTO kept VALUES ('committed')")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "BEGIN; INSERT INTO kept VALUES ('not committed')")
	require.NoError(t, err)

	require.NoError(t, server.Kill())
	require.Error(t, conn.Ping(t.Context()))
	_, err = pgx.Connect(t.Context(), server.URL("postgres"))
	require.Error(t, err, "nothing answers")
	require.ErrorContains(t, server.Pause(), "not running")

	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, "committed", query(t, server.URL("postgres"), "SELECT string_agg(answer, ',') FROM kept"))
	require.Contains(t, server.Log(), "database system was not properly shut down")
}

func TestStopAfterKillLeavesNoSharedMemory(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{Fast: true})
	pidFile, err := os.ReadFile(filepath.Join(server.Folder(), "data", "postmaster.pid"))
	require.NoError(t, err)
	segment := strings.Fields(strings.Split(string(pidFile), "\n")[6])[1]
	require.True(t, segmentExists(t, segment))

	require.NoError(t, server.Kill())
	require.True(t, segmentExists(t, segment), "a killed server leaves it to the next run")
	require.NoError(t, server.Stop(t.Context()))
	require.False(t, segmentExists(t, segment))
}

func TestPausedServerKeepsConnectionsAndAnswersNobody(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{Fast: true})
	conn := connect(t, server.URL("postgres"))
	require.NoError(t, server.Pause())

	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "SELECT 1")
		answered <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := pgx.Connect(ctx, server.URL("postgres"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	select {
	case err := <-answered:
		require.Fail(t, "a paused server answered", "%v", err)
	default:
	}

	require.NoError(t, server.Resume())
	require.NoError(t, <-answered)
	require.NoError(t, server.Resume(), "resuming twice")
}

func TestPausedServerStopsAndRestarts(t *testing.T) {
	t.Parallel()
	server := start(t, postgres.Options{Fast: true})
	connect(t, server.URL("postgres"))
	require.NoError(t, server.Pause())
	require.NoError(t, server.Restart(t.Context()))
	require.Equal(t, "1", query(t, server.URL("postgres"), "SELECT '1'"))
	require.NoError(t, server.Pause())
	require.NoError(t, server.Stop(t.Context()))
}
