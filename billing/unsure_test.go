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
