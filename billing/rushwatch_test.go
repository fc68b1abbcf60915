package billing_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

type labelled struct{}

type begun struct{}

func label(ctx context.Context, of string) context.Context {
	return context.WithValue(ctx, labelled{}, of)
}

// asked notes each loop's statements: how long they took, and how many rows they handed over.
type asked struct {
	mu   sync.Mutex
	took map[string][]time.Duration
	rows map[string]int64
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, begun{}, time.Now())
}

func (a *asked) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	of, ok := ctx.Value(labelled{}).(string)
	if !ok {
		of = "webhooks"
	}
	d := time.Since(ctx.Value(begun{}).(time.Time))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.took == nil {
		a.took, a.rows = map[string][]time.Duration{}, map[string]int64{}
	}
	a.took[of] = append(a.took[of], d)
	if data.CommandTag.Select() {
		a.rows[of] = max(a.rows[of], data.CommandTag.RowsAffected())
	}
}

func (a *asked) most() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var most int64
	for _, n := range a.rows {
		most = max(most, n)
	}
	return most
}

func (a *asked) tell(r *rush) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []string
	for of := range a.took {
		names = append(names, of)
	}
	slices.Sort(names)
	for _, of := range names {
		all := a.took[of]
		slices.Sort(all)
		var sum time.Duration
		for _, d := range all {
			sum += d
		}
		at := func(q int) time.Duration { return all[(len(all)-1)*q/100].Round(10 * time.Microsecond) }
		r.Logf("%-9s %7d statements, %6.1f per 1,000 accounts, %7.2f s in them, p50 %s, p99 %s, at most %d rows", of, len(all),
			1000*float64(len(all))/float64(r.accounts), sum.Seconds(), at(50), at(99), a.rows[of])
	}
}

// held watches what the worker's part holds: links in flight, and memory, by the allocations that have the package on
// their stack and not the simulator, which keeps every customer and event.
type held struct {
	links int64
	heap  []int64
}

func (h *held) watch(ctx context.Context, r *rush) {
	for ctx.Err() == nil {
		var n int64
		if err := r.world.db.QueryRow(ctx, "SELECT count(*) FROM weir.streams WHERE claimed_until > clock_timestamp()").Scan(&n); err != nil && ctx.Err() == nil {
			r.Errorf("count the links in flight: %v", err)
			return
		}
		h.links, h.heap = max(h.links, n), append(h.heap, workerBytes())
		pause(ctx)
	}
}

func (h *held) tell(r *rush) {
	half := len(h.heap) / 2
	r.Logf("held at once: at most %d links, %d KiB of the worker's part on the heap (in the first half at most %d, in the second %d)", h.links,
		slices.Max(h.heap)>>10, slices.Max(h.heap[:max(1, half)])>>10, slices.Max(h.heap[half:])>>10)
}

func workerBytes() int64 {
	var records []runtime.MemProfileRecord
	for n, ok := runtime.MemProfile(nil, false); !ok; {
		records = make([]runtime.MemProfileRecord, n+100)
		if n, ok = runtime.MemProfile(records, false); ok {
			records = records[:n]
		}
	}
	var sum int64
	for i := range records {
		if ours(records[i].Stack()) {
			sum += records[i].InUseBytes()
		}
	}
	return sum
}

func ours(stack []uintptr) (is bool) {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "/stripesim") {
			return false
		}
		is = is || strings.Contains(f.Function, "weir/billing.") || strings.Contains(f.Function, "weir/usage.")
		if !more {
			return is
		}
	}
}
