package pgtest_test

import (
	"strconv"
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
