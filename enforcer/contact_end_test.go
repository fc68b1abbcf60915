package enforcer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// A first contact near the end is granted a unit of which nobody knows whether its caller can do with it. Until it is
// spent, another node's call for it calls it back: a refusal would be a false one.
func TestAFirstContactsLastUnitCanBeCalledBack(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	first, second := startHere(t, pool, thousand), startHere(t, pool, thousand)
	d, err := first.Consume(t.Context(), "acme", "events", 999)
	require.NoError(t, err)
	require.True(t, d.Allowed)
	keys, err := usage.Contacts(t.Context(), pool, second.node, true, time.Now(), second.contacts.calls([]*loading{{account: second.accountOf("acme"), feature: "events"}}))
	require.NoError(t, err)
	require.EqualValues(t, 1, keys[0].Lim, "the last unit is here")
	require.False(t, keys[0].Tight)
	answers, err := usage.Ask(t.Context(), pool, first.node, true, []usage.LeaseCall{lastAsk(t, first, "acme")})
	require.NoError(t, err)
	require.True(t, answers[0].Others, "it is called back")
	require.Nil(t, answers[0].Bound)
}

// lastAsk is what a node would ask for one more unit of an account.
func lastAsk(t *testing.T, e *Enforcer, account string) usage.LeaseCall {
	t.Helper()
	a, ok := e.accounts.Load(account)
	require.True(t, ok)
	c := a.at(0).cur.Load()
	require.True(t, c.tryLock())
	defer c.unlock()
	return c.operation(consumes(1), 1, false).call
}

// A node that was alone keeps its leases for long. Another one that comes gets all that they hold, by recall, while the
// first one looks for what lies idle.
func TestANodeThatComesGetsWhatOneThatWasAloneKeeps(t *testing.T) {
	t.Parallel()
	const accounts, each = 20, 1000
	pool := schematest.Pool(t)
	alone := startHere(t, pool, thousand)
	for i := range accounts {
		d, err := alone.Consume(t.Context(), fmt.Sprint("account ", i), "events", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.Equal(t, forgetAfter, alone.patience())
	alone.returnIdle()
	var kept int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT sum(lim)::bigint FROM weir.leases WHERE NOT tight").Scan(&kept))
	require.Greater(t, kept, int64(accounts*5), "it keeps them")
	second := startHere(t, pool, thousand)
	looks, stop := context.WithCancel(t.Context())
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for looks.Err() == nil {
			alone.returnUnspent(0)
		}
	})
	var callers sync.WaitGroup
	admitted := make([]int64, accounts)
	for i := range accounts {
		callers.Go(func() {
			for n := int64(512); n > 0; {
				d, err := second.Consume(t.Context(), fmt.Sprint("account ", i), "events", n)
				if err != nil || d.Reason == Unavailable {
					t.Errorf("account %d: %v, %+v", i, err, d)
					return
				}
				if d.Allowed {
					admitted[i] += n
				} else {
					n /= 2
				}
			}
		})
	}
	callers.Wait()
	stop()
	tasks.Wait()
	for i, n := range admitted {
		require.EqualValues(t, each-1, n, "account %d", i)
	}
}

// A stop while idle leases go back and many first contacts wait ends both, and leaves everything returned.
func TestAStopEndsWhatReturnsAndWhatLoads(t *testing.T) {
	t.Parallel()
	const accounts = 400
	pool := schematest.Pool(t)
	e := startHere(t, pool, thousand)
	var callers sync.WaitGroup
	var told [accounts]int64
	half := make(chan struct{})
	for i := range accounts {
		callers.Go(func() {
			if i >= accounts/2 {
				<-half
			}
			for range 50 {
				d, err := e.Consume(t.Context(), fmt.Sprint("account ", i), "events", 1)
				if err != nil || !d.Allowed && !e.running.Load() {
					return
				}
				if d.Allowed {
					told[i]++
				}
			}
		})
	}
	require.Eventually(t, func() bool { return e.byKey.size() >= accounts/4 }, 30*time.Second, time.Millisecond)
	close(half)
	e.returnUnspent(0)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, e.Stop(ctx))
	callers.Wait()
	sum := int64(0)
	for _, n := range told {
		sum += n
	}
	_, err := usage.Fold(t.Context(), pool, 100_000)
	require.NoError(t, err)
	var used, granted int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(sum(used), 0)::bigint FROM weir.totals").Scan(&used))
	require.Equal(t, sum, used)
	_, err = usage.Retire(t.Context(), pool, e.node)
	require.NoError(t, err)
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(sum(granted), 0)::bigint FROM weir.quotas").Scan(&granted))
	require.Equal(t, sum, granted)
}

// What is given back together is looked up once more: a counter that was dropped meanwhile holds nothing, its key's
// lease is another counter's.
func TestADroppedCounterGivesNothingBackWithOthers(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), thousand)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	a, _ := e.accounts.Load("acme")
	old := a.at(0).cur.Load()
	e.drop(old)
	before := e.Stats().Exchanges
	e.giveAll([]*counter{old}, func(*counter) bool { return true })
	require.Equal(t, before, e.Stats().Exchanges)
	require.True(t, old.tryLock())
	old.unlock()
}

// An account that is to be read again while an older read of it is in flight is read again later: what that one brings
// may be older than the reason.
func TestARefreshBesideAReadInFlightIsNotForgotten(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	_, err := e.Consume(t.Context(), "acme", "events", 1)
	require.NoError(t, err)
	x := e.contacts
	a := e.accountOf("acme")
	a.mu.Lock()
	a.loading = &loading{account: a, done: make(chan struct{})} // as another lane does
	a.mu.Unlock()
	before := e.stats.contacts.Load()
	require.True(t, x.refresh(a))
	require.Eventually(t, func() bool { x.mu.Lock(); defer x.mu.Unlock(); return len(x.later) == 0 && x.running == 0 }, 10*time.Second, time.Millisecond)
	a.mu.Lock()
	a.loading = nil
	a.mu.Unlock()
	require.Eventually(t, func() bool { return e.stats.contacts.Load() > before }, 2*refreshWithin, 10*time.Millisecond)
}
