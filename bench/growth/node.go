package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const callers = 256

// lived is what the node tells before it is killed.
type lived struct {
	Contacts float64 // a second
	Heap     int64   // bytes per account
	Touched  time.Duration
	Flushed  time.Duration
	Folded   time.Duration
}

// newNode starts an enforcer.
func newNode(ctx context.Context, pool *pgxpool.Pool, dir string) (*enforcer.Enforcer, error) {
	catalog, err := plans.Parse([]byte(planFile))
	if err != nil {
		return nil, err
	}
	e, err := enforcer.New(pool, &enforcer.Config{Plans: catalog, JournalDir: dir, MaxWait: 10 * time.Second, FlushInterval: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return e, e.Start(ctx)
}

// liveAndDie runs a node in a process of its own and kills it once it has counted a unit of every account that it did
// not send.
func liveAndDie(ctx context.Context, url, dir string, n int) (lived, error) {
	self, err := os.Executable()
	if err != nil {
		return lived{}, err
	}
	end, _ := ctx.Deadline()
	cmd := exec.CommandContext(ctx, self, "-node", url, "-dir", dir, "-first", strconv.Itoa(n), "-for", time.Until(end).String())
	cmd.Stderr = os.Stderr
	life, err := cmd.StdinPipe() // the node ends when this process does
	if err != nil {
		return lived{}, err
	}
	defer func() { _ = life.Close() }()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return lived{}, err
	}
	if err := cmd.Start(); err != nil {
		return lived{}, err
	}
	var l lived
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		_ = cmd.Wait()
		if ctx.Err() != nil {
			return l, ctx.Err()
		}
		return l, fmt.Errorf("the node ended before its time")
	}
	err = json.Unmarshal(lines.Bytes(), &l)
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed: that is its error
	return l, err
}

// beNode is that process: three units of every account, the last of them in the journal alone.
func beNode(ctx context.Context, url, dir string, n int) error {
	ctx, end := context.WithCancel(ctx)
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		end()
	}()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	e, err := newNode(ctx, pool, dir)
	if err != nil {
		return err
	}
	before := heap()
	took, err := timed(func() error { return touch(ctx, e, n) })
	if err != nil {
		return err
	}
	said("%d first contacts in %s", n, round(took))
	l := lived{Contacts: float64(n) / took.Seconds()}
	if _, err := pool.Exec(ctx, subscribed, time.Now()); err != nil {
		return err
	}
	if err := e.Flush(ctx); err != nil {
		return err
	}
	if err := foldAll(ctx, pool); err != nil {
		return err
	}
	l.Heap = (heap() - before) / int64(n)
	said("%d accounts are subscribed and folded", n)
	if l.Touched, err = timed(func() error { return touch(ctx, e, n) }); err != nil {
		return err
	}
	if l.Flushed, err = timed(func() error { return e.Flush(ctx) }); err != nil {
		return err
	}
	if l.Folded, err = timed(func() error { return foldAll(ctx, pool) }); err != nil {
		return err
	}
	if err := touch(ctx, e, n); err != nil {
		return err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	<-ctx.Done()
	return nil
}

// subscribed makes of every account what plan sync would leave: the running period confirmed and on pro, its overage
// billable, an item to report it to. The ceilings stay: they have room for what is counted here.
const subscribed = `
	WITH p AS (
		UPDATE weir.periods SET source = 'subscription', plan = 'pro', confirmed = true WHERE starts <= $1 AND $1 < ends RETURNING id, account_id, starts, ends),
	k AS (
		UPDATE weir.keys k SET billability = 'yes', included = 1, maximum = 1000, highest_maximum = 1000, on_exceeded = 'bill_overage'
		FROM p WHERE k.period_id = p.id RETURNING k.key, k.account_id, p.starts, p.ends),
	c AS (
		INSERT INTO weir.customers (customer, livemode, account_id, wanted, synced, seen_at)
		SELECT 'cus_' || k.account_id, false, k.account_id, 1, 1, $1 FROM k)
	INSERT INTO weir.segments (key, customer, subscription, item, price, currency, unit_amount, meter, window_start, window_end, starts, opened_at)
	SELECT k.key, 'cus_' || k.account_id, 'sub_' || k.account_id, 'si_' || k.account_id, 'price', 'usd', 0.04, 'growth_events', k.starts, k.ends, k.starts, k.starts
	FROM k`

// touch counts one unit of every account.
func touch(ctx context.Context, e *enforcer.Enforcer, n int) error {
	var next atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, callers)
	for range callers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := one(ctx, e, fmt.Sprintf("account-%08d", i)); err != nil {
					failed <- err
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

func one(ctx context.Context, e *enforcer.Enforcer, account string) error {
	for {
		d, err := e.Consume(ctx, account, "events", 1)
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case d.Reason == enforcer.Unavailable: // a database that is too busy to answer in time
		case !d.Allowed:
			return fmt.Errorf("%s: %w", account, d.Err())
		default:
			return nil
		}
	}
}

func foldAll(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		n, err := usage.Fold(ctx, pool, 5000)
		if err != nil || n == 0 {
			return err
		}
	}
}

func timed(do func() error) (time.Duration, error) {
	began := time.Now()
	err := do()
	return time.Since(began), err
}

func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
