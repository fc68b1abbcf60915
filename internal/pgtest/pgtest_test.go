package pgtest_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
)

func TestDatabasesAreFreshAndSeparate(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			_, err := pool.Exec(t.Context(), "CREATE TABLE only_mine (id int)")
			require.NoError(t, err)
		})
	}
}

func TestDatabaseGoesWithItsTest(t *testing.T) {
	t.Parallel()
	pgtest.URL(t) // keeps the server running meanwhile
	var (
		url  string
		open *pgx.Conn
	)
	t.Run("test", func(t *testing.T) {
		url = pgtest.URL(t)
		var err error
		open, err = pgx.Connect(t.Context(), url)
		require.NoError(t, err)
	})
	require.Error(t, open.Ping(t.Context()), "an open connection does not keep the database")
	require.ErrorContains(t, exec(t.Context(), url, "SELECT 1"), "does not exist")
}

func TestMigratedRunsMigrateOncePerKey(t *testing.T) {
	t.Parallel()
	key := t.Name() + pgtest.URL(t) // no other run has this one
	var migrations atomic.Int64
	migrate := func(ctx context.Context, url string) error {
		migrations.Add(1)
		return exec(ctx, url, "CREATE TABLE migrated (id int)")
	}
	var group sync.WaitGroup
	urls := make([]string, 4)
	for i := range urls {
		group.Go(func() { urls[i] = pgtest.Migrated(t, key, migrate) })
	}
	group.Wait()
	require.EqualValues(t, 1, migrations.Load())
	for i, url := range urls {
		require.NotContains(t, urls[:i], url)
		_, err := pgtest.Pool(t, url).Exec(t.Context(), "INSERT INTO migrated VALUES (1)")
		require.NoError(t, err)
	}
}

func TestMigrateThatFailsFailsTheTest(t *testing.T) {
	t.Parallel()
	key := t.Name() + pgtest.URL(t)
	for name, migrate := range map[string]func(ctx context.Context, url string) error{
		"with an error": func(context.Context, string) error { return errors.New("syntax error") },
		"with a connection left open": func(ctx context.Context, url string) error {
			conn, err := pgx.Connect(ctx, url)
			t.Cleanup(func() { _ = conn.Close(context.Background()) })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			failed := failure(t, func(t testing.TB) { pgtest.Migrated(t, key, migrate) })
			require.Contains(t, failed, "build the template")
		})
	}
	url := pgtest.Migrated(t, key, func(context.Context, string) error { return nil })
	require.NoError(t, exec(t.Context(), url, "SELECT 1"), "nothing of the failures is left")
}

// failure returns the message with which do fails its test.
func failure(t *testing.T, do func(testing.TB)) string {
	t.Helper()
	fake := &fakeTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(fake)
	}()
	<-done
	require.NotEmpty(t, fake.message, "it did not fail")
	return fake.message
}
