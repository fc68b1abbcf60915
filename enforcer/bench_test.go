package enforcer_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
)

const openPlans = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans: {free: {quota: {events: unlimited, tokens: 10}, on_exceeded: block}}
`

// warm returns an enforcer whose account has a lease that a benchmark does not use up.
func warm(b *testing.B) *enforcer.Enforcer {
	b.Helper()
	e := start(b, schematest.Pool(b), enforcer.Config{Plans: catalog(b, openPlans), MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	d, err := e.Consume(b.Context(), "acme", "events", 1)
	require.NoError(b, err)
	require.True(b, d.Allowed)
	return e
}

func BenchmarkAtomicAdd(b *testing.B) {
	var n atomic.Int64
	b.ReportAllocs()
	for b.Loop() {
		n.Add(1)
	}
}

func BenchmarkTake(b *testing.B) {
	m := warm(b).Meter("acme", "events")
	b.ReportAllocs()
	for b.Loop() {
		if !m.Take(1) {
			b.Fatal("refused")
		}
	}
}

func BenchmarkTakeRefused(b *testing.B) {
	m := warm(b).Meter("acme", "tokens")
	for m.Take(1) {
	}
	b.ReportAllocs()
	for b.Loop() {
		if m.Take(1) {
			b.Fatal("admitted")
		}
	}
}

func BenchmarkConsumeMeter(b *testing.B) {
	m := warm(b).Meter("acme", "events")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if d, err := m.Consume(ctx, 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}

func BenchmarkConsumeByNames(b *testing.B) {
	e := warm(b)
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if d, err := e.Consume(ctx, "acme", "events", 1); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}

func BenchmarkTakeParallel(b *testing.B) {
	m := warm(b).Meter("acme", "events")
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if !m.Take(1) {
				b.Error("refused")
			}
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	e := start(b, schematest.Pool(b), enforcer.Config{MaxWait: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), Plans: catalog(b, `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {rate: {limit: 1_000_000_000, window: 1h}, quota: {events: 1}, on_exceeded: block}}
`)})
	ctx := b.Context()
	for i := range 2 {
		_, err := e.Allow(ctx, "acme", fmt.Sprint(i))
		require.NoError(b, err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if d, err := e.Allow(ctx, "acme", "1"); err != nil || !d.Allowed {
			b.Fatal(d, err)
		}
	}
}
