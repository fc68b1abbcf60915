package enforcer

import (
	"context"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// What lies in cells when a process is killed is nobody's; what was spent from them is counted, by recovery and by
// everybody who asks before.
func TestAKilledNodeCountsWhatItsCellsSpentAndNotWhatTheyHold(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := startHere(t, pool, idlePlans)
	m := e.Meter("acme", "events")
	_, err := m.Consume(t.Context(), 1)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	c := a.at(0).cur.Load()
	e.cellRule = attack
	e.promote(c)
	h := c.cells()
	require.True(t, h.active.Load())
	require.NotEqual(t, c.line.OnHeap(), !h.lines[0].OnHeap(), "a cell is as durable as its counter")
	for range 99 {
		require.True(t, m.Take(1))
	}
	d, err := m.Consume(t.Context(), 7)
	require.NoError(t, err)
	require.EqualValues(t, 107, d.Used)
	require.Positive(t, h.left())
	require.Positive(t, h.total())
	d, err = e.Usage(t.Context(), "acme", "events")
	require.NoError(t, err)
	require.EqualValues(t, 107, d.Used)

	copied := t.TempDir() // what a kill leaves behind
	require.NoError(t, os.CopyFS(copied, os.DirFS(e.cfg.JournalDir)))
	require.NoError(t, os.Chmod(copied, 0o700))
	inst, err := usage.ReadInstallation(t.Context(), pool)
	require.NoError(t, err)
	var counted uint64
	problems, err := journal.Recover(t.Context(), copied, inst.ID, func(_ context.Context, dead journal.Dead) error {
		for _, x := range dead.Entries {
			counted += x.Total
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	require.EqualValues(t, 107, counted)

	// A recall takes everything back, and the calls after it find nothing in a cell.
	e.give(c, func() bool { return true })
	require.Zero(t, c.leftNow())
	require.Zero(t, h.left())
	require.True(t, m.Take(1))
	require.EqualValues(t, 108, c.total())
	require.NoError(t, e.Flush(t.Context()))
	var stored int64
	require.NoError(t, e.db.QueryRow(t.Context(), "SELECT weir.stored($1)", c.key()).Scan(&stored))
	require.EqualValues(t, 108, stored)
}
