package usage_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// besideAnAsk runs do while an ask has locked the quota of one key. The ask goes on to another key, a later one, once do
// waits for it.
func (w *world) besideAnAsk(first, then int64, function string, do func()) {
	w.Helper()
	require.Less(w, first, then)
	tx, err := w.db.Begin(w.Context())
	require.NoError(w, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	const lock = "SELECT FROM weir.quotas WHERE key = $1 FOR UPDATE"
	_, err = tx.Exec(w.Context(), lock, first)
	require.NoError(w, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	w.waitsForLock(function)
	_, err = tx.Exec(w.Context(), lock, then)
	require.NoError(w, err)
	require.NoError(w, tx.Commit(w.Context()))
	<-done
	w.sound()
}

func TestAPlanChangeLocksAPeriodAndTheNextInTheOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := month()
	w.subscribe("acme", "pro", starts, ends, noon)
	w.besideAnAsk(w.key("acme", "events", noon).Key, w.key("acme", "events", ends).Key, "weir.apply_plan", func() {
		w.subscribe("acme", "big", starts, ends, noon)
	})
}

func TestWhatIsMovedFromVoidPeriodsLocksAllInTheOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	starts, ends := month()
	accounts := []string{"acme", "globex"}
	var void, again []usage.Key
	for _, a := range accounts {
		w.subscribe(a, "pro", starts, ends, noon)
		void = append(void, w.key(a, "events", ends))
		w.ask(n, call(void[len(void)-1], 0, 10))
	}
	for i, a := range accounts {
		w.subscribe(a, "big", starts, ends, noon)
		w.flush(n, ends, void[i].Key, 10)
		again = append(again, w.key(a, "events", ends))
	}
	w.fold()
	w.besideAnAsk(void[1].Key, again[0].Key, "weir.drain_voids", func() { w.exec("SELECT weir.drain_voids($1)", ends) })
	require.Equal(t, total{Free: 10, Adjusted: 10}, w.total(again[1].Key))
}

func TestStoppingUnconfirmedPeriodsLocksAllInTheOrderOfTheirKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts, ends := month()
	for _, a := range []string{"acme", "globex"} {
		_, err := usage.FindAccount(t.Context(), w.db, a, true, noon)
		require.NoError(t, err)
	}
	for _, a := range []string{"globex", "acme"} { // whose keys come in another order than their accounts
		w.subscribe(a, "pro", starts, ends, noon)
	}
	acme, globex := w.key("acme", "events", ends), w.key("globex", "events", ends)
	w.besideAnAsk(globex.Key, acme.Key, "weir.stop_unconfirmed", func() {
		require.EqualValues(t, 2, w.number("SELECT weir.stop_unconfirmed($1, 100)", ends.Add(7*time.Hour)))
	})
	require.EqualValues(t, 1000, w.key("acme", "events", ends).Ceiling)
}
