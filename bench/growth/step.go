package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/usage"
)

// step measures one number of accounts and prints its row.
func step(ctx context.Context, url, dir string, n int) error {
	l, err := liveAndDie(ctx, url, dir, n)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	said("the node counted and was killed: contacts %.0f/s, unit of each %s, flush %s, fold %s", l.Contacts, round(l.Touched), round(l.Flushed), round(l.Folded))
	began := time.Now()
	e, err := newNode(ctx, pool, dir)
	if err != nil {
		return err
	}
	started := time.Since(began)
	said("the next one started in %s", round(started))
	if err := e.Stop(ctx); err != nil {
		return err
	}
	if err := counted(ctx, pool, 3*int64(n)); err != nil {
		return err
	}
	page, tail, err := pages(ctx, pool, n)
	if err != nil {
		return err
	}
	said("a page took %s", page)
	planned, closed, err := passes(ctx, pool, n)
	if err != nil {
		return err
	}
	var size string
	if err := pool.QueryRow(ctx, "SELECT pg_size_pretty(pg_database_size(current_database()))").Scan(&size); err != nil {
		return err
	}
	fmt.Printf("| %d | %.0f | %d bytes | %s | %s | %s | %s | %s, %s | %s | %s | %s | %s |\n", n, l.Contacts, l.Heap, round(l.Touched), round(l.Flushed), round(l.Folded),
		round(started), page.Round(10*time.Microsecond), tail.Round(10*time.Microsecond), round(planned), round(closed), size, load())
	return nil
}

// counted folds what is left and compares everything that was counted with what was admitted.
func counted(ctx context.Context, pool *pgxpool.Pool, want int64) error {
	if err := foldAll(ctx, pool); err != nil {
		return err
	}
	var used, overage int64
	if err := pool.QueryRow(ctx, "SELECT sum(used)::bigint, sum(overage)::bigint FROM weir.totals").Scan(&used, &overage); err != nil {
		return err
	}
	if used != want || overage != want/3*2 {
		return fmt.Errorf("%d units counted and %d beyond what is included, of %d admitted", used, overage, want)
	}
	return nil
}

// pages reads the statements that a usage page shows, of accounts at random.
func pages(ctx context.Context, pool *pgxpool.Pool, n int) (median, p99 time.Duration, err error) {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	var took []time.Duration
	for range 300 {
		account := fmt.Sprintf("account-%08d", rng.IntN(n))
		t, err := timed(func() error {
			_, err := books.ReadStatement(ctx, pool, account, time.Now())
			return err
		})
		if err != nil {
			return 0, 0, err
		}
		took = append(took, t)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100], nil
}

type at struct{ time.Time }

// Now is that instant.
func (a at) Now() time.Time { return a.Time }

// passes measures the pass that plans a report for every account, while nothing can be sent, and the close of every
// period, a day after its end.
func passes(ctx context.Context, pool *pgxpool.Pool, n int) (planned, closed time.Duration, err error) {
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer away.Close()
	if _, err := pool.Exec(ctx, "INSERT INTO weir.stops (cause, since, message) VALUES ('clock', $1, 'measured without Stripe')", time.Now()); err != nil {
		return 0, 0, err
	}
	client, err := billing.NewClient(billing.ClientConfig{Key: "sk_test_growth", BaseURL: away.URL, EventsPerSecond: 1, ReadsPerSecond: 1000})
	if err != nil {
		return 0, 0, err
	}
	biller := func(now time.Time) (*billing.Biller, error) {
		return billing.New(pool, billing.Config{Stripe: client, Clock: at{now}, Logger: slog.New(slog.DiscardHandler)})
	}
	b, err := biller(time.Now().Add(10 * time.Minute))
	if err != nil {
		return 0, 0, err
	}
	if planned, err = timed(func() error { return b.Report(ctx) }); err != nil {
		return 0, 0, err
	}
	said("reports were planned in %s", round(planned))
	var reports, left int64
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM weir.reports").Scan(&reports); err != nil {
		return 0, 0, err
	}
	if reports != int64(n) {
		return 0, 0, fmt.Errorf("%d reports planned for %d accounts", reports, n)
	}
	for { // nodes that are over hold no close up
		if _, err := usage.Prune(ctx, pool, time.Now()); err != nil {
			return 0, 0, err
		}
		nodes, err := usage.Nodes(ctx, pool)
		if err != nil {
			return 0, 0, err
		}
		if len(nodes) == 0 {
			break
		}
		for _, x := range nodes {
			if _, err := usage.Retire(ctx, pool, x.ID); err != nil {
				return 0, 0, err
			}
		}
	}
	var ends time.Time
	if err := pool.QueryRow(ctx, "SELECT max(ends) FROM weir.periods WHERE confirmed").Scan(&ends); err != nil {
		return 0, 0, err
	}
	said("nodes are retired")
	if b, err = biller(ends.Add(24 * time.Hour)); err != nil {
		return 0, 0, err
	}
	closed, err = timed(func() error {
		_, err := b.Close(ctx)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM weir.periods WHERE confirmed AND state IN ('open', 'closing')").Scan(&left); err != nil {
		return 0, 0, err
	}
	if left > 0 {
		return 0, 0, fmt.Errorf("%d periods are not closed", left)
	}
	return planned, closed, nil
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

// said tells how far a long run is.
func said(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().UTC().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(data))[0]
}
