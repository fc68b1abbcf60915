package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/ratelimit"
)

// The benchmarks read a coarse clock word, as a host does. Reference is an atomic add on a line of its own, to compare
// with in the same run; run them with -cpu 1,2. Timed in slices of 2,000 calls on a busy 2-core machine (the tenth
// percentile; an add took 8.4 ns), a call for a hot key takes 45 to 47 ns, a refusal 38 to 44, one of 100,000 keys at
// random 200 to 280. Limiters in common use read the clock in each call and lock the key; other runs on such a machine
// gave, for one of 100,000 keys, go-limiter 520 ns, throttled 420, x/time/rate in a map 600 to 900, ulule 1,050 with
// two allocations.

func BenchmarkReference(b *testing.B) {
	var word atomic.Int64
	for b.Loop() {
		word.Add(1)
	}
}

func BenchmarkHotKey(b *testing.B) {
	for _, algorithm := range algorithms {
		b.Run(string(algorithm), func(b *testing.B) {
			limiter, clock := ratelimit.New(0), new(atomic.Int64)
			rule := newRule(b, ratelimit.Limit{Units: 1e9, Window: time.Minute, Algorithm: algorithm})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					limiter.Allow("account-1", "key-1", rule, 1, clock.Load())
				}
			})
		})
	}
}

func BenchmarkRefusal(b *testing.B) {
	for _, algorithm := range algorithms {
		b.Run(string(algorithm), func(b *testing.B) {
			limiter, clock := ratelimit.New(0), new(atomic.Int64)
			rule := newRule(b, ratelimit.Limit{Units: 1, Window: time.Minute, Algorithm: algorithm})
			limiter.Allow("account-1", "key-1", rule, 1, clock.Load())
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					limiter.Allow("account-1", "key-1", rule, 1, clock.Load())
				}
			})
		})
	}
}

func BenchmarkKeys(b *testing.B) {
	const keys = 100_000
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("account-%06d", i)
	}
	for _, algorithm := range algorithms {
		b.Run(string(algorithm), func(b *testing.B) {
			limiter, clock := ratelimit.New(0), new(atomic.Int64)
			rule := newRule(b, ratelimit.Limit{Units: 1e9, Window: time.Minute, Algorithm: algorithm})
			for _, name := range names {
				limiter.Allow(name, "key", rule, 1, clock.Load())
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				random := rand.New(rand.NewPCG(1, rand.Uint64()))
				for pb.Next() {
					limiter.Allow(names[random.IntN(keys)], "key", rule, 1, clock.Load())
				}
			})
		})
	}
}

// BenchmarkFlood is a new key at each call, with no room for it.
func BenchmarkFlood(b *testing.B) {
	limiter := ratelimit.New(10_000)
	rule := newRule(b, ratelimit.Limit{Units: 60, Window: time.Minute})
	names := make([]string, 1<<16)
	for i := range names {
		names[i] = fmt.Sprintf("2001:db8::%x", i)
	}
	b.ReportAllocs()
	i, now := 0, int64(0)
	for b.Loop() {
		i++
		now += 1000
		limiter.Allow("", names[i%len(names)], rule, 1, now)
	}
}
