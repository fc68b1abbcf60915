package jobs

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// However much is folded, and however long tidying takes because an old transaction is open, it takes a twentieth of the
// time at most, and never two workers' slots.
func TestTidyingTakesLittleOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var x tidy
		var spent time.Duration
		began := time.Now()
		for range 1000 {
			x.folded(usage.TidyRows)
			require.NoError(t, x.run(func() error {
				require.NoError(t, x.run(func() error { panic("a second one beside it") }))
				time.Sleep(10 * time.Second)
				spent += 10 * time.Second
				return nil
			}))
			time.Sleep(time.Second)
		}
		require.Greater(t, spent, 40*time.Second)
		require.LessOrEqual(t, spent, time.Since(began)/tidyShare+10*time.Second)
	})
}

func TestTidyingWaitsForEnoughRows(t *testing.T) {
	t.Parallel()
	var x tidy
	runs := 0
	vacuum := func() error { runs++; return errors.New("cancelled") }
	x.folded(usage.TidyRows - 1)
	require.NoError(t, x.run(vacuum))
	x.folded(1)
	require.EqualError(t, x.run(vacuum), "cancelled")
	require.NoError(t, x.run(vacuum), "an attempt that failed waits for as many rows again")
	require.Equal(t, 1, runs)
}
