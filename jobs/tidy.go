package jobs

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/usage"
)

// tidyShare bounds the time that tidying takes: one part in so many.
const tidyShare = 20

// tidy decides when the inbox is tidied: after usage.TidyRows folded rows, one at a time, and the less often the longer
// it takes. While an old transaction keeps what was folded from going, each look at the table finds more of it and
// frees nothing. The zero value is ready.
type tidy struct {
	gone atomic.Int64 // rows folded here since the last time

	mu   sync.Mutex // held while it runs
	next time.Time  // monotonic: not before
}

func (t *tidy) folded(rows int64) { t.gone.Add(rows) }

// run tidies if it is time to. It does not wait for another run.
func (t *tidy) run(vacuum func() error) error {
	if t.gone.Load() < usage.TidyRows || !t.mu.TryLock() {
		return nil
	}
	defer t.mu.Unlock()
	began := time.Now()
	if began.Before(t.next) {
		return nil
	}
	t.gone.Store(0)
	err := vacuum()
	ended := time.Now()
	t.next = ended.Add(tidyShare * ended.Sub(began))
	return err
}
