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

// The target of 256 bytes is missed (docs/performance.md says by what); the bound keeps what is there from growing. Two
// counters to an account, both names of it, the maps and the next period's key included; the journal's 64 bytes are not.
func TestPerfMemoryPerLiveCounter(t *testing.T) {
	const (
		accounts = 400
		bound    = 1000
	)
	e := start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, perfPlans), MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	consume(t, e, "the first", "events", 1)
	before := liveBytes()
	began := time.Now()
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := g; i < accounts; i += 4 {
				d, err := e.Consume(t.Context(), fmt.Sprintf("account %08d", i), "events", 1)
				if err != nil || !d.Allowed {
					t.Error(d, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d first contacts/s", int(accounts/time.Since(began).Seconds()))
	require.NoError(t, e.Flush(t.Context()))
	per := (liveBytes() - before) / int64(e.Stats().Counters-1)
	t.Logf("%d accounts, %d counters: %d bytes each", e.Stats().Accounts, e.Stats().Counters, per)
	require.LessOrEqual(t, per, int64(bound))
}
