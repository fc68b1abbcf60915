// Command growth measures one node over more and more accounts: first contact, memory, the time of a flush, and the
// start after a crash, when the next process recovers the journal. It ends by itself after a bounded time and prints
// the steps that it reached.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const planFile = `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 1_000_000}, on_exceeded: block}}
`

func main() {
	most := flag.Int("most", 1_000_000, "accounts of the last step; each step has ten times those before it")
	lasting := flag.Duration("for", 30*time.Minute, "ends by itself after this time")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *lasting)
	defer cancel()
	if err := run(ctx, *most); err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, most int) error {
	server, err := postgres.Start(ctx, postgres.Options{})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = server.Stop(stop)
	}()
	url := server.URL("postgres")
	if err := schematest.Migrate(ctx, url); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	dir, err := os.MkdirTemp("", "weir-growth-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	fmt.Println("| accounts | first contacts/s | heap per account | one unit for each | flush of all | fold of all | stop |\n|---|---|---|---|---|---|---|")
	for n := 1000; n <= most; n *= 10 {
		if err := step(ctx, pool, filepath.Join(dir, fmt.Sprint(n)), n); errors.Is(err, context.DeadlineExceeded) {
			fmt.Printf("\n%d accounts: not reached within the time\n", n)
			return nil
		} else if err != nil {
			return fmt.Errorf("%d accounts: %w", n, err)
		}
	}
	return nil
}

func step(ctx context.Context, pool *pgxpool.Pool, dir string, n int) error {
	catalog, err := plans.Parse([]byte(planFile))
	if err != nil {
		return err
	}
	e, err := enforcer.New(pool, &enforcer.Config{Plans: catalog, JournalDir: dir, MaxWait: 10 * time.Second, FlushInterval: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	before := heap()
	began := time.Now()
	if err := touch(ctx, e, n); err != nil {
		return err
	}
	contacts := float64(n) / time.Since(began).Seconds()
	if err := e.Flush(ctx); err != nil {
		return err
	}
	per := (heap() - before) / int64(n)
	began = time.Now()
	if err := touch(ctx, e, n); err != nil {
		return err
	}
	touched := time.Since(began)
	began = time.Now()
	if err := e.Flush(ctx); err != nil {
		return err
	}
	flushed := time.Since(began)
	began = time.Now()
	for {
		folded, err := usage.Fold(ctx, pool, 5000)
		if err != nil {
			return err
		}
		if folded == 0 {
			break
		}
	}
	fold := time.Since(began)
	began = time.Now()
	if err := e.Stop(ctx); err != nil {
		return err
	}
	round := func(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
	fmt.Printf("| %d | %.0f | %d bytes | %s | %s | %s | %s |\n", n, contacts, per, round(touched), round(flushed), round(fold), round(time.Since(began)))
	return nil
}

func touch(ctx context.Context, e *enforcer.Enforcer, n int) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, 4)
	for range 4 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				account := fmt.Sprintf("account-%08d", i)
				d, err := e.Consume(ctx, account, "events", 1)
				for err == nil && d.Reason == enforcer.Unavailable && ctx.Err() == nil { // a database that is too busy to answer in time
					d, err = e.Consume(ctx, account, "events", 1)
				}
				if err == nil {
					err = ctx.Err()
				}
				if err != nil {
					failed <- err
					return
				}
				if !d.Allowed {
					failed <- fmt.Errorf("account %d: %w", i, d.Err())
					return
				}
			}
		})
	}
	all.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
