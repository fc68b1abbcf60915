package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	runner "github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/edge/proxy"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/internal/tracing"
	"github.com/weirhq/weir/plans"
)

// Limits of a connection to the API. A client that is slower is cut off.
const (
	headerTime     = 5 * time.Second
	readTime       = 10 * time.Second
	writeTime      = 20 * time.Second // from the end of the header to the end of the answer
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 32 << 10 // forward-auth passes the client's headers on
)

// run is the process: it serves until ctx ends or a signal comes, then drains HTTP and stops the enforcer. It prints
// the address that it serves on, once it knows that it stays. Errors say what to do.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	o, err := parse(args, env, stdout, stderr)
	if errors.Is(err, errHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	logger := settings.Logger(stderr, o.LogFormat, o.LogLevel)
	traces, err := tracing.Start(ctx, env, "weir-enforcer", settings.Version(), logger)
	if err != nil {
		return err
	}
	defer traces.Stop(ctx)
	e, pool, err := newEnforcer(ctx, &o, logger, traces)
	if err != nil {
		return err
	}
	defer pool.Close()
	start := newStarter(e, logger)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler, err := api.New(api.Config{
		Enforcer: e, Registry: registry, Logger: logger, Token: o.apiToken, NotReady: start.why, Draft: o.DraftHeaders,
		Trusted: o.trusted(),
	})
	if err != nil {
		return err
	}
	l, err := settings.Listen(ctx, "WEIR_ADDR", o.Addr, "WEIR_API_TOKEN", o.apiToken != "")
	if err != nil {
		return err
	}
	where := fmt.Sprintf("enforcer: serving on %s\n", settings.Where(l))
	var g runner.Group
	serve(&g, l, newServer(handler, logger), start, o.StopTimeout, handler.Drain)
	if o.upstream != nil {
		front, err := settings.Listen(ctx, "WEIR_PROXY_ADDR", o.ProxyAddr, "", true) // it is there to be reached
		if err != nil {
			return errors.Join(err, l.Close())
		}
		serve(&g, front, newProxy(&o, e, logger), start, o.StopTimeout, func(context.Context) {})
		where += fmt.Sprintf("enforcer: proxying on %s to %s\n", settings.Where(front), o.upstream)
	}
	starting, cancel := context.WithCancel(ctx)
	announce := func() { _, _ = io.WriteString(stdout, where) }
	g.Add(func() error { return start.run(starting, announce) }, func(error) { cancel() })
	g.Add(runner.SignalHandler(ctx, os.Interrupt, syscall.SIGTERM))
	err = g.Run()
	if errors.Is(err, runner.ErrSignal) || ctx.Err() != nil {
		err = nil
	}
	if start.decides.Load() {
		logger.Info("stopping: usage is stored and leases go back")
	}
	ending, done := context.WithTimeout(context.WithoutCancel(ctx), o.StopTimeout)
	defer done()
	return errors.Join(err, e.Stop(ending))
}

// serve adds a server to the group. At the end it drains, takes no new calls and answers those that it has.
func serve(g *runner.Group, l net.Listener, server *http.Server, start *starter, stopTime time.Duration, drain func(context.Context)) {
	g.Add(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", settings.Where(l), err)
		}
		return nil
	}, func(error) {
		start.say("The enforcer stops.")
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		drain(ctx)
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close() // what is still open has had its time
		}
	})
}

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// newProxy serves clients: a body may be as large, and a stream may last as long, as the API behind allows. Who sends
// no header, or holds an idle connection, is cut off.
func newProxy(o *options, e *enforcer.Enforcer, logger *slog.Logger) *http.Server {
	s := newServer(proxy.New(proxy.Config{
		Enforcer: e, Upstream: o.upstream, Feature: o.Feature, Units: o.Units, AccountHeader: o.AccountHeader,
		Trusted: o.trusted(), GiveBack: o.GiveBack, Draft: o.DraftHeaders, Logger: logger,
	}), logger)
	s.ReadTimeout, s.WriteTimeout = 0, 0
	return s
}

func newEnforcer(ctx context.Context, o *options, logger *slog.Logger, traces *tracing.Tracing) (*enforcer.Enforcer, *pgxpool.Pool, error) {
	cfg := enforcer.Config{
		JournalDir: o.JournalDir, FlushInterval: o.FlushInterval, ListenURL: o.ListenURL, Logger: logger,
		Name: o.Name, MaxWait: o.MaxWait, Version: settings.Version(),
	}
	if o.Plans != "" {
		catalog, err := plans.Load(o.Plans)
		if err != nil {
			return nil, nil, err
		}
		for _, w := range catalog.Warnings() {
			logger.Warn("plan file", "file", o.Plans, "warning", w.String())
		}
		cfg.Plans = catalog
	}
	database, err := pgxpool.ParseConfig(o.DatabaseURL)
	if err != nil {
		return nil, nil, fmt.Errorf("DATABASE_URL can't be used: %w: write it as postgres://user:password@host:5432/name", err)
	}
	traces.Database(database)
	pool, err := pgxpool.NewWithConfig(ctx, database) // connects at the first use
	if err != nil {
		return nil, nil, fmt.Errorf("DATABASE_URL can't be used: %w: write it as postgres://user:password@host:5432/name", err)
	}
	e, err := enforcer.New(pool, &cfg)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return e, pool, nil
}
