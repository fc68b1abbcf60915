package usage_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/usage"
)

func TestThousandFirstContactsMakeOneAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nodes := []int64{w.node(), w.node(), w.node()}
	var wg sync.WaitGroup
	got := make([]error, 1000)
	for i := range got {
		wg.Go(func() {
			_, got[i] = usage.Contact(t.Context(), w.db, usage.ContactRequest{
				Node: nodes[i%3], Account: "acme", At: noon, Feature: "events", Units: 1, Want: 10, Waiting: 1})
		})
	}
	wg.Wait()
	for _, err := range got {
		require.NoError(t, err)
	}
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.accounts"))
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.periods"), "the period and the next one")
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.keys"))
	require.EqualValues(t, 3, w.number("SELECT count(*) FROM weir.leases"), "one first lease for each node")
	w.sound()
}

func TestContactTellsThePeriodAndTheNextOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys, err := usage.Contact(t.Context(), w.db, usage.ContactRequest{
		Node: w.node(), Account: "acme", At: noon, Feature: "events", Units: 3, Want: 10, Waiting: 3})
	require.NoError(t, err)
	require.Len(t, keys, 2)
	month := func(m time.Month) time.Time { return time.Date(2026, m, 1, 0, 0, 0, 0, time.UTC) }
	now, next := keys[0], keys[1]
	require.True(t, now.Starts.Equal(month(3)) && now.Ends.Equal(month(4)))
	require.True(t, next.Starts.Equal(month(4)) && next.Ends.Equal(month(5)))
	require.Equal(t, "acme free events 100", fmt.Sprint(now.Account, " ", now.Plan, " ", now.Feature, " ", now.Ceiling))
	require.Equal(t, int64(100), *now.Included)
	require.Equal(t, int64(0), *now.Maximum)
	require.EqualValues(t, 1, now.Ver)
	require.EqualValues(t, 10, now.Lim, "the first lease")
	require.EqualValues(t, 0, next.Lim)
	require.NotEqual(t, now.Key, next.Key)
}

func TestContactPredictsTheNextPeriodFromTheAnchor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anchor := time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)
	w.subscribe("acme", "pro", anchor, time.Date(2026, 2, 28, 10, 0, 0, 0, time.UTC), anchor.Add(time.Hour))
	keys := w.contact(w.node(), "acme", anchor.Add(2*time.Hour))
	require.Len(t, keys, 4)
	require.Equal(t, "2026-02-28T10:00:00Z", keys[2].Starts.UTC().Format(time.RFC3339))
	require.Equal(t, "2026-03-31T10:00:00Z", keys[2].Ends.UTC().Format(time.RFC3339))
	require.Equal(t, "pro", keys[2].Plan)
	require.EqualValues(t, 0, w.number("SELECT count(*) FROM weir.periods WHERE confirmed AND id = $1", keys[2].PeriodID))
	require.EqualValues(t, 6000, keys[2].Ceiling, "what follows a billable period goes on until it is confirmed")
}

func TestContactWithoutACatalog(t *testing.T) {
	t.Parallel()
	db := pgtest.Pool(t, migrated(t))
	_, err := usage.Contact(t.Context(), db, usage.ContactRequest{Node: 1, Account: "acme", At: noon, Feature: "events"})
	require.ErrorIs(t, err, usage.ErrNoCatalog)
	_, err = usage.LatestCatalog(t.Context(), db)
	require.ErrorIs(t, err, usage.ErrNoCatalog)
	_, err = usage.ConsumeStrict(t.Context(), db, usage.StrictCall{Account: "acme", Feature: "events", Units: 1, At: noon})
	require.NoError(t, err, "a feature that no catalog knows is an answer")
}

func TestAFeatureThatThePlanLacksHasNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys, err := usage.Contact(t.Context(), w.db, usage.ContactRequest{
		Node: w.node(), Account: "acme", At: noon, Feature: "tokens", Units: 1, Want: 1, Waiting: 1})
	require.NoError(t, err)
	for _, k := range keys {
		require.Equal(t, "events", k.Feature)
	}
	require.Zero(t, w.number("SELECT count(*) FROM weir.leases"))
}

func TestAFeatureThatThePlanLosesStopsAndKeepsItsCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := noon.AddDate(0, 0, -1), noon.AddDate(0, 1, -1)
	w.subscribe("acme", "pro", starts, ends, noon)
	k := w.key("acme", "tokens", noon)
	require.EqualValues(t, 40, w.ask(n, usage.LeaseCall{Key: k.Key, Units: 40, Want: 40, Waiting: 40}).Got)
	w.flush(n, noon, k.Key, 40)
	w.subscribe("acme", "big", starts, ends, noon)
	k = w.key("acme", "tokens", noon)
	require.False(t, k.InPlan)
	require.EqualValues(t, 40, k.Ceiling)
	require.EqualValues(t, 40, k.Folded)
	a := w.ask(n, usage.LeaseCall{Key: k.Key, Ver: 1, Units: 1, Want: 1, Waiting: 1})
	require.Zero(t, a.Got)
	require.False(t, a.Others)
	w.subscribe("acme", "pro", starts, ends, noon)
	require.EqualValues(t, 500, w.key("acme", "tokens", noon).Ceiling)
	w.sound()
}
