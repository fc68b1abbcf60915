package enforcer

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// The database refuses a journal at the start (a lock that is held for too long, a connection that is lost) and takes
// everything else: the process that decides meanwhile stores it as soon as it can, before its node is reaped.
func TestAJournalThatWasRefusedAtTheStartIsStoredSoon(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	killed := startHere(t, pool, idlePlans)
	killed.flushing <- struct{}{} // what it counts is in its journal alone
	defer func() { <-killed.flushing }()
	d, err := killed.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	left := t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(killed.cfg.JournalDir)))
	require.NoError(t, os.Chmod(left, 0o700))
	_, err = pool.Exec(t.Context(), `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		RAISE EXCEPTION 'canceling statement due to lock timeout' USING ERRCODE = '55P03'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON weir.inbox EXECUTE FUNCTION refuse()`)
	require.NoError(t, err)

	e, err := New(pool, &Config{JournalDir: left, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	state, err := usage.NodeState(t.Context(), pool, killed.node)
	require.NoError(t, err)
	require.Equal(t, "reaping", state)
	_, err = pool.Exec(t.Context(), "DROP TRIGGER refuse ON weir.inbox")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		state, err := usage.NodeState(t.Context(), pool, killed.node)
		return err == nil && state == "recovered"
	}, 30*time.Second, 10*time.Millisecond)
	var used, granted int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(used)::bigint, sum(granted)::bigint FROM weir.totals JOIN weir.quotas USING (key)").Scan(&used, &granted))
	require.Equal(t, []int64{10, 10}, []int64{used, granted})
}
