package clock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/clock"
)

func TestDatabaseFollowsItsClockAndKeepsTheOffsetWhileItIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		var away atomic.Bool
		offset.Store(int64(5 * time.Minute))
		d := clock.NewDatabase(func(context.Context) (time.Time, error) {
			if away.Load() {
				return time.Time{}, errors.New("away")
			}
			return time.Now().Add(time.Duration(offset.Load())), nil
		})
		require.NoError(t, d.Sync(t.Context()))
		require.WithinDuration(t, time.Now().Add(5*time.Minute), d.Now(), 0)
		ctx, cancel := context.WithCancel(t.Context())
		go d.Run(ctx)
		offset.Store(int64(-time.Hour))
		time.Sleep(1500 * time.Millisecond)
		require.WithinDuration(t, time.Now().Add(-time.Hour), d.Now(), 0)
		away.Store(true)
		require.ErrorContains(t, d.Sync(t.Context()), "away")
		time.Sleep(5 * time.Second)
		require.WithinDuration(t, time.Now().Add(-time.Hour), d.Now(), 0)
		cancel()
	})
}

func TestSimulatedGoesOnAndNeverBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Date(2027, 1, 31, 10, 0, 0, 0, time.UTC)
		s := clock.NewSimulated(start)
		time.Sleep(time.Second)
		require.Equal(t, start.Add(time.Second), s.Now())
		s.Set(start.Add(time.Hour))
		require.Equal(t, start.Add(time.Hour), s.Now())
		s.Set(start)
		require.Equal(t, start.Add(time.Hour), s.Now())
	})
}
