package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
)

// After an attempt whose answer was lost, no refusal of a later one proves that nothing was taken: the link is neither
// refused nor sent as if it were new. Its summary decides, and it is counted once.
func TestNoAnswerProvesThatALostOneTookNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		later stripesim.Effect
	}{
		"refused for what it says": {stripesim.Refuse("The value is odd.", "")},
		"too many calls":           {stripesim.RateLimited("endpoint-rate")},
		"used at the same time":    {stripesim.LockTimeout()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			customer, _ := w.over("acme", 40)
			w.sim.Faults().Inject(post(stripesim.DropAnswer(), 1))
			w.hour()
			later := w.sim.Faults().Inject(post(c.later, 0))
			w.patience()
			require.NoError(t, w.b.Report(t.Context()))
			require.NotZero(t, later.Hits())
			require.Equal(t, "unknown", w.states())
			_, reports, err := w.b.Replay(t.Context(), "tester")
			require.NoError(t, err)
			require.Zero(t, reports, "nothing to send as another one")
			require.EqualValues(t, 40, w.reported(customer))

			require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(24*time.Hour)))
			w.patience()
			require.NoError(t, w.b.Reconcile(t.Context()))
			require.Equal(t, "recorded", w.states())
			require.EqualValues(t, 40, w.reported(customer))
		})
	}
}

// Only two empty summaries, an hour apart, prove that nothing was taken, and only where nobody else sends.
func TestTwoEmptySummariesAnHourApartProveIt(t *testing.T) {
	t.Parallel()
	for name, frozen := range map[string]bool{"ours alone": false, "another sender": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			w.over("acme", 40)
			fault := w.sim.Faults().Inject(post(stripesim.FailAndKeep(500), 0))
			w.hour()
			fault.Remove()
			require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(24*time.Hour)))
			if frozen {
				w.exec("UPDATE weir.customers SET frozen = 'a foreign amount'")
			}
			look := func(wait time.Duration) string {
				require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(wait)))
				w.patience()
				require.NoError(t, w.b.Reconcile(t.Context()))
				return w.states()
			}
			require.Equal(t, "unknown", look(0), "the first")
			require.Equal(t, "unknown", look(0), "it is not looked at again so soon")
			require.Equal(t, "unknown", look(59*time.Minute))
			require.EqualValues(t, 1, w.number("SELECT zero_reads FROM weir.reports"))
			if want := "unknown replaced, stored"; !frozen {
				require.Equal(t, want, look(time.Minute))
			} else {
				require.Equal(t, "unknown", look(time.Minute))
			}
		})
	}
}

// Nor does it after an attempt that a worker was killed in: nobody knows whether its call was made.
func TestNoAnswerProvesWhatAKilledAttemptDid(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(time.Hour)))
	w.fold()
	require.EqualValues(t, 1, w.number("SELECT weir.plan_links(ARRAY[$1::bigint], $2, 'test')", key, w.sim.Now()))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.claim_reports($1, 10, interval '1 minute', NULL, false)", w.sim.Now()))
	w.patience()
	w.sim.Faults().Inject(post(stripesim.Refuse("The value is odd.", ""), 1))
	require.NoError(t, w.b.Report(t.Context()))
	require.Equal(t, "unknown", w.states())
	require.Zero(t, w.reported(customer))
}
