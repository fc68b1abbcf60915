package enforcer

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

// Many accounts that are cold at once: what gathers while one statement is in flight goes in the next one.
func TestColdAccountsShareStatements(t *testing.T) {
	t.Parallel()
	const accounts = 500
	e := startHere(t, schematest.Pool(t), idlePlans)
	before := e.Stats().Contacts
	var wg sync.WaitGroup
	ready := make(chan struct{})
	for i := range accounts {
		wg.Go(func() {
			<-ready
			for range 3 { // one is the first contact, the others spend its lease
				if d, err := e.Consume(t.Context(), fmt.Sprint("account ", i), "events", 1); err != nil || !d.Allowed {
					t.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	close(ready)
	wg.Wait()
	sent := e.Stats().Contacts - before
	t.Logf("%d accounts in %d statements", accounts, sent)
	require.Less(t, sent, int64(accounts/4))
	require.Equal(t, accounts, e.Stats().Accounts)
	for i := range accounts {
		a, _ := e.accounts.Load(fmt.Sprint("account ", i))
		c := a.at(0).cur.Load()
		require.EqualValues(t, 3, c.total())
		require.EqualValues(t, c.lim+c.over, c.total()+int64(left(c.word().Load()))+c.held()+c.back)
	}
}

// An account that the database refuses stands alone in the end: the others of its batch are loaded.
func TestAnAccountThatTheDatabaseRefusesHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	var batch []*loading
	for i := range 9 {
		batch = append(batch, &loading{account: e.accountOf(fmt.Sprint("account ", i)), feature: "events", done: make(chan struct{})})
	}
	batch[5].account = e.accountOf(strings.Repeat("x", 256)) // longer than the database takes
	e.contacts.load(batch)
	require.False(t, e.awayFlag.Load(), "a database that refuses an account has answered: the others' calls go on")
	for i, l := range batch {
		<-l.done
		if i == 5 {
			require.ErrorContains(t, l.err, "accounts_account_check")
			continue
		}
		require.NoError(t, l.err)
		require.NotNil(t, l.account.at(0).cur.Load())
	}
	require.EqualValues(t, 1+2*3, e.Stats().Contacts, "nine, then halves of what holds the one: 4 and 5, 2 and 3, 1 and 1")
}

func TestAFullQueueOfFirstContactsIsUnavailable(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	x := e.contacts
	x.mu.Lock() // as if a statement were in flight
	x.running, x.waiting = contactLanes, make([]*loading, contactQueue)
	x.mu.Unlock()
	d, err := e.Consume(t.Context(), "one more", "events", 1)
	require.NoError(t, err)
	require.Equal(t, Unavailable, d.Reason)
	x.mu.Lock()
	x.running, x.waiting = 0, nil
	x.mu.Unlock()
	d, err = e.Consume(t.Context(), "one more", "events", 1)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// Accounts whose next period is wanted, as many as a boundary leaves behind, hold no caller up.
func TestCallersGoBeforeAccountsThatAreReadAgain(t *testing.T) {
	t.Parallel()
	e := startHere(t, schematest.Pool(t), idlePlans)
	x := e.contacts
	x.running = contactLanes // nothing is sent here
	for i := range contactBatch + 2 {
		require.True(t, x.refresh(e.accountOf(fmt.Sprint("known ", i))))
	}
	busy := e.accountOf("known 3")
	busy.loading = &loading{account: busy}
	caller := &loading{account: e.accountOf("new"), feature: "events", done: make(chan struct{})}
	require.True(t, x.submit(caller))
	x.running = 1
	batch, more := x.take()
	require.True(t, more)
	require.Same(t, caller, batch[0])
	require.Len(t, batch, contactBatch-1, "a caller's, and all that fit but the one that is loaded already")
	batch, more = x.take()
	require.True(t, more)
	require.Len(t, batch, 3)
	_, more = x.take()
	require.False(t, more)
	require.Zero(t, x.running)
}

// A second statement is in flight only while a whole batch waits for it: few accounts share one.
func TestAWholeBatchThatWaitsGetsALaneOfItsOwn(t *testing.T) {
	t.Parallel()
	for waiting, lanes := range map[int]int{0: 0, 1: 1, contactBatch - 1: 1, contactBatch: 2, 10 * contactBatch: contactLanes} {
		x := contacts{waiting: make([]*loading, waiting/2), later: make([]*account, waiting-waiting/2)}
		require.Equal(t, lanes, x.deserved(), "%d accounts", waiting)
	}
}
