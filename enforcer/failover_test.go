package enforcer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

// While a node stores its usage again for a database that lost commits, its calls go on. What they are granted then must
// not be granted to others as well.
func TestNothingIsGrantedTwiceWhileUsageIsStoredAgain(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	var nodes [2]*Enforcer
	for i := range nodes {
		nodes[i] = startHere(t, pool, thousand)
	}
	admitted := int64(0)
	take := func(e *Enforcer, n int64) bool {
		d, err := e.Consume(t.Context(), "acme", "events", n)
		require.NoError(t, err)
		if d.Allowed {
			admitted += n
		}
		return d.Allowed
	}
	require.True(t, take(nodes[0], 1))
	require.NoError(t, nodes[0].Flush(t.Context()))
	a, _ := nodes[0].accounts.Load("acme")
	c := a.at(0).cur.Load()

	// The settling waits behind a fold, and the node is asked meanwhile.
	fold, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = fold.Exec(t.Context(), "SELECT FROM weir.fold FOR UPDATE")
	require.NoError(t, err)
	nodes[0].resettleSoon()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.back > 0
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, nodes[0].Flush(t.Context())) // a heartbeat in between ends nothing
	take(nodes[0], 1)
	require.NoError(t, fold.Rollback(t.Context()))
	require.Eventually(t, func() bool { return !nodes[0].rejoining.Load() }, 20*time.Second, time.Millisecond)
	require.NoError(t, nodes[0].Flush(t.Context()))

	// What the node still has in hand must be the database's to know of.
	var lim int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT lim FROM weir.leases WHERE key = $1 AND node = $2", c.key(), nodes[0].node).Scan(&lim))
	require.GreaterOrEqual(t, lim, c.total()+c.leftNow(), "the lease covers what the node may still spend")
	for range 1_000 {
		if !take(nodes[1], 1) && !take(nodes[0], 1) {
			break
		}
	}
	require.LessOrEqual(t, admitted, int64(1_000))
}

// The database has lost commits, the usage can't be stored again at once, and a heartbeat is stored whose answer is lost:
// the loss is not forgotten.
func TestALossIsRememberedUntilEverythingIsStoredAgain(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := startHere(t, pool, thousand)
	_, err := e.Consume(t.Context(), "acme", "events", 7)
	require.NoError(t, err)
	require.NoError(t, e.Flush(t.Context()))
	_, err = pool.Exec(t.Context(), `ALTER FUNCTION weir.settle_node RENAME TO settle_later;
		DELETE FROM weir.inbox; UPDATE weir.nodes SET heartbeat = heartbeat - 10 WHERE state = 'live'`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return e.stats.failovers.Load() > 0 && !e.rejoining.Load() }, 20*time.Second, time.Millisecond)
	_, err = pool.Exec(t.Context(), `ALTER FUNCTION weir.settle_later RENAME TO settle_node;
		UPDATE weir.nodes SET heartbeat = heartbeat + 1 WHERE state = 'live'`)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		var used int64
		err := pool.QueryRow(t.Context(), "SELECT sum(used)::bigint FROM weir.totals").Scan(&used)
		return err == nil && used == 7
	}, 10*time.Second, 10*time.Millisecond)
	require.EqualValues(t, 1, e.stats.failovers.Load())
}
