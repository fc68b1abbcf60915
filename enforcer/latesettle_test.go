package enforcer

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

// Work that takes longer than its reservation is counted when it is settled, also when the account was idle for so long
// that its counter would have been dropped, and has been used again since.
func TestALateSettleIsCountedBesideWhatCameSince(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	r, err := e.Reserve(t.Context(), "acme", "events", 500)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	c := a.at(0).cur.Load()
	r.expire()

	e.give(c, func() bool { return true }) // what idle minutes do
	require.NoError(t, e.Flush(t.Context()))
	for range 20 {
		c.mu.Lock()
		c.usedAt = e.clock.mono.Load() - int64(forgetAfter) - 1
		c.mu.Unlock()
		e.returnIdle()
	}
	e.outdate(a) // whoever comes next loads the account
	d, err := e.Consume(t.Context(), "acme", "events", 300)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	require.NoError(t, e.Flush(t.Context()))
	_, err = r.Settle(t.Context(), 500)
	require.NoError(t, err)
	require.NoError(t, e.Flush(t.Context()))

	var stored int64
	require.NoError(t, e.db.QueryRow(t.Context(), "SELECT weir.stored($1)", c.key()).Scan(&stored))
	require.EqualValues(t, 800, stored)

	// Nobody refers to the reservation any more: the counter goes like any other.
	runtime.KeepAlive(r)
	require.Eventually(t, func() bool {
		runtime.GC()
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.promised() == 0
	}, 20*time.Second, 5*time.Millisecond)
}

// A reservation is settled beyond what it holds, and its period ends while further units are asked for: the period waits
// until everything is counted.
func TestAReservationHoldsItsPeriodUntilAnOverrunIsCounted(t *testing.T) {
	t.Parallel()
	e, hook := startHooked(t, "weir.lease(")
	r, err := e.Reserve(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	held := func() (n int64) {
		require.NoError(t, e.pool.QueryRow(t.Context(), "SELECT count(*) FROM weir.held WHERE node = $1 AND key = $2", e.node, r.c.key()).Scan(&n))
		return n
	}
	var meanwhile int64
	end := func() {
		e.endNow(r.c)
		require.NoError(t, e.Flush(t.Context()))
		meanwhile = held()
	}
	hook.run.Store(&end)
	_, err = r.Settle(t.Context(), 90_000)
	require.NoError(t, err)
	require.Nil(t, hook.run.Load())
	require.EqualValues(t, 1, meanwhile)
	require.NoError(t, e.Flush(t.Context()))
	require.Zero(t, held())
	require.EqualValues(t, 90_000, r.c.total())
}
