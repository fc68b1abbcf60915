package postgres_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/postgres"
)

// Not parallel: it changes the environment.
func TestServerStartsWhateverTheTemporaryFolderIs(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(closed, 0o700))
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	require.NoError(t, os.Mkdir(long, 0o755))
	spaced := filepath.Join("/tmp", "weir test of a 'place'")
	require.NoError(t, os.MkdirAll(spaced, 0o777))
	require.NoError(t, os.Chmod(spaced, 0o777|os.ModeSticky))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(spaced)) })

	for name, temp := range map[string]string{
		"closed to others": closed,
		"too long":         long,
		"with spaces":      spaced,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", temp)
			server := start(t, postgres.Options{Fast: true})
			require.Equal(t, "1", query(t, server.URL("postgres"), "SELECT '1'"))
			if name == "with spaces" {
				require.Equal(t, spaced, filepath.Dir(server.Folder()))
			}
			require.NoError(t, server.Stop(t.Context()))
			require.NoDirExists(t, server.Folder())
		})
	}
}

// Not parallel: it changes the environment.
func TestServerIgnoresPostgresVariables(t *testing.T) {
	t.Setenv("PGDATA", "/nowhere")
	t.Setenv("PGPORT", "1")
	t.Setenv("PGHOST", "nowhere.invalid")
	t.Setenv("PGSSLMODE", "verify-full")
	server := start(t, postgres.Options{Fast: true, TCP: true})
	require.Equal(t, "1", query(t, server.URL("postgres"), "SELECT '1'"))
	require.Equal(t, "1", query(t, server.TCPURL("postgres"), "SELECT '1'"))
}

func TestFindNamesTheCommandThatInstalls(t *testing.T) {
	t.Parallel()
	_, err := postgres.FindIn(t.Context(), []string{"/nowhere", "relative", t.TempDir()})
	require.ErrorIs(t, err, postgres.ErrNotInstalled)
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.ErrorContains(t, err, "brew install postgresql")
}

func TestFindTakesTheFirstThatIsNewEnough(t *testing.T) {
	t.Parallel()
	old := installation(t, "postgres (PostgreSQL) 13.20")
	good := installation(t, "postgres (PostgreSQL) 14.1 (Debian 14.1-1)")
	newer := installation(t, "postgres (PostgreSQL) 18beta1")
	odd := installation(t, "postgres")
	half := installation(t, "postgres (PostgreSQL) 17.2")
	require.NoError(t, os.Remove(filepath.Join(half, "initdb")))

	found, err := postgres.FindIn(t.Context(), []string{"/nowhere", old, odd, half, good, newer})
	require.NoError(t, err)
	require.Equal(t, postgres.Installation{Dir: good, Version: 14}, found)
	found, err = postgres.FindIn(t.Context(), []string{newer})
	require.NoError(t, err)
	require.Equal(t, 18, found.Version)

	_, err = postgres.FindIn(t.Context(), []string{old, odd})
	require.ErrorIs(t, err, postgres.ErrNotInstalled)
	require.ErrorContains(t, err, old+" has version 13")
	require.ErrorContains(t, err, odd)
}

// installation makes programs that say they are of a version.
func installation(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho '" + version + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}
