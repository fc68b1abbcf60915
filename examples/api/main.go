// Command api is an API whose customers have rate limits and quotas: three lines around its handlers.
//
//	DATABASE_URL=postgres://… go run ./examples/api -plans testdata/plans.yaml
//	curl -i -H 'X-Api-Key: key-of-acme' http://127.0.0.1:3000/hello
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/plans"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:3000", "host:port to serve on")
	file := flag.String("plans", "testdata/plans.yaml", "plan file")
	journal := flag.String("journal", "", "where counters survive the process; default: the user's state folder")
	flag.Parse()
	catalog, err := plans.Load(*file)
	if err != nil {
		slog.Error("the plan file can't be used", "error", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, os.Getenv("DATABASE_URL"), *addr, &enforcer.Config{Plans: catalog, JournalDir: *journal}, func(where string) { slog.Info("serving", "on", "http://"+where) })
	stop()
	if err != nil {
		slog.Error("the example ends", "error", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// run serves until ctx ends. serving is told the address.
func run(ctx context.Context, database, addr string, cfg *enforcer.Config, serving func(addr string)) (err error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	weir, err := enforcer.New(pool, cfg)
	if err != nil {
		return err
	}
	if err := weir.Start(ctx); err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = errors.Join(err, weir.Stop(ending))
	}()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	serving(l.Addr().String())
	server := &http.Server{Handler: routes(weir), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ending)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// accounts stands for whatever knows your customers' keys.
var accounts = map[string]string{"key-of-acme": "acme", "key-of-beta": "beta"}

func routes(weir *enforcer.Enforcer) http.Handler {
	account := func(r *http.Request) string { return accounts[r.Header.Get("X-Api-Key")] }

	// One unit for each request; a request that fails by our own fault costs nothing.
	counted := weir.Middleware(enforcer.MiddlewareConfig{
		Account: account, Feature: enforcer.Always("events"), GiveBack: enforcer.Failed,
	})
	// A thousand units are set aside; what the work took is counted.
	settled := weir.Middleware(enforcer.MiddlewareConfig{
		Account: account, Feature: enforcer.Always("events"), Units: enforcer.Always[int64](1000), Settle: true, NeedAccount: true,
	})

	mux := http.NewServeMux()
	mux.Handle("GET /hello", counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "hello")
	})))
	mux.Handle("GET /fail", counted(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "our fault", http.StatusInternalServerError)
	})))
	mux.Handle("POST /words", settled(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
		if err := r.ParseForm(); err != nil {
			enforcer.ReportUnits(r.Context(), 0)
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		words := len(strings.Fields(r.Form.Get("text")))
		enforcer.ReportUnits(r.Context(), int64(words))
		_, _ = fmt.Fprintln(w, words, "words")
	})))
	return mux
}
