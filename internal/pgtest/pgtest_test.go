package pgtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
)

func TestDatabasesAreFreshAndSeparate(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			_, err := pool.Exec(t.Context(), "CREATE TABLE only_mine (id int)")
			require.NoError(t, err)
		})
	}
}

func TestMigratedRunsMigrateOncePerKey(t *testing.T) {
	t.Parallel()
	key := t.Name() + pgtest.URL(t) // no other run has this one
	runs := 0
	migrate := func(ctx context.Context, url string) error {
		runs++
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "CREATE TABLE migrated (id int)")
		return err
	}
	first := pgtest.Migrated(t, key, migrate)
	second := pgtest.Migrated(t, key, migrate)
	require.Equal(t, 1, runs)
	require.NotEqual(t, first, second)
	for _, url := range []string{first, second} {
		_, err := pgtest.Pool(t, url).Exec(t.Context(), "INSERT INTO migrated VALUES (1)")
		require.NoError(t, err)
	}
}
