package usage_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
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
	db := schematest.Pool(t)
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

// Contacts of one batch are what each would have been alone: new and known accounts, of several plans, with and without
// the next period, with and without a lease, with room and without.
func TestABatchOfContactsIsAsManyContacts(t *testing.T) {
	t.Parallel()
	one, all := newWorld(t), newWorld(t)
	anchor := noon.AddDate(0, 0, -20)
	var calls []usage.ContactCall
	nodes := map[*world][2]int64{}
	for _, w := range []*world{one, all} {
		other, n := w.node(), w.node()
		nodes[w] = [2]int64{other, n}
		w.subscribe("on pro", "pro", anchor, anchor.AddDate(0, 1, 0), noon)
		w.subscribe("on a plan without leases", "careful", anchor, anchor.AddDate(0, 1, 0), noon)
		w.subscribe("on an open one", "open", anchor, anchor.AddDate(0, 1, 0), noon)
		left := w.subscribe("has left", "pro", anchor, anchor.AddDate(0, 1, 0), anchor.Add(time.Hour))
		w.unsubscribe(left, noon.AddDate(0, 0, -1))
		w.exec("INSERT INTO weir.accounts (account, created_at, anchor) VALUES ('has an anchor', $1, $2)", noon, anchor.AddDate(-1, 0, 10))
		w.ask(other, call(w.key("is spent", "events", noon), 0, 100))
		w.ask(other, call(w.key("is nearly spent", "events", noon), 0, 99))
		w.ask(n, call(w.key("is leased", "events", noon), 0, 7))
		w.flush(other, noon, w.key("is in the inbox", "events", noon).Key, 30)
		w.flush(n, noon, w.key("is in the inbox", "events", noon).Key, 11)
	}
	for _, name := range []string{"on pro", "new 2", "has left", "on a plan without leases", "is spent", "new 1", "on an open one", "is leased",
		"is in the inbox", "has an anchor", "is nearly spent"} {
		calls = append(calls, usage.ContactCall{Account: name, Feature: "events", Units: 2, Want: 10, Waiting: 2})
	}
	calls = append(calls, usage.ContactCall{Account: "on no feature", Feature: "nothing", Units: 1, Want: 10, Waiting: 1})

	got, err := usage.Contacts(t.Context(), all.db, nodes[all][1], true, noon, calls)
	require.NoError(t, err)
	want := map[string][]usage.Key{}
	for _, c := range calls {
		keys, err := usage.Contact(t.Context(), one.db, usage.ContactRequest{Node: nodes[one][1], Judge: true, Account: c.Account, At: noon,
			Feature: c.Feature, Units: c.Units, Want: c.Want, Waiting: c.Waiting})
		require.NoError(t, err)
		want[c.Account] = keys
	}
	by := map[string][]usage.Key{}
	for _, k := range got {
		by[k.Account] = append(by[k.Account], k)
	}
	require.Len(t, by, len(calls))
	for name, keys := range by {
		require.Len(t, keys, len(want[name]), name)
		for i, k := range keys {
			w := want[name][i]
			k.AccountID, k.PeriodID, k.Key = w.AccountID, w.PeriodID, w.Key // given as they come
			require.Equal(t, w, k, name)
		}
	}
	for _, w := range []*world{one, all} {
		w.sound()
		require.EqualValues(t, 4, w.number("SELECT count(*) FROM weir.leases l JOIN weir.keys k USING (key) JOIN weir.accounts a ON a.id = k.account_id WHERE a.account = 'is nearly spent' OR a.account = 'is spent'"))
	}
}

// Two nodes that meet the same new accounts in opposite orders wait for each other, and never in a circle.
func TestBatchesOfContactsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var wg sync.WaitGroup
	for lane := range 6 {
		n := w.node()
		wg.Go(func() {
			for round := range 5 {
				var calls []usage.ContactCall
				for i := range 40 {
					if lane%2 == 1 {
						i = 39 - i
					}
					calls = append(calls, usage.ContactCall{Account: fmt.Sprint("account ", round, " ", i), Feature: "events", Units: 1, Want: 5, Waiting: 1})
				}
				if _, err := usage.Contacts(t.Context(), w.db, n, true, noon, calls); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 200, w.number("SELECT count(*) FROM weir.accounts"))
	require.EqualValues(t, 400, w.number("SELECT count(*) FROM weir.periods"))
	require.EqualValues(t, 1200, w.number("SELECT count(*) FROM weir.leases"))
	w.sound()
}
