package enforcer

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const twoFeatures = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans:
  free: {quota: {events: 1_000, tokens: 1_000}, on_exceeded: block}
`

// setClock stands where a test puts it.
type setClock struct{ at atomic.Int64 }

func (c *setClock) Now() time.Time  { return time.Unix(0, c.at.Load()).UTC() }
func (c *setClock) set(t time.Time) { c.at.Store(t.UnixNano()) }

// startAt is startHere with a clock of the test's.
func startAt(t *testing.T, pool *pgxpool.Pool, file string, clock Clock) *Enforcer {
	t.Helper()
	catalog, err := plans.Parse([]byte(file))
	require.NoError(t, err)
	e, err := New(pool, &Config{Plans: catalog, JournalDir: t.TempDir(), MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler), Clock: clock})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	return e
}

// slotOf is the slot of a known account's feature.
func (e *Enforcer) slotOf(account, feature string) *slot {
	a, _ := e.accounts.Load(account)
	return a.at(e.features.Load().index(feature))
}

// readAgainNow loads an account as the refresh after a rollover does.
func (e *Enforcer) readAgainNow(t *testing.T, account string) {
	t.Helper()
	a, _ := e.accounts.Load(account)
	l := &loading{account: a, done: make(chan struct{})}
	keys, err := e.contacts.fetch([]*loading{l})
	require.NoError(t, err)
	e.finish(l, keys[account], nil)
	require.NoError(t, l.err)
}

// A feature that is not called at its period's start is met by the account's refresh. What is counted under it then is
// counted once, also when its counter is dropped and made again.
func TestAnUpcomingKeyThatIsRunningIsNeverBegunTwice(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := &setClock{}
	clock.set(end.Add(-time.Hour))
	e := startAt(t, pool, twoFeatures, clock)
	call := func(feature string, n int64) Decision {
		d, err := e.Consume(t.Context(), "acme", feature, n)
		require.NoError(t, err)
		return d
	}
	require.True(t, call("events", 1).Allowed)
	clock.set(end.Add(time.Second))
	require.True(t, call("tokens", 1).Allowed, "the other feature rolls over")
	e.readAgainNow(t, "acme")
	s := e.slotOf("acme", "events")
	require.Equal(t, end, s.cur.Load().view.Load().terms.StartsAt)
	require.True(t, call("events", 600).Allowed)
	e.idleFor(t, s.cur.Load())

	d := call("events", 600)
	require.False(t, d.Allowed, "400 of 1,000 are left: %+v", d)
	require.True(t, call("events", 400).Allowed)
	require.NoError(t, e.Flush(t.Context()))
	var stored int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT weir.stored($1)", s.cur.Load().key()).Scan(&stored))
	require.EqualValues(t, 1000, stored)

	// The boundary after that needs no database.
	contacts := e.Stats().Contacts
	clock.set(end.AddDate(0, 1, 0).Add(time.Second))
	require.True(t, call("events", 1).Allowed)
	require.Equal(t, contacts, e.Stats().Contacts)
}

// A key to come under which this node has counted already is loaded when it begins, whatever the account's other features
// have said by then; and so is one whose counter still stands here.
func TestAPeriodThatHadBegunAndWasMovedIsLoadedWhenItBegins(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	end := time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC)
	clock := &setClock{}
	clock.set(end.Add(-time.Hour))
	e := startAt(t, pool, twoFeatures, clock)
	call := func(feature string, n int64) Decision {
		d, err := e.Consume(t.Context(), "acme", feature, n)
		require.NoError(t, err)
		return d
	}
	require.True(t, call("events", 1).Allowed)
	a, _ := e.accounts.Load("acme")
	read, err := e.contacts.fetch([]*loading{{account: a}})
	require.NoError(t, err)
	keys := read["acme"]
	require.Len(t, keys, 4)
	s := e.slotOf("acme", "events")
	for i := range keys {
		if k := &keys[i]; k.Feature == "events" && k.Starts.Equal(end) {
			k.Own, k.Ver, k.Lim, k.Tight = 5, 1, 5, true
		}
	}
	a.mu.Lock()
	s.upcoming = upcoming{}
	require.NoError(t, e.adoptKeys(a, keys))
	require.Zero(t, s.upcoming.key)
	a.mu.Unlock()

	clock.set(end.Add(time.Second))
	require.True(t, call("tokens", 1).Allowed)
	d := call("events", 1)
	require.Equal(t, OK, d.Reason, "not a feature that the plan lacks")
	require.Equal(t, end, d.Terms.StartsAt)

	// As if the running period were moved behind the present: its counter is still known.
	keys[0].Key, keys[0].Starts, keys[0].Ends = s.cur.Load().key(), end.AddDate(0, 2, 0), end.AddDate(0, 3, 0)
	keys[0].Own, keys[0].Ver, keys[0].Lim, keys[0].Tight = 0, 0, 0, false
	require.Zero(t, e.upcomingOf(&keys[0]).key)
}
