package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gubernator-io/gubernator/v2"
	"github.com/puzpuzpuz/xsync/v4"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	ulule "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/internal/measure"
)

// keyCount is how many accounts the section keys calls at random.
var keyCount = 100_000

// keys measures a call for one of many accounts, chosen at random, beside its peers.
func keys(w *world, o measure.Options) ([]row, error) {
	names, order := accounts(keyCount)
	works, err := peers(w.ctx, names, order)
	if err != nil {
		return nil, err
	}
	mine, bytes, err := weirKeys(w, names, order)
	if err != nil {
		return nil, err
	}
	works = append([]measure.Work{mine}, works...)
	o.Slice = time.Millisecond
	r, err := measure.Compare(o, works...)
	if err != nil {
		return nil, err
	}
	grid, err := manyFeatures(w, o)
	if err != nil {
		return nil, err
	}
	w.atRandom = r[0].NS
	weir, of := r[0], fmt.Sprintf("%d keys", keyCount)
	rows := []row{
		absolute("memory per live counter, names and the next period's key included", float64(bytes), 256, "bytes", false),
		compared("Consume by names, "+of, ns(weir.NS), "struct-key map "+ns(r[1].NS), weir.Over(r[1]), 0.4, false),
		compared("Consume by names, "+of+", times faster", ns(weir.NS), "go-limiter "+ns(r[3].NS), r[3].Over(weir), 5, true),
	}
	for _, p := range r[2:] {
		if p.Name == "go-limiter" {
			continue
		}
		x := compared("peer: "+p.Name+", times slower than Consume", ns(p.NS), "Consume "+ns(weir.NS), p.Over(weir), 0, true)
		x.target = ""
		rows = append(rows, x)
	}
	return append(rows, grid), nil
}

// accounts are n names, and an endless order to call them in: strings of their own, as a server that has just parsed a
// request has them, so that nobody finds a key by its address.
func accounts(n int) (names, order []string) {
	names = make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("account-%08d", i)
	}
	order = make([]string, 1<<20)
	for i := range order {
		order[i] = strings.Clone(names[rand.IntN(n)])
	}
	return names, order
}

// each calls f for the keys in their order, forever.
func each(order []string, f func(string)) func(int) {
	at := 0
	return func(n int) {
		for range n {
			f(order[at&(len(order)-1)])
			at++
		}
	}
}

// weirKeys makes a node know all the accounts and returns the call, and how many bytes of the heap one counter takes.
// Each account has a counter for each of its two features. What was counted is never sent: the database does not know
// these accounts.
func weirKeys(w *world, names, order []string) (work measure.Work, perCounter int64, err error) {
	pool, err := w.database()
	if err != nil {
		return work, 0, err
	}
	e, err := w.left(pool, planFile)
	if err != nil {
		return work, 0, err
	}
	before, counters := liveBytes(), e.Stats().Counters
	if err := seed(w, e, "events", names); err != nil {
		return work, 0, err
	}
	perCounter = (liveBytes() - before) / int64(e.Stats().Counters-counters)
	call := func(k string) {
		if d, err := e.Consume(w.ctx, k, "events", 1); err != nil || !d.Allowed {
			panic("refused")
		}
	}
	for _, k := range names {
		call(k) // the first call of a batch does more, and the first one on a page of the journal faults
	}
	return measure.Work{Name: "weir", Do: each(order, call)}, perCounter, w.ctx.Err()
}

// liveBytes is the heap in use after everything unreachable is gone.
func liveBytes() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

type pair struct{ account, feature string }

// peers allow one unit under a key, with a limit that is never reached.
func peers(ctx context.Context, names, order []string) ([]measure.Work, error) {
	byPair := xsync.NewMap[pair, *atomic.Int64]()
	bare := make(map[string]*atomic.Int64, len(names))
	var rates sync.Map
	for _, k := range names {
		byPair.Store(pair{k, "events"}, new(atomic.Int64))
		bare[k] = new(atomic.Int64)
		rates.Store(k, rate.NewLimiter(1e9, 1<<30))
	}
	sethvargo, err := memorystore.New(&memorystore.Config{Tokens: 1 << 40, Interval: time.Hour})
	if err != nil {
		return nil, err
	}
	store, err := throttledstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1 << 30})
	if err != nil {
		return nil, err
	}
	uluLimiter := limiter.New(ulule.NewStore(), limiter.Rate{Period: time.Hour, Limit: 1 << 40})
	works := []measure.Work{
		{Name: "struct-key map", Do: each(order, func(k string) {
			c, _ := byPair.Load(pair{k, "events"})
			c.Add(1)
		})},
		{Name: "bare map, no lock", Do: each(order, func(k string) { bare[k].Add(1) })},
		{Name: "go-limiter", Do: each(order, func(k string) {
			if _, _, _, ok, err := sethvargo.Take(ctx, k); !ok || err != nil {
				panic("refused")
			}
		})},
		{Name: "x/time/rate in a sync.Map", Do: each(order, func(k string) {
			l, _ := rates.Load(k)
			if !l.(*rate.Limiter).Allow() {
				panic("refused")
			}
		})},
		{Name: "throttled", Do: each(order, func(k string) {
			if limited, _, err := gcra.RateLimitCtx(ctx, k, 1); limited || err != nil {
				panic("refused")
			}
		})},
		{Name: "ulule/limiter", Do: each(order, func(k string) {
			if c, err := uluLimiter.Get(ctx, k); err != nil || c.Reached {
				panic("refused")
			}
		})},
	}
	g, err := gubernatorWork(ctx, order)
	if err != nil {
		return nil, err
	}
	return append(works, g), nil
}

// gubernatorWork is a single instance in this process, called without its network.
func gubernatorWork(ctx context.Context, order []string) (measure.Work, error) {
	daemon, err := gubernator.NewV1Instance(gubernator.Config{CacheSize: 2 * keyCount, GRPCServers: []*grpc.Server{grpc.NewServer()}})
	if err != nil {
		return measure.Work{}, err
	}
	daemon.SetPeers([]gubernator.PeerInfo{{GRPCAddress: "127.0.0.1:1", IsOwner: true}})
	return measure.Work{Name: "gubernator in process", Elsewhere: true, Do: each(order, func(k string) {
		r, err := daemon.GetRateLimits(ctx, &gubernator.GetRateLimitsReq{Requests: []*gubernator.RateLimitReq{{
			Name: "events", UniqueKey: k, Hits: 1, Limit: 1 << 40, Duration: 3_600_000,
		}}})
		// Its own deadline passes when other programs hold the cores; that slice is dropped by its time anyway.
		if err != nil || r.Responses[0].Error != "" && !strings.Contains(r.Responses[0].Error, "deadline exceeded") {
			panic(fmt.Sprint("gubernator: ", r, err))
		}
	})}, nil
}
