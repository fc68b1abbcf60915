package usage_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// month is the subscription's period of these tests.
func month() (starts, ends time.Time) { return noon.AddDate(0, 0, -5), noon.AddDate(0, 0, 25) }

// Case 9: a downgrade after 8,000 used re-prices nothing, and going back gives what is left.
func TestADowngradePricesNothingAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	w.subscribe("acme", "big", starts, ends, noon)
	k := w.key("acme", "events", noon)
	w.flush(n, noon, k.Key, 8000)
	w.subscribe("acme", "pro", starts, ends, noon)
	require.Equal(t, total{Used: 8000, Free: 8000}, w.total(k.Key), "folded by the terms before")
	require.EqualValues(t, 8000+5000, w.key("acme", "events", noon).Ceiling, "only what comes now is overage")
	w.flush(n, noon, k.Key, 8100)
	w.subscribe("acme", "big", starts, ends, noon)
	require.Equal(t, total{Used: 8100, Free: 8000, Overage: 100}, w.total(k.Key))
	require.EqualValues(t, 8100+2000+4900, w.key("acme", "events", noon).Ceiling)
	w.sound()
}

func TestADowngradeToABlockingPlanLeavesNoRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	w.subscribe("acme", "big", starts, ends, noon)
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 8000, w.ask(n, call(k, 0, 8000)).Got)
	w.flush(n, noon, k.Key, 8000)
	w.subscribe("acme", "free", starts, ends, noon)
	require.EqualValues(t, 8000, w.key("acme", "events", noon).Ceiling)
	require.EqualValues(t, 0, *w.ask(w.node(), usage.LeaseCall{Key: k.Key, Units: 1}).Bound, "remaining 0")
	w.sound()
}

// Case 36, keep: an upgrade an hour before the end wipes nothing out.
func TestAnUpgradeKeepsOverage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	w.subscribe("acme", "pro", starts, ends, noon)
	k := w.key("acme", "events", noon)
	w.flush(n, noon, k.Key, 6000)
	w.subscribe("acme", "big", starts, ends, noon)
	require.Equal(t, total{Used: 6000, Free: 1000, Overage: 5000}, w.total(k.Key))
	require.EqualValues(t, 15000, w.key("acme", "events", noon).Ceiling)
	w.flush(n, noon, k.Key, 6500)
	w.fold()
	require.Equal(t, total{Used: 6500, Free: 1500, Overage: 5000}, w.total(k.Key))
	w.sound()
}

// A ceiling lowered below what was granted recalls at once, and grants nothing until granted is below it.
func TestALoweredCeilingRecalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.node(), w.node()
	starts, ends := month()
	id := w.subscribe("acme", "pro", starts, ends, noon)
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 1500, w.ask(a, usage.LeaseCall{Key: k.Key, Units: 1, Want: 5000, Waiting: 1}).Got)
	w.flush(a, noon, k.Key, 200)
	low, zero := int64(300), int64(0)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Included: &low, Maximum: &zero, Reason: "r", Actor: "a"}, noon))
	ceiling, granted := w.quota(k.Key)
	require.Equal(t, []int64{300, 1500}, []int64{ceiling, granted})
	require.Equal(t, []int64{k.Key}, w.flush(a, noon).Recalled)
	require.True(t, w.ask(b, call(k, 0, 50)).Others, "out at the other node, so not certain yet")
	require.EqualValues(t, 0, w.ask(b, usage.LeaseCall{Key: k.Key, Ver: 1, Want: 10}).Got)
	w.give(a, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 1300})
	require.EqualValues(t, 50, w.ask(b, call(k, 2, 50)).Got)
	high := int64(400)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Included: &high, Maximum: &zero, Reason: "r", Actor: "a"}, noon))
	require.EqualValues(t, 150, w.ask(b, call(k, 3, 150)).Got, "a raised ceiling makes room")
	require.EqualValues(t, 0, *w.ask(b, call(k, 4, 1)).Bound)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Reason: "taken back", Actor: "a"}, noon))
	require.EqualValues(t, 6000, w.key("acme", "events", noon).Ceiling)
	require.ErrorIs(t, usage.SetOverride(t.Context(), w.db, id, "api", usage.Override{Reason: "r", Actor: "a"}, noon), usage.ErrNotFound)
	w.sound()
}

// Failure 22: an open ceiling is the same rows, so a cap that is set later knows what was granted.
func TestAnOpenCeilingThatIsClosedKnowsWhatWasGranted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	id := w.subscribe("acme", "open", starts, ends, noon)
	k := w.key("acme", "events", noon)
	require.EqualValues(t, int64(usage.Boundless), k.Ceiling)
	require.Nil(t, k.Included)
	require.EqualValues(t, 1_000_000, w.ask(n, usage.LeaseCall{Key: k.Key, Units: 1, Want: 1_000_000, Waiting: 1}).Got)
	w.flush(n, noon, k.Key, 5000)
	included := int64(5100)
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", usage.Override{Included: &included, Reason: "r", Actor: "a"}, noon))
	ceiling, granted := w.quota(k.Key)
	require.Equal(t, []int64{5100, 1_000_000}, []int64{ceiling, granted})
	w.give(n, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 995_000})
	require.EqualValues(t, 100, w.ask(n, call(k, 2, 100)).Got)
	require.EqualValues(t, 0, *w.ask(n, call(k, 3, 1)).Bound, "what was used is not granted again")
	w.sound()
}

func TestASpendingCapLowersTheMaximum(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	id := w.subscribe("acme", "pro", starts, ends, noon)
	limit := int64(40)
	set := usage.Override{SpendingCap: &limit, Reason: "set on the page", Actor: "customer"}
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", set, noon))
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 1040, k.Ceiling)
	require.EqualValues(t, 40, *k.Maximum)
	w.flush(n, noon, k.Key, 1040)
	limit = 10
	require.NoError(t, usage.SetOverride(t.Context(), w.db, id, "events", set, noon))
	require.EqualValues(t, 1040, w.key("acme", "events", noon).Ceiling, "admission stops")
	require.Equal(t, total{Used: 1040, Free: 1000, Overage: 40}, w.total(k.Key), "what was counted stays")
	require.EqualValues(t, 5000, w.number("SELECT highest_maximum FROM weir.keys WHERE key = $1", k.Key), "billable is the most that was ever in force")
	next := w.key("acme", "events", ends)
	require.EqualValues(t, 1010, next.Ceiling, "periods to come have it too")
	require.EqualValues(t, 10, w.number("SELECT highest_maximum FROM weir.keys WHERE key = $1", next.Key))
	w.sound()
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	w.subscribe("acme", "pro", starts, ends, noon)
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 6000, w.ask(n, call(k, 0, 6000)).Got)
	w.flush(n, noon, k.Key, 6000) // still in the inbox when the refund comes
	require.EqualValues(t, 0, *w.ask(n, call(k, 1, 1)).Bound)
	a, err := usage.Adjust(t.Context(), w.db, k.Key, -200, "outage", "ops", noon)
	require.NoError(t, err)
	require.Equal(t, usage.Adjustment{ID: a.ID, Units: -200, Overage: -200}, a)
	require.Equal(t, total{Used: 6000, Free: 1000, Overage: 4800, Adjusted: -200}, w.total(k.Key))
	require.EqualValues(t, 200, w.ask(n, call(k, 2, 200)).Got, "a refund makes room by as much")
	a, err = usage.Adjust(t.Context(), w.db, k.Key, -5000, "outage", "ops", noon)
	require.NoError(t, err)
	require.Equal(t, []int64{-200, -4800}, []int64{a.Free, a.Overage}, "from overage first")
	_, err = usage.Adjust(t.Context(), w.db, k.Key, -801, "too much", "ops", noon)
	require.ErrorIs(t, err, usage.ErrRefund)
	_, err = usage.Adjust(t.Context(), w.db, 987_654, -1, "r", "ops", noon)
	require.ErrorIs(t, err, usage.ErrNotFound)
	a, err = usage.Adjust(t.Context(), w.db, k.Key, 250, "missed", "ops", noon)
	require.NoError(t, err)
	require.Equal(t, []int64{200, 50}, []int64{a.Free, a.Overage}, "an addition counts like any unit")
	require.Equal(t, total{Used: 6000, Free: 1000, Overage: 50, Adjusted: -4950}, w.total(k.Key))
	w.sound()
}

func TestWhatIsCarriedCannotBeRefundedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon)
	w.flush(n, noon, w.key("acme", "events", noon).Key, 600)
	at := noon.AddDate(0, 0, 1)
	w.subscribe("acme", "pro", at, at.AddDate(0, 1, 0), at)
	k := w.key("acme", "events", at)
	w.flush(n, at, k.Key, 10)
	_, err := usage.Adjust(t.Context(), w.db, k.Key, -11, "r", "ops", at)
	require.ErrorIs(t, err, usage.ErrRefund)
	_, err = usage.Adjust(t.Context(), w.db, k.Key, -10, "r", "ops", at)
	require.NoError(t, err)
	require.Equal(t, total{Used: 10, Free: 600, Adjusted: -10, Carried: 600}, w.total(k.Key))
	w.sound()
}

func TestNotBillableGoesFirstInARefund(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	w.subscribe("acme", "pro", starts, ends, noon, func(s *usage.PlanState) { s.Billable, s.Awaiting = nil, []string{"events"} })
	k := w.key("acme", "events", noon)
	w.flush(n, noon, k.Key, 1300)
	_, err := usage.Adjust(t.Context(), w.db, k.Key, 20, "r", "ops", noon)
	require.NoError(t, err)
	require.Equal(t, total{Used: 1300, Free: 1000, Overage: 320, NotBillable: 320, Awaiting: 320, Adjusted: 20}, w.total(k.Key))
	_, err = usage.Adjust(t.Context(), w.db, k.Key, -100, "r", "ops", noon)
	require.NoError(t, err)
	require.Equal(t, total{Used: 1300, Free: 1000, Overage: 220, NotBillable: 220, Awaiting: 220, Adjusted: -80}, w.total(k.Key))
	w.sound()
}

// Case 41a: a publication leaves periods that have begun, and changes those that have not.
func TestPublishChangesWhatHasNotBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	id := w.subscribe("acme", "pro", starts, ends, noon)
	k, next := w.key("acme", "events", noon), w.key("acme", "events", ends)
	w.ask(n, call(next, 0, 900))
	number, changed := w.publish(planFile, noon)
	require.False(t, changed, "the same file")
	require.EqualValues(t, 1, number)
	lower := strings.Replace(planFile, "included: 1_000,", "included: 500,", 1)
	number, changed = w.publish(lower, noon)
	require.True(t, changed)
	require.EqualValues(t, 2, number)
	require.EqualValues(t, 1000, *w.key("acme", "events", noon).Included)
	got := w.key("acme", "events", ends)
	require.Equal(t, next.Key, got.Key)
	require.EqualValues(t, 500, *got.Included)
	require.EqualValues(t, 2, got.Catalog)
	p, err := usage.LatestCatalog(t.Context(), w.db)
	require.NoError(t, err)
	require.Equal(t, []any{int64(2), w.catalog.Hash()}, []any{p.Number, p.Catalog.Hash()})
	require.EqualValues(t, 500, *w.key("new", "events", noon).Included+400, "a new account has the new file") // free: 100
	w.flush(n, noon, k.Key, 700)
	require.NoError(t, usage.ApplyNow(t.Context(), w.db, id, 2, noon))
	require.EqualValues(t, 500, *w.key("acme", "events", noon).Included)
	require.Equal(t, total{Used: 700, Free: 700}, w.total(k.Key), "forward only")
	require.EqualValues(t, 5700, w.key("acme", "events", noon).Ceiling)
	w.sound()
}

// A publication that stopped after its first transaction is completed by the next one of the same file.
func TestAPublicationThatWasBrokenOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("acme", "events", noon)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	higher := strings.Replace(planFile, "quota: {events: 100}", "quota: {events: 150}", 1)
	w.publish(higher, noon)
	w.exec("UPDATE weir.periods SET catalog = 1 WHERE starts = $1", april)
	w.exec("UPDATE weir.keys k SET included = 100 FROM weir.periods p WHERE p.id = k.period_id AND p.starts = $1", april)
	before, _, err := usage.Changes(t.Context(), w.db, 0)
	require.NoError(t, err)
	_, changed := w.publish(higher, noon)
	require.False(t, changed)
	require.EqualValues(t, 150, *w.key("acme", "events", april).Included)
	after, all, err := usage.Changes(t.Context(), w.db, before)
	require.NoError(t, err)
	require.Greater(t, after, before)
	require.Nil(t, all, "everybody reads again")
}

// A period that is being made by the catalog before does not slip through a publication.
func TestNoPeriodIsMadeByAnOldCatalogDuringAPublication(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = usage.Contact(t.Context(), tx, usage.ContactRequest{Node: 1, Account: "acme", At: noon, Feature: "events"})
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.publish(strings.Replace(planFile, "quota: {events: 100}", "quota: {events: 150}", 1), noon)
	}()
	w.waitsForLock("weir.catalog_gate")
	require.NoError(t, tx.Commit(t.Context()))
	<-done
	require.EqualValues(t, 100, *w.key("acme", "events", noon).Included)
	require.EqualValues(t, 150, *w.key("acme", "events", noon.AddDate(0, 1, 0)).Included)
}

// Change numbers become visible in order: who has read up to a number misses nothing below it.
func TestChangeNumbersBecomeVisibleInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := month()
	ids := make([]int64, 8)
	for i := range ids {
		ids[i] = w.subscribe("account "+itoa(int64(i)), "pro", starts, ends, noon)
	}
	at, _, err := usage.Changes(t.Context(), w.db, 0)
	require.NoError(t, err)
	first := at
	ctx, stop := context.WithCancel(t.Context())
	var reader, writers sync.WaitGroup
	seen := make(map[int64]bool)
	read := func() {
		latest, accounts, err := usage.Changes(context.Background(), w.db, at)
		if assertNoError(t, err) {
			if latest-at < int64(len(accounts)) {
				t.Errorf("%d accounts in %d changes", len(accounts), latest-at)
			}
			at = latest
			for _, a := range accounts {
				seen[a] = true
			}
		}
	}
	reader.Go(func() {
		for ctx.Err() == nil {
			read()
		}
	})
	for _, id := range ids {
		writers.Go(func() {
			for range 10 {
				assertNoError(t, usage.SetOverride(context.Background(), w.db, id, "events", usage.Override{Reason: "r", Actor: "a"}, noon))
			}
		})
	}
	writers.Wait()
	stop()
	reader.Wait()
	read()
	require.Len(t, seen, len(ids))
	require.Equal(t, first+80, at)
	require.EqualValues(t, at, w.number("SELECT count(*) FROM weir.change_log"), "one row for each number")
}

func TestChangesFurtherBackThanTheLogMeanAll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := month()
	id := w.subscribe("acme", "pro", starts, ends, noon)
	latest, accounts, err := usage.Changes(t.Context(), w.db, 1)
	require.NoError(t, err)
	require.Equal(t, []int64{id}, accounts)
	same, accounts, err := usage.Changes(t.Context(), w.db, latest)
	require.NoError(t, err)
	require.Equal(t, latest, same)
	require.Equal(t, []int64{}, accounts, "nothing, which is not everything")
	w.exec("DELETE FROM weir.change_log WHERE number <= $1", latest-1)
	_, accounts, err = usage.Changes(t.Context(), w.db, latest-2)
	require.NoError(t, err)
	require.Nil(t, accounts)
	_, accounts, err = usage.Changes(t.Context(), w.db, latest-1)
	require.NoError(t, err)
	require.Equal(t, []int64{id}, accounts)
}

// The change that set a period's end is the one that nodes are told of.
func TestAPeriodNamesTheChangeOfItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.key("acme", "events", noon)
	starts, ends := month()
	w.subscribe("acme", "pro", starts, ends, noon)
	latest, _, err := usage.Changes(t.Context(), w.db, 0)
	require.NoError(t, err)
	require.EqualValues(t, 1, w.number("SELECT count(DISTINCT change) FROM weir.periods"))
	require.Equal(t, latest, w.number("SELECT max(change) FROM weir.periods"))
}

func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	w.flush(n, noon, 987_654, 1)
	w.fold()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 1))
	w.exec("SELECT weir.recall($1, NULL)", k.Key)
	pruned, err := usage.Prune(t.Context(), w.db, noon)
	require.NoError(t, err)
	require.Zero(t, pruned)
	w.exec("UPDATE weir.recalls SET at = at - interval '2 minutes'")
	w.exec("UPDATE weir.inbox_parked SET parked_at = parked_at - interval '91 days'")
	w.exec("UPDATE weir.changes SET number = 100003")
	w.exec("INSERT INTO weir.change_log (number) SELECT generate_series(2, 100003)")
	w.exec("INSERT INTO weir.nodes (state, name, sealed, started_at, ended_at) VALUES ('retired', 'old', $1, $1, $2)", noon, noon.AddDate(0, 0, -91))
	w.exec("INSERT INTO weir.nodes (state, name, sealed, started_at, ended_at) VALUES ('stopped', 'old', $1, $1, $2)", noon, noon.AddDate(0, 0, -91))
	w.exec("INSERT INTO weir.overshoots (key, node, units, cause, at) SELECT $1, $2, 1, 'test', clock_timestamp() - y * interval '1 year' FROM generate_series(6, 8) y", k.Key, n)
	pruned, err = usage.Prune(t.Context(), w.db, noon)
	require.NoError(t, err)
	require.EqualValues(t, 1+1+3+2+1, pruned)
	require.EqualValues(t, 1, w.overshoots())
	require.EqualValues(t, 100_000, w.number("SELECT count(*) FROM weir.change_log"))
	require.EqualValues(t, 4, w.number("SELECT count(*) FROM weir.nodes"), "the two of the database, the live one, the stopped one")
}

// A plan that changes at a period's end, at a worker whose clock is behind a node's, replaces the period that has not
// begun: what the node counts under it until it hears of that belongs to the next period, not to the one before.
func TestWhatIsCountedInAReplacedNextPeriodIsOfTheNextPeriod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	end := noon.AddDate(0, 1, 0)
	w.subscribe("acme", "pro", noon, end, noon)
	now, next := w.key("acme", "events", noon), w.key("acme", "events", end)
	require.EqualValues(t, 10, w.ask(n, usage.LeaseCall{Key: next.Key, Units: 10, Want: 10, Waiting: 10}).Got)
	w.flush(n, end, next.Key, 2)
	w.subscribe("acme", "big", noon, end, end.Add(-time.Millisecond))
	w.flush(n, end, next.Key, 10)
	w.fold()
	w.exec("SELECT weir.drain_voids($1)", end)
	require.Equal(t, total{}, w.total(now.Key))
	again := w.key("acme", "events", end)
	require.NotEqual(t, next.Key, again.Key)
	require.True(t, again.Starts.Equal(next.Starts) && again.Ends.Equal(next.Ends))
	require.Equal(t, "big", again.Plan)
	require.Equal(t, total{Free: 10, Adjusted: 10}, w.total(again.Key))
	require.Zero(t, w.number("SELECT count(*) FROM weir.inbox_parked"))
	w.sound()
}

// So it is where an account loses its customer: the paid plan ends with the period that runs.
func TestALostCustomersNextPeriodIsReplacedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	end := noon.AddDate(0, 1, 0)
	id := w.subscribe("acme", "pro", noon, end, noon)
	next := w.key("acme", "events", end)
	require.EqualValues(t, 10, w.ask(n, usage.LeaseCall{Key: next.Key, Units: 10, Want: 10, Waiting: 10}).Got)
	w.flush(n, end, next.Key, 10)
	w.fold()
	w.exec("SELECT weir.lose_customer($1, $2)", id, end.Add(-time.Millisecond))
	again := w.key("acme", "events", end)
	require.Equal(t, "free", again.Plan)
	require.Equal(t, total{Free: 10, Adjusted: 10}, w.total(again.Key))
	w.sound()
}
