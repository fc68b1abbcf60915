package enforcer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// A machine whose clock is ahead of the database's begins no period early, and does not wait for the database to catch up.
func TestAMachineWhoseClockIsAheadCountsByTheDatabases(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2020, time.March, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, usage.SimulateClock(t.Context(), pool, end.Add(-time.Hour)))
	e := startHere(t, pool, idlePlans)
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Terms.ResetsAt.Equal(end), "%s", d.Terms.ResetsAt)
	require.NoError(t, e.Flush(t.Context()))
	var sealed time.Time
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sealed FROM weir.nodes WHERE id = $1", e.node).Scan(&sealed))
	require.True(t, sealed.Before(end))
}
