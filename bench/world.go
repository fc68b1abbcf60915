package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const planFile = `
currency: usd
default_plan: free
features: {events: {}, tokens: {}}
plans: {free: {quota: {events: unlimited, tokens: 10}, on_exceeded: block}}
`

// world is a durable PostgreSQL server of one's own, and what runs on it.
type world struct {
	ctx     context.Context
	server  *postgres.Server
	dir     string
	made    atomic.Int64
	mu      sync.Mutex
	closers []func()

	atRandom float64 // nanoseconds of a Consume by names for one of keyCount accounts; 0: not measured
}

func newWorld(ctx context.Context) (*world, error) {
	server, err := postgres.Start(ctx, postgres.Options{MaxConnections: 200})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "weir-bench-")
	if err != nil {
		return nil, err
	}
	w := &world{ctx: ctx, server: server, dir: dir}
	w.onClose(func() { _ = os.RemoveAll(dir) })
	w.onClose(func() {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		if err := server.Stop(stop); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	})
	return w, nil
}

func (w *world) onClose(f func()) {
	w.mu.Lock()
	w.closers = append(w.closers, f)
	w.mu.Unlock()
}

func (w *world) close() {
	for i := len(w.closers) - 1; i >= 0; i-- {
		w.closers[i]()
	}
}

// database makes a migrated database and returns a pool on it.
func (w *world) database() (*pgxpool.Pool, error) {
	admin, err := pgxpool.New(w.ctx, w.server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	name := fmt.Sprintf("bench_%d", w.made.Add(1))
	if _, err := admin.Exec(w.ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	if err := schematest.Migrate(w.ctx, w.server.URL(name)); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(w.server.URL(name))
	if err != nil {
		return nil, err
	}
	config.MaxConns = 16 // more than any section works with at once
	pool, err := pgxpool.NewWithConfig(w.ctx, config)
	if err == nil {
		w.onClose(pool.Close)
	}
	return pool, err
}

// node starts an enforcer on the database, with a plan file where there is none published.
func (w *world) node(pool *pgxpool.Pool, file string) (*enforcer.Enforcer, error) {
	e, err := w.left(pool, file)
	if err == nil {
		w.onClose(func() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 20*time.Second)
			defer cancel()
			if err := e.Stop(stop); err != nil {
				fmt.Fprintln(os.Stderr, "bench:", err)
			}
		})
	}
	return e, err
}

// left starts an enforcer that is not stopped at the end.
func (w *world) left(pool *pgxpool.Pool, file string) (*enforcer.Enforcer, error) {
	catalog, err := plans.Parse([]byte(file))
	if err != nil {
		return nil, err
	}
	e, err := enforcer.New(pool, &enforcer.Config{
		Plans: catalog, JournalDir: filepath.Join(w.dir, fmt.Sprint("journal-", w.made.Add(1))), MaxWait: 10 * time.Second,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	if err := e.Start(w.ctx); err != nil {
		return nil, err
	}
	return e, nil
}
