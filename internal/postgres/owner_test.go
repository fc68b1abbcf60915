package postgres_test

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/postgres"
)

func TestServerEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, o *owner){
		"killed": func(_ *testing.T, o *owner) { o.kill() },
		"exited": func(t *testing.T, o *owner) {
			require.NoError(t, o.stdin.Close())
			require.NoError(t, o.cmd.Wait())
		},
		"killed together with its keeper": func(t *testing.T, o *owner) {
			require.NoError(t, syscall.Kill(o.Keeper, syscall.SIGKILL))
			o.kill()
		},
		"killed while the server is paused": func(t *testing.T, o *owner) {
			require.NoError(t, syscall.Kill(o.Server, syscall.SIGSTOP))
			o.kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOwner(t, "private")
			conn := connect(t, o.URL)
			end(t, o)
			requireGone(t, conn, o.Folder, o.Server)
		})
	}
}

func TestNextStartRemovesWhatAKilledKeeperLeft(t *testing.T) {
	t.Parallel()
	orphaned, dead := newOwner(t, "private"), newOwner(t, "private")
	conn := connect(t, orphaned.URL)
	killKeeper(t, orphaned)
	killKeeper(t, dead)
	require.NoError(t, syscall.Kill(dead.Server, syscall.SIGKILL))
	orphaned.kill()
	dead.kill()

	require.Eventually(t, func() bool {
		// Those that were killed may take a moment to end.
		server, err := postgres.Start(t.Context(), postgres.Options{Fast: true})
		require.NoError(t, err)
		require.NoError(t, server.Stop(t.Context()))
		_, orphanedErr := os.Stat(orphaned.Folder)
		_, deadErr := os.Stat(dead.Folder)
		return os.IsNotExist(orphanedErr) && os.IsNotExist(deadErr)
	}, patience, time.Millisecond)
	requireGone(t, conn, orphaned.Folder, orphaned.Server)
}

// killKeeper kills a server's keeper with all its processes but the server.
func killKeeper(t *testing.T, o *owner) {
	t.Helper()
	pids, err := postgres.Children(o.Keeper)
	require.NoError(t, err)
	require.Contains(t, pids, o.Server)
	for _, pid := range append(pids, o.Keeper) {
		if pid != o.Server {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	require.True(t, running(t, o.Server), "nobody is left to stop it")
}

func TestNextStartLeavesLiveServersAlone(t *testing.T) {
	t.Parallel()
	o := newOwner(t, "private")
	server := start(t, postgres.Options{Fast: true})
	start(t, postgres.Options{Fast: true})
	require.Equal(t, "1", query(t, o.URL, "SELECT '1'"))
	require.Equal(t, "1", query(t, server.URL("postgres"), "SELECT '1'"))

	require.NoError(t, server.Kill())
	start(t, postgres.Options{Fast: true})
	require.DirExists(t, server.Folder(), "it can still be restarted")
}

func TestSharedServerLivesAsLongAsAnyOwner(t *testing.T) {
	t.Parallel()
	const role = "test-any-owner"
	first, second := newOwner(t, role), newOwner(t, role)
	require.Equal(t, first.URL, second.URL)
	conn := connect(t, first.URL)

	first.kill()
	third := newOwner(t, role)
	require.Equal(t, first.URL, third.URL, "the one who started it is not needed")
	second.kill()
	// Longer than it waits for another owner.
	_, err := conn.Exec(t.Context(), "SELECT pg_sleep(1)")
	require.NoError(t, err)

	third.kill()
	requireGone(t, conn, first.Folder)
	require.NotEqual(t, first.URL, newOwner(t, role).URL)
}

func TestProcessesThatJoinAtOnceShareOneServer(t *testing.T) {
	t.Parallel()
	var (
		mu      sync.Mutex
		group   sync.WaitGroup
		folders = map[string]int{}
	)
	for range 8 {
		group.Go(func() {
			lease, err := postgres.Join(t.Context(), "test-at-once", sharedOptions())
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { require.NoError(t, lease.Release()) })
			mu.Lock()
			defer mu.Unlock()
			folders[lease.Folder()]++
		})
	}
	group.Wait()
	require.Len(t, folders, 1)
}

// Owners come back soon after the last one has gone, at every moment of what the
// keeper does then. A mistake in it would leave them with a server that goes.
func TestServerThatWasJoinedStays(t *testing.T) {
	t.Parallel()
	options := postgres.Options{Fast: true, Linger: 100 * time.Millisecond}
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := range 24 {
				lease, err := postgres.Join(t.Context(), "test-stays", options)
				if err != nil {
					t.Error(err)
					return
				}
				for range 2 {
					conn, err := pgx.Connect(t.Context(), lease.URL("postgres"))
					if err != nil {
						t.Errorf("joined, and it is gone: %v", err)
						break
					}
					_ = conn.Close(t.Context())
				}
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Duration(6*i) * time.Millisecond)
			}
		})
	}
	group.Wait()
}

func TestJoinReplacesASharedServerThatCrashed(t *testing.T) {
	t.Parallel()
	const role = "test-crashed"
	o := newOwner(t, role)
	conn := connect(t, o.URL)
	var pid int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	require.NoError(t, syscall.Kill(postmasterOf(t, o.Folder), syscall.SIGKILL))
	requireGone(t, conn, o.Folder, pid)
	require.Equal(t, "1", query(t, newOwner(t, role).URL, "SELECT '1'"))
}

func TestJoinRefusesBadArguments(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "../up", "Capital", "a name"} {
		_, err := postgres.Join(t.Context(), name, sharedOptions())
		require.ErrorContains(t, err, "small letters", name)
	}
	_, err := postgres.Join(t.Context(), "test-tcp", postgres.Options{TCP: true})
	require.ErrorContains(t, err, "socket only")
}

// Not parallel: it changes the environment.
func TestJoinRefusesARegistryThatOthersCanWrite(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	lease, err := postgres.Join(t.Context(), "test-registry", sharedOptions())
	require.NoError(t, err)
	require.NoError(t, lease.Release())
	registries, err := filepath.Glob(filepath.Join(temp, "weir-[0-9]*"))
	require.NoError(t, err)
	require.Len(t, registries, 1)

	require.NoError(t, os.Chmod(registries[0], 0o777))
	_, err = postgres.Join(t.Context(), "test-registry", sharedOptions())
	require.ErrorContains(t, err, "mode 0700")
}
