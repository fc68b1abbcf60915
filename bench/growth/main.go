// Command growth measures one node, and the worker's passes, over more and more accounts: first contacts, memory, the
// flush and the fold of all of them, the start after a crash, a customer's page, the hourly pass that plans reports, and
// the close of all periods. Each step has a database of its own. It ends by itself after a bounded time and prints the
// steps that it reached.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/schematest"
)

const planFile = `
currency: usd
default_plan: free
features: {events: {meter: growth_events}}
plans:
  free: {quota: {events: 100}, on_exceeded: block}
  pro:
    prices: [pro_monthly]
    quota: {events: {included: 1, overage: {price: "0.40", per: 1000, max: 1_000}}}
    on_exceeded: bill_overage
`

var columns = []string{
	"accounts", "first contacts/s", "heap per account", "one unit for each", "flush of all", "fold of all", "start after a crash",
	"page, median and p99", "plan all reports", "close all periods", "database", "load",
}

func main() {
	most := flag.Int("most", 1_000_000, "accounts of the last step; each step has ten times those before it")
	first := flag.Int("first", 1000, "accounts of the first step")
	lasting := flag.Duration("for", 30*time.Minute, "ends by itself after this time")
	node := flag.String("node", "", "internal: be the node that is killed, on this database")
	dir := flag.String("dir", "", "internal: its journal")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *lasting)
	defer cancel()
	var err error
	if *node != "" {
		err = beNode(ctx, *node, *dir, *first)
	} else {
		err = run(ctx, *first, *most)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "growth:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, first, most int) error {
	server, err := postgres.Start(ctx, postgres.Options{})
	if err != nil {
		return err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		_ = server.Stop(stop)
	}()
	// Journals lie in the server's folder, which is removed also when this process is killed.
	where, err := url.Parse(server.URL("postgres"))
	if err != nil {
		return err
	}
	dir := where.Query().Get("host")
	fmt.Printf("| %s |\n%s|\n", strings.Join(columns, " | "), strings.Repeat("|---", len(columns)))
	for n := first; n <= most; n *= 10 {
		if err := enough(dir, n); err != nil {
			return err
		}
		name := fmt.Sprint("growth_", n)
		database, err := fresh(ctx, server, name)
		if err == nil {
			err = step(ctx, database, filepath.Join(dir, name), n)
		}
		if err == nil {
			err = drop(ctx, server, name)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			fmt.Printf("\n%d accounts: not reached within the time\n", n)
			return nil
		} else if err != nil {
			return fmt.Errorf("%d accounts: %w", n, err)
		}
	}
	return nil
}

// enough refuses a step for which the disk may have no room: the database, its write-ahead log and as much again.
func enough(dir string, n int) error {
	const each, log = 12_000, 4 << 30 // bytes
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return err
	}
	if free, want := int64(fs.Bavail)*int64(fs.Bsize), int64(n)*each+log; free < want {
		return fmt.Errorf("%d accounts need %d MB on the disk of %s, which has %d MB", n, want>>20, dir, free>>20)
	}
	return nil
}

func drop(ctx context.Context, server *postgres.Server, name string) error {
	admin, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer admin.Close()
	_, err = admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
	return err
}

// fresh makes a migrated database.
func fresh(ctx context.Context, server *postgres.Server, name string) (string, error) {
	admin, err := pgxpool.New(ctx, server.URL("postgres"))
	if err != nil {
		return "", err
	}
	defer admin.Close()
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	return server.URL(name), schematest.Migrate(ctx, server.URL(name))
}
