// Package pgtest gives each test a PostgreSQL database of its own.
//
// All test binaries of a run share one server: the one that DATABASE_URL names,
// or a private one that the first test starts and that ends with the last (see
// package postgres). A machine without PostgreSQL fails the test with the
// command that installs it; nothing is ever skipped.
//
// Databases are dropped when their test ends. Those of a test that was killed
// are dropped by a later one: only databases whose name says that they came
// from here, that are more than an hour old, and that nobody is connected to.
package pgtest

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/postgres"
)

const (
	sharedName     = "pgtest-1" // counts up when the shared server's options change
	maxConnections = 500        // test binaries run in parallel, each with pools of its own
	setUpTime      = 2 * time.Minute
	tearDownTime   = time.Minute
)

// New returns a pool on a fresh, empty database. Both go when t ends.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Pool(t, URL(t))
}

// URL returns the connection URL of a fresh, empty database, which is dropped
// when t ends.
func URL(t testing.TB) string {
	t.Helper()
	return fresh(t, func(context.Context, *admin) (string, error) { return "template0", nil })
}

// Migrated returns the connection URL of a fresh database that is a copy of
// what migrate makes. migrate runs only when no database for key exists on the
// server yet, so key must change with whatever migrate does: a hash of the
// migrations. migrate must have closed its connections when it returns, and is
// given a database that is empty.
func Migrated(t testing.TB, key string, migrate func(ctx context.Context, url string) error) string {
	t.Helper()
	return fresh(t, func(ctx context.Context, a *admin) (string, error) { return a.template(ctx, key, migrate) })
}

// Pool returns a pool on url that is closed when t ends. Where WEIR_TEST_POOLER
// names the address of a transaction pooler, which knows every database, the
// pool goes through it: so tests show that nothing needs a session.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	if pooler := os.Getenv("WEIR_TEST_POOLER"); pooler != "" {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatalf("open test database: %v", err)
		}
		url = "postgres://weir@" + pooler + "/" + cfg.Database + "?sslmode=disable&default_query_exec_mode=cache_describe"
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Server starts a private, durable server for a test that restarts, kills or
// stalls it, and stops it when t ends. It takes about a second, and needs
// PostgreSQL on this machine even when DATABASE_URL is set.
func Server(t testing.TB) *postgres.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setUpTime)
	defer cancel()
	server, err := postgres.Start(ctx, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log ends with\n%s", server.Log())
		}
		ctx, cancel := context.WithTimeout(context.Background(), tearDownTime)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return server
}

// fresh creates a database from the template that choose names.
func fresh(t testing.TB, choose func(context.Context, *admin) (string, error)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), setUpTime)
	defer cancel()
	base := serverURL(ctx, t)
	var name string
	err := withAdmin(ctx, base, func(a *admin) error {
		if err := a.sweep(ctx); err != nil {
			return err
		}
		template, err := choose(ctx, a)
		if err != nil {
			return err
		}
		name, err = a.create(ctx, template)
		return err
	})
	if err != nil {
		t.Fatalf("create test database: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tearDownTime)
		defer cancel()
		err := withAdmin(ctx, base, func(a *admin) error {
			return a.drop(ctx, name)
		})
		if err != nil {
			t.Errorf("drop test database %s: %v", name, err)
		}
	})
	url, err := withDatabase(base, name)
	if err != nil {
		t.Fatalf("name test database: %v", err)
	}
	return url
}

// serverURL returns the URL of the maintenance database of the server to use,
// which stays up at least until t ends.
func serverURL(ctx context.Context, t testing.TB) string {
	t.Helper()
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return url
	}
	lease, err := postgres.Join(ctx, sharedName, postgres.Options{Fast: true, MaxConnections: maxConnections})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lease.Release(); err != nil {
			t.Error(err)
		}
	})
	return lease.URL("postgres")
}
