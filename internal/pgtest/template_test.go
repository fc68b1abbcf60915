package pgtest_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
)

// On a server of its own, since templates are kept for later runs. Not
// parallel: it changes DATABASE_URL.
func TestTemplates(t *testing.T) {
	server := fastServer(t)
	url := server.URL("postgres")
	t.Setenv("DATABASE_URL", url)
	var migrations atomic.Int64
	migrate := func(ctx context.Context, url string) error {
		migrations.Add(1)
		return exec(ctx, url, "CREATE TABLE migrated (id int)")
	}

	t.Run("migrate runs once per key, whoever asks", func(t *testing.T) {
		var group sync.WaitGroup
		urls := make([]string, 4)
		for i := range urls {
			group.Go(func() { urls[i] = pgtest.Migrated(t, "key", migrate) })
		}
		group.Wait()
		require.EqualValues(t, 1, migrations.Swap(0))
		for i, url := range urls {
			require.NotContains(t, urls[:i], url)
			require.NoError(t, exec(t.Context(), url, "INSERT INTO migrated VALUES (1)"))
		}
	})
	t.Run("a build that was killed is not taken for a template", func(t *testing.T) {
		copied := pgtest.Migrated(t, "key", migrate)
		require.NoError(t, exec(t.Context(), copied, "INSERT INTO migrated VALUES (1)"))
		templates := databases(t, url, "weir_template_")
		require.Len(t, templates, 1)

		killed := "weir_building_" + templates[0][len("weir_template_"):]
		require.NoError(t, exec(t.Context(), url, "ALTER DATABASE "+templates[0]+" RENAME TO "+killed))
		copied = pgtest.Migrated(t, "key", migrate)
		require.NoError(t, exec(t.Context(), copied, "INSERT INTO migrated VALUES (1)"))
		require.EqualValues(t, 1, migrations.Swap(0))
	})
	t.Run("another key is another template", func(t *testing.T) {
		copied := pgtest.Migrated(t, "other key", func(context.Context, string) error { return nil })
		require.Error(t, exec(t.Context(), copied, "SELECT FROM migrated"))
	})
	t.Run("a template of yesterday is built again", func(t *testing.T) {
		for _, name := range databases(t, url, "weir_template_") {
			older := "weir_template_1000000000" + name[len("weir_template_1000000000"):]
			require.NoError(t, exec(t.Context(), url, "ALTER DATABASE "+name+" RENAME TO "+older))
		}
		pgtest.Migrated(t, "key", migrate)
		require.EqualValues(t, 1, migrations.Swap(0))
		require.Len(t, databases(t, url, "weir_template_"), 1, "the old ones are dropped")
	})
	t.Run("a migrate that fails fails the test and leaves nothing", func(t *testing.T) {
		before := databases(t, url, "weir_")
		for name, migrate := range map[string]func(ctx context.Context, url string) error{
			"with an error": func(context.Context, string) error { return errors.New("syntax error") },
			"with a connection left open": func(ctx context.Context, url string) error {
				conn, err := pgx.Connect(ctx, url)
				t.Cleanup(func() { _ = conn.Close(context.Background()) })
				return err
			},
		} {
			failed := failure(t, func(t testing.TB) { pgtest.Migrated(t, "failing", migrate) })
			require.Contains(t, failed, "build the template", name)
		}
		require.ElementsMatch(t, before, databases(t, url, "weir_"))
		copied := pgtest.Migrated(t, "failing", func(context.Context, string) error { return nil })
		require.NoError(t, exec(t.Context(), copied, "SELECT 1"))
	})
}
