package pgtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/postgres"
)

// Not parallel: they change DATABASE_URL.

func TestDatabaseURLNamesTheServer(t *testing.T) {
	server := pgtest.Server(t)
	host := mustConfig(t, server.URL("postgres")).Host
	for name, base := range map[string]string{
		"URL":                          server.URL("postgres"),
		"URL that names it by keyword": server.URL("") + "&dbname=postgres",
		"keywords and values":          fmt.Sprintf("host=%s port=5432 user=postgres dbname=postgres", host),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DATABASE_URL", base)
			t.Run("uses it", func(t *testing.T) {
				pool := pgtest.New(t)
				require.Equal(t, host, pool.Config().ConnConfig.Host)
				_, err := pool.Exec(t.Context(), "CREATE TABLE mine (id int)")
				require.NoError(t, err)
				require.Len(t, databases(t, server.URL("postgres"), "weir_test_"), 1)
			})
			require.Empty(t, databases(t, server.URL("postgres"), "weir_"), "nothing stays")
		})
	}
}

func TestLeftoversAreDroppedOnlyIfOldUnusedAndOurs(t *testing.T) {
	server := fastServer(t)
	url := server.URL("postgres")
	t.Setenv("DATABASE_URL", url)
	for _, name := range []string{
		"weir_test_1000000000_dropped", "weir_building_1000000000_dropped", "weir_template_1000000000_dropped",
		"weir_test_1000000000_used", "weir_test_9999999999_young", "weir_test_of_mine", "weir_test_1000000000",
		"weir_production_1000000000_x", "my_weir_test_1000000000_x",
	} {
		require.NoError(t, exec(t.Context(), url, "CREATE DATABASE "+name))
	}
	conn, err := pgx.Connect(t.Context(), server.URL("weir_test_1000000000_used"))
	require.NoError(t, err)
	defer conn.Close(context.Background())

	t.Run("a later test", func(t *testing.T) { pgtest.URL(t) })
	require.ElementsMatch(t, []string{
		"weir_test_1000000000_used", "weir_test_9999999999_young", "weir_test_of_mine", "weir_test_1000000000",
		"weir_production_1000000000_x", "my_weir_test_1000000000_x",
	}, databases(t, url, ""))
}

func fastServer(t *testing.T) *postgres.Server {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{Fast: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })
	return server
}

func mustConfig(t *testing.T, url string) *pgx.ConnConfig {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	return config
}

func exec(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// databases returns the names of the databases that start with prefix, but for
// the server's own.
func databases(t *testing.T, url, prefix string) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), `SELECT datname::text FROM pg_database
		WHERE starts_with(datname, $1) AND datname NOT IN ('postgres', 'template0', 'template1')`, prefix)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return names
}
