package enforcer

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// thousand is a plan file of one plan with a thousand units.
const thousand = `
currency: usd
default_plan: free
features:
  events: {}
plans:
  free: {quota: {events: 1_000}, on_exceeded: block}
`

// startHere is an enforcer whose inside the tests of this package may look at.
func startHere(t *testing.T, pool *pgxpool.Pool, file string) *Enforcer {
	t.Helper()
	catalog, err := plans.Parse([]byte(file))
	require.NoError(t, err)
	e, err := New(pool, &Config{Plans: catalog, JournalDir: t.TempDir(), MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	return e
}

const idlePlans = `
currency: usd
default_plan: free
features:
  events: {}
plans:
  free: {quota: {events: 100_000}, on_exceeded: block}
`

// idle makes a counter one from which nothing was spent for longer than it is kept, and waits until it is dropped.
func (e *Enforcer) idleFor(t *testing.T, c *counter) {
	t.Helper()
	e.give(c, func() bool { return true }) // what the first idle minute does
	require.NoError(t, e.Flush(t.Context()))
	require.Eventually(t, func() bool {
		c.mu.Lock()
		c.usedAt = e.clock.mono.Load() - int64(forgetAfter) - 1
		c.mu.Unlock()
		e.returnIdle()
		_, kept := e.byKey.load(c.key())
		return !kept
	}, 20*time.Second, 5*time.Millisecond)
}

func TestAnAccountThatWasIdleIsLoadedAgainByItsNextCall(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	d, err := e.Consume(t.Context(), "acme", "events", 10)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	a, _ := e.accounts.Load("acme")
	e.idleFor(t, a.at(0).cur.Load())

	d, err = e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.Equal(t, OK, d.Reason)
	require.EqualValues(t, 11, d.Used)
}

func TestAKilledNodeCountsAnIdleAccountThatCameBackOnce(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := startHere(t, pool, idlePlans)
	_, err := e.Consume(t.Context(), "acme", "events", 1000)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	old := a.at(0).cur.Load()
	e.idleFor(t, old)
	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)

	// What a kill leaves behind, while something still refers to the first counter (a reservation, or no collection yet).
	require.EqualValues(t, 1001, e.leftByAKill(t, pool))
	runtime.KeepAlive(old)
}

// leftByAKill is the sum of what a recovery would find in the enforcer's journal now.
func (e *Enforcer) leftByAKill(t *testing.T, pool *pgxpool.Pool) (counted uint64) {
	t.Helper()
	left := t.TempDir()
	require.NoError(t, os.CopyFS(left, os.DirFS(e.cfg.JournalDir)))
	require.NoError(t, os.Chmod(left, 0o700))
	inst, err := usage.ReadInstallation(t.Context(), pool)
	require.NoError(t, err)
	problems, err := journal.Recover(t.Context(), left, inst.ID, func(_ context.Context, dead journal.Dead) error {
		for _, x := range dead.Entries {
			counted += x.Total
		}
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	return counted
}

// However many leases lie idle, they go back a statement's worth at a time, and callers go on meanwhile.
func TestIdleLeasesGoBackTogether(t *testing.T) {
	t.Parallel()
	const accounts = 300
	pool := schematest.Pool(t)
	e := startHere(t, pool, idlePlans)
	var counters []*counter
	for i := range accounts {
		name := fmt.Sprint("account ", i)
		d, err := e.Consume(t.Context(), name, "events", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		a, _ := e.accounts.Load(name)
		counters = append(counters, a.at(0).cur.Load())
	}
	before := e.Stats().Exchanges
	require.Eventually(t, func() bool {
		e.returnUnspent(0)
		for _, c := range counters {
			c.mu.Lock()
			gone := c.tight && c.left() == 0 && !c.busy
			c.mu.Unlock()
			if !gone {
				return false
			}
		}
		return true
	}, 20*time.Second, 5*time.Millisecond)
	sent := e.Stats().Exchanges - before
	t.Logf("%d leases in %d statements", accounts, sent)
	require.Less(t, sent, int64(accounts/4))
	var granted int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(granted)::bigint FROM weir.quotas").Scan(&granted))
	require.EqualValues(t, accounts, granted, "what is left to the node is what it used")
	d, err := e.Consume(t.Context(), "account 7", "events", 1)
	require.NoError(t, err)
	require.EqualValues(t, 2, d.Used)
}

func TestANodeThatIsAloneKeepsItsLeasesLonger(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	require.Equal(t, forgetAfter, e.patience())
	_, err := usage.Register(t.Context(), e.pool, "another", "", time.Time{})
	require.NoError(t, err)
	require.NoError(t, e.Flush(t.Context()))
	require.Equal(t, idleAfter, e.patience())
}

// A period that was cut is opened again, after its counter was dropped and while something still refers to that one.
func TestAKilledNodeCountsAPeriodThatWasOpenedAgainOnce(t *testing.T) {
	t.Parallel()
	for _, cells := range []bool{false, true} {
		pool := schematest.Pool(t)
		e := startHere(t, pool, idlePlans)
		_, err := e.Consume(t.Context(), "acme", "events", 1000)
		require.NoError(t, err)
		a, _ := e.accounts.Load("acme")
		old := a.at(0).cur.Load()
		if cells {
			e.promote(old)
			require.True(t, e.quickCells1(old), "a unit from a cell")
		} else {
			require.True(t, old.take(e, 1))
		}
		e.endNow(old)
		require.Eventually(t, func() bool { // heartbeats store the last count, return the lease, and drop it
			_, kept := e.byKey.load(old.key())
			return !kept
		}, 20*time.Second, 5*time.Millisecond)
		e.outdate(a) // the change that opens it has the account read again
		d, err := e.Consume(t.Context(), "acme", "events", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.EqualValues(t, 1002, e.leftByAKill(t, pool))
		runtime.KeepAlive(old)
	}
}

// quickCells1 spends a unit from the caller's cell.
func (e *Enforcer) quickCells1(c *counter) bool {
	h := c.cells()
	c.mu.Lock()
	h.active.Store(true)
	c.mu.Unlock()
	e.cellRule = attack
	return c.spendCell(e, h, 1) && h.total() == 1
}

func TestAKeyThatIsGoneIsLoadedAgainByTheCallThatFindsIt(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	e.drop(a.at(0).cur.Load())

	d, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	require.Equal(t, OK, d.Reason)
}
