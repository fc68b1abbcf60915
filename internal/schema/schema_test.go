package schema_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schema"
)

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i + 1
	}
	return all
}

func TestMigrateTwice(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	applied, err := schema.Migrate(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, upTo(schema.Version()), applied)
	require.NoError(t, schema.Check(t.Context(), conn))
	applied, err = schema.Migrate(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, applied)
}

func TestProgramsMigrateAtOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var all []int
	for range 4 {
		conn := connect(t, url)
		wg.Go(func() {
			applied, err := schema.Migrate(context.Background(), conn)
			if err != nil {
				t.Errorf("migrate: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, applied...)
		})
	}
	wg.Wait()
	require.Equal(t, upTo(schema.Version()), all, "each migration once, by one of them")
	require.NoError(t, schema.Check(t.Context(), connect(t, url)))
}

func TestCheckNamesTheCommand(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	err := schema.Check(t.Context(), conn)
	require.ErrorIs(t, err, schema.ErrNotMigrated)
	require.ErrorContains(t, err, "worker migrate")
	_, err = conn.Exec(t.Context(), "CREATE SCHEMA weir")
	require.NoError(t, err)
	require.ErrorIs(t, schema.Check(t.Context(), conn), schema.ErrNotMigrated, "a schema without tables")
	_, err = schema.Migrate(t.Context(), conn)
	require.NoError(t, err)

	at := func(version int) error {
		_, err := conn.Exec(t.Context(), "TRUNCATE weir.schema_version")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "INSERT INTO weir.schema_version (version, name) VALUES ($1, 'x')", version)
		require.NoError(t, err)
		return schema.Check(t.Context(), conn)
	}
	require.NoError(t, at(schema.Version()))
	require.NoError(t, at(schema.Version()+1), "the next one: the last program of this version may still run")
	err = at(schema.Version() - 1)
	require.ErrorIs(t, err, schema.ErrWrongVersion)
	require.ErrorContains(t, err, "worker migrate")
	err = at(schema.Version() + 2)
	require.ErrorIs(t, err, schema.ErrWrongVersion)
	require.ErrorContains(t, err, "newer program")
	applied, err := schema.Migrate(t.Context(), conn)
	require.NoError(t, err)
	require.Empty(t, applied, "a database that is ahead is left alone")
}

func TestCheckPassesOnTheDatabasesOwnError(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	require.NoError(t, conn.Close(t.Context()))
	err := schema.Check(t.Context(), conn)
	require.Error(t, err)
	require.NotErrorIs(t, err, schema.ErrNotMigrated)
}

// A migration that fails leaves nothing of itself, and the ones before it stand.
func TestAMigrationIsWhole(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	_, err := conn.Exec(t.Context(), `CREATE SCHEMA weir; CREATE FUNCTION weir.clock() RETURNS integer LANGUAGE sql AS 'SELECT 1'`)
	require.NoError(t, err)
	applied, err := schema.Migrate(t.Context(), conn)
	require.ErrorContains(t, err, "version 2")
	require.Equal(t, []int{1}, applied)
	require.ErrorIs(t, schema.Check(t.Context(), conn), schema.ErrWrongVersion)
	_, err = conn.Exec(t.Context(), "DROP FUNCTION weir.clock()")
	require.NoError(t, err)
	applied, err = schema.Migrate(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, upTo(schema.Version())[1:], applied)
}

// Where sequential scans are switched off, each plan over a single-row table costs 1e10 and would be compiled.
func TestNoFunctionIsCompiled(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.URL(t))
	_, err := schema.Migrate(t.Context(), conn)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), `SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = 'weir' AND 'enable_seqscan=off' = ANY (p.proconfig) AND NOT 'jit=off' = ANY (p.proconfig) ORDER BY 1`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, names)
}
