//go:build !race

// Costs under the race detector are the detector's.

package enforcer_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
)

// liveBytes is the heap in use after everything unreachable is gone.
func liveBytes() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// An account's record, its name, the maps and the next period's key included; the journal's 64 bytes are not.
func TestPerfMemoryPerLiveCounter(t *testing.T) {
	const accounts = 400
	e := start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, perfPlans), MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	meet := func(name string, n int) {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := g; i < n; i += 4 {
					d, err := e.Consume(t.Context(), fmt.Sprintf("%s %08d", name, i), "events", 1)
					if err != nil || !d.Allowed {
						t.Error(d, err)
					}
				}
			})
		}
		wg.Wait()
		require.NoError(t, e.Flush(t.Context()))
	}
	meet("early", 40) // what connections and statements keep is not the counters'
	round := 0
	withinBound(t, "bytes of a counter", 256, func() float64 {
		round++
		before, known := liveBytes(), e.Stats().Counters
		began := time.Now()
		meet(fmt.Sprint("account ", round), accounts)
		t.Logf("%d first contacts/s", int(accounts/time.Since(began).Seconds()))
		return float64(liveBytes()-before) / float64(e.Stats().Counters-known)
	})
}
