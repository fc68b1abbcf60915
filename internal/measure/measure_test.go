package measure_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/measure"
)

func TestTwiceTheWorkCostsTwice(t *testing.T) {
	var word atomic.Uint64
	add := func(times int) func(int) {
		return func(n int) {
			for range n * times {
				word.Add(1)
			}
		}
	}
	r, err := measure.Compare(measure.Options{Patience: 2 * time.Minute}, measure.Work{Name: "one", Do: add(1)}, measure.Work{Name: "two", Do: add(2)})
	require.NoError(t, err)
	require.InDelta(t, 2, r[1].Over(r[0]), 0.5)
	require.Len(t, r[0].Rounds, 5)
}

func TestTimeAsleepSpoilsASlice(t *testing.T) {
	t.Parallel()
	_, err := measure.Compare(measure.Options{Patience: 50 * time.Millisecond}, measure.Work{Name: "sleep", Do: func(int) { time.Sleep(100 * time.Microsecond) }})
	require.ErrorIs(t, err, measure.ErrNoisy)
}

func TestSeveralCoresAreMeasuredAtOnce(t *testing.T) {
	var now atomic.Int64
	var both atomic.Bool
	_, err := measure.Compare(measure.Options{Rounds: 1, Slices: 1, Patience: 2 * time.Minute}, measure.Work{Name: "pair", Cores: 2, Do: func(n int) {
		if now.Add(1) == 2 {
			both.Store(true)
		}
		var word atomic.Uint64
		for range n {
			word.Add(1)
		}
		now.Add(-1)
	}})
	require.NoError(t, err)
	require.True(t, both.Load())
}

func TestWorkElsewhereIsNotSpoiledByWaiting(t *testing.T) {
	t.Parallel()
	r, err := measure.Compare(measure.Options{Rounds: 1, Slices: 3, Patience: 2 * time.Minute}, measure.Work{Name: "ask", Elsewhere: true, Do: func(n int) {
		for range n {
			done := make(chan struct{})
			go close(done)
			<-done
		}
	}})
	require.NoError(t, err)
	require.Zero(t, r[0].Dropped)
	require.Positive(t, r[0].NS)
}

func TestTheMedianOfNothingIsZero(t *testing.T) {
	t.Parallel()
	require.Zero(t, measure.Median(nil))
	require.InDelta(t, 2.0, measure.Median([]float64{3, 1, 2}), 0)
}
