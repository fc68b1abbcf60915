package usage_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

func (w *world) strict(units int64, once string, at time.Time) usage.StrictAnswer {
	w.Helper()
	a, err := usage.ConsumeStrict(w.Context(), w.db, usage.StrictCall{Account: "acme", Feature: "events", Units: units, Once: once, At: at})
	require.NoError(w, err)
	return a
}

func (w *world) onceKeys() int64 {
	w.Helper()
	return w.number("SELECT count(*) FROM weir.consumed_once")
}

func TestStrictSpendsALeaseOfTheDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range int64(10) {
		a := w.strict(10, "", noon)
		require.Equal(t, usage.StrictOK, a.Status)
		require.Equal(t, (i+1)*10, a.Used)
		require.EqualValues(t, 100, a.Ceiling)
	}
	a := w.strict(1, "", noon)
	require.Equal(t, usage.StrictRefused, a.Status)
	require.EqualValues(t, 0, *a.Bound)
	require.EqualValues(t, 100, a.Used)
	require.Zero(t, w.total(a.Key).Used, "no totals row is touched by a call")
	require.EqualValues(t, 100, w.lim(0, a.Key))
	w.fold()
	require.Equal(t, total{Used: 100, Free: 100}, w.total(a.Key))
	require.Equal(t, "free", a.Plan)
	w.sound()
}

func TestStrictAndLeasesFillTheCeilingTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	require.EqualValues(t, 50, w.ask(n, call(k, 0, 1)).Got)
	require.Equal(t, usage.StrictOK, w.strict(50, "", noon).Status)
	a := w.strict(20, "later", noon)
	require.Equal(t, usage.StrictWait, a.Status)
	require.Equal(t, []int64{k.Key}, w.flush(n, noon).Recalled, "the node is called back")
	require.True(t, w.strictWindow(k.Key))
	require.Zero(t, w.onceKeys(), "a call that waits leaves no key")
	w.give(n, usage.LeaseCall{Key: k.Key, Ver: 1, Back: 30})
	require.Equal(t, usage.StrictOK, w.strict(20, "later", noon).Status)
	a = w.strict(11, "", noon)
	require.Equal(t, usage.StrictRefused, a.Status)
	require.EqualValues(t, 10, *a.Bound)
	w.exec("UPDATE weir.leases SET tight = false WHERE node = $1", n)
	w.exec("UPDATE weir.nodes SET state = 'reaping' WHERE id = $1", n)
	require.Equal(t, usage.StrictSilent, w.strict(11, "", noon).Status)
	w.sound()
}

func TestTheStoredAnswerIsReplayed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.strict(30, "order 1", noon)
	w.strict(5, "", noon)
	for range 3 {
		again := w.strict(30, "order 1", noon.Add(time.Hour))
		require.Equal(t, usage.StrictReplayed, again.Status)
		require.True(t, again.Admitted())
		again.Status = first.Status
		require.Equal(t, first.Used, again.Used)
		require.Equal(t, first.Key, again.Key)
		require.True(t, first.Ends.Equal(again.Ends))
	}
	require.Equal(t, usage.StrictConflict, w.strict(31, "order 1", noon).Status)
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon)
	other, err := usage.ConsumeStrict(t.Context(), w.db, usage.StrictCall{Account: "acme", Feature: "tokens", Units: 30, Once: "order 1", At: noon})
	require.NoError(t, err)
	require.Equal(t, usage.StrictConflict, other.Status)
	mine, err := usage.ConsumeStrict(t.Context(), w.db, usage.StrictCall{Account: "umbrella", Feature: "events", Units: 30, Once: "order 1", At: noon})
	require.NoError(t, err)
	require.Equal(t, usage.StrictOK, mine.Status, "keys belong to an account")
	w.fold()
	require.EqualValues(t, 65, w.number("SELECT sum(used) FROM weir.totals"))
	w.sound()
}

func TestARefusedCallLeavesNoKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, usage.StrictRefused, w.strict(101, "big", noon).Status)
	require.Zero(t, w.onceKeys())
	require.Equal(t, usage.StrictOK, w.strict(100, "big", noon).Status, "other units, since the first was never stored")
}

func TestOneKeyInManyCallsAtOnceCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro", noon, noon.AddDate(0, 1, 0), noon)
	var ok, replayed, conflict atomic.Int64
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			feature := "events"
			if i%3 == 0 {
				feature = "tokens"
			}
			a, err := usage.ConsumeStrict(context.Background(), w.db, usage.StrictCall{Account: "acme", Feature: feature, Units: 7, Once: "k", At: noon})
			if !assertNoError(t, err) {
				return
			}
			switch a.Status {
			case usage.StrictOK:
				ok.Add(1)
			case usage.StrictReplayed:
				replayed.Add(1)
			case usage.StrictConflict:
				conflict.Add(1)
			default:
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, ok.Load())
	require.EqualValues(t, 59, replayed.Load()+conflict.Load())
	w.fold()
	require.EqualValues(t, 7, w.number("SELECT sum(used) FROM weir.totals"))
	w.sound()
}

func TestStrictFillsTheCapExactly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for range 120 {
		wg.Go(func() {
			a, err := usage.ConsumeStrict(context.Background(), w.db, usage.StrictCall{Account: "acme", Feature: "events", Units: 1, At: noon})
			if assertNoError(t, err) && a.Admitted() {
				admitted.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 100, admitted.Load())
	w.sound()
}

func TestAKeyIsForgottenAfterADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, usage.StrictOK, w.strict(1, "k", noon).Status)
	require.Equal(t, usage.StrictReplayed, w.strict(1, "k", noon.Add(24*time.Hour)).Status)
	n, err := usage.Prune(t.Context(), w.db, noon.Add(24*time.Hour))
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, usage.StrictOK, w.strict(2, "k", noon.Add(24*time.Hour+time.Second)).Status, "expired, pruned or not")
	_, err = usage.Prune(t.Context(), w.db, noon.Add(49*time.Hour))
	require.NoError(t, err)
	require.Zero(t, w.onceKeys())
	w.fold()
	require.EqualValues(t, 3, w.number("SELECT sum(used) FROM weir.totals"))
}

func TestStrictAnswersForWhatItCannotCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []usage.StrictCall{
		{Account: "acme", Feature: "events", Units: 0, At: noon},
		{Account: "acme", Feature: "events", Units: -1, At: noon},
		{Account: "acme", Feature: "events", Units: 1, Once: strings.Repeat("k", 256), At: noon},
	} {
		_, err := usage.ConsumeStrict(t.Context(), w.db, c)
		require.ErrorIs(t, err, usage.ErrStrictCall)
	}
	a, err := usage.ConsumeStrict(t.Context(), w.db, usage.StrictCall{Account: "acme", Feature: "api", Units: 1, At: noon})
	require.NoError(t, err)
	require.Equal(t, usage.StrictUnknown, a.Status)
	require.Zero(t, w.number("SELECT count(*) FROM weir.accounts"), "nothing is stored")
	a, err = usage.ConsumeStrict(t.Context(), w.db, usage.StrictCall{Account: "acme", Feature: "tokens", Units: 1, At: noon})
	require.NoError(t, err)
	require.Equal(t, usage.StrictNotInPlan, a.Status)
	a = w.strict(1<<62, "", noon)
	require.Equal(t, usage.StrictRefused, a.Status)
	w.exec("UPDATE weir.quotas SET ended = true")
	require.Equal(t, usage.StrictEnded, w.strict(1, "", noon).Status)
}

// The call at the end belongs to the next period; one key over the boundary still counts once.
func TestStrictOverABoundary(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	old := w.strict(60, "k", april.Add(-time.Microsecond))
	require.Equal(t, usage.StrictReplayed, w.strict(60, "k", april).Status)
	next := w.strict(60, "", april)
	require.NotEqual(t, old.Key, next.Key)
	require.EqualValues(t, 60, next.Used)
	w.sound()
}
