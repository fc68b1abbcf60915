package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	runner "github.com/oklog/run"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/metrics"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/internal/tracing"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
	"github.com/weirhq/weir/web/embed"
)

type serveCmd struct {
	planFile
	stripeFlags
	webhookFlags
	adminFlags
	pageFlags
	consoleFlags
	warnFlags
	NoStripe    bool          `name:"no-stripe" help:"Run without Stripe on purpose: overage is recorded and nothing is reported."`
	Addr        string        `name:"addr" from:"WEIR_ADDR" default:"127.0.0.1:8788" help:"host:port, or a Unix socket's path, to serve on ($WEIR_ADDR)."`
	ListenURL   string        `name:"listen-url" from:"WEIR_LISTEN_URL" placeholder:"URL" help:"Direct database connection for LISTEN, where the other goes through a transaction pooler ($WEIR_LISTEN_URL)."`
	Migrate     bool          `help:"Migrate the database before serving."`
	StopTimeout time.Duration `name:"stop-timeout" from:"WEIR_STOP_TIMEOUT" default:"30s" help:"How long a stop waits for running jobs ($WEIR_STOP_TIMEOUT)."`
}

// Run serves until ctx ends.
func (s *serveCmd) Run(c *call) error {
	catalog, err := s.load(c)
	if err != nil {
		return err
	}
	if err := errors.Join(s.stripeFlags.read(c.env), s.webhookFlags.read(c.env), s.adminFlags.read(c.env), s.readPages(c.env), s.readWarnings(c.env)); err != nil {
		return usageError{err}
	}
	if s.StopTimeout < time.Second || s.StopTimeout > time.Hour {
		return usageError{fmt.Errorf("--stop-timeout is %s: use 1s to 1h", s.StopTimeout)}
	}
	if s.NoStripe && s.key != "" {
		return usageError{errors.New("--no-stripe and a Stripe key exclude each other: unset STRIPE_API_KEY")}
	}
	if catalog.BillsOverage() && s.key == "" && !s.NoStripe {
		return usageError{errors.New("a plan bills overage and no Stripe key is set: set STRIPE_API_KEY, or say --no-stripe to record overage and report nothing")}
	}
	for _, one := range s.secrets {
		if err := settings.SigningSecret(one); err != nil {
			return usageError{fmt.Errorf("STRIPE_WEBHOOK_SECRET: %w", err)}
		}
	}
	if s.key != "" && len(s.secrets) == 0 {
		return usageError{errors.New("STRIPE_WEBHOOK_SECRET is not set: it is the signing secret of the webhook endpoint (whsec_…), shown where the endpoint was made")}
	}
	if c.traces, err = tracing.Start(c.ctx, c.env, "weir-worker", settings.Version(), c.logger); err != nil {
		return usageError{err}
	}
	s.watch = c.traces.Stripe
	defer c.traces.Stop(c.ctx)
	return s.serve(c, catalog)
}

// office is a worker that is ready to serve.
type office struct {
	desk
	elements *embed.Elements

	jobs    *jobs.Worker
	admin   *admin
	metrics *metrics.HTTP
	pages   *web.Pages
	console *console
	working atomic.Bool // the jobs run
}

func (s *serveCmd) prepare(c *call, pool *pgxpool.Pool, catalog *plans.Catalog) (*office, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	inst, err := usage.ReadInstallation(c.ctx, pool)
	if err != nil {
		return nil, err
	}
	if inst.Simulated && client != nil && client.Live() {
		return nil, usageError{errors.New("this database simulates its clock, as demos and tests do, and the Stripe key is live: use another database or a test key")}
	}
	o := &office{desk: desk{pool: pool, clock: databaseClock(pool)}}
	if err := o.bill(c, client, s.secrets); err != nil {
		return nil, err
	}
	if err := o.publish(c, catalog, s.Plans); err != nil {
		return nil, err
	}
	o.admin = &admin{token: newToken(s.token), biller: o.biller, log: c.logger}
	o.metrics, err = metrics.NewHTTP(metrics.New(o.state, c.logger))
	if err != nil {
		return nil, err
	}
	o.elements = s.elements
	o.pages, err = web.New(web.Config{
		DB: pool, Clock: o.clock, Logger: c.logger, Links: s.links, AdminToken: s.token, PublicURL: s.PublicURL, FrameAncestors: s.FrameAncestors,
	})
	if err != nil {
		return nil, usageError{err}
	}
	if o.console, err = s.consoleFlags.open(c, o, &s.adminFlags, &s.linkFlags); err != nil {
		return nil, usageError{err}
	}
	courier, err := s.courier(c, &o.desk, s.links, s.PublicURL)
	if err != nil {
		return nil, err
	}
	o.jobs, err = jobs.New(jobs.Config{DB: pool, Biller: o.biller, Clock: o.clock, Logger: c.logger, ListenURL: s.ListenURL, Warnings: courier, Middleware: traced(c.traces)})
	return o, err
}

// state reads how the work stands.
func (o *office) state(ctx context.Context) (metrics.State, error) {
	var s metrics.State
	var errs [3]error
	s.Usage, errs[0] = usage.ReadHealth(ctx, o.pool, o.clock.Now())
	s.Billing, errs[1] = books.ReadHealth(ctx, o.pool, o.clock.Now())
	s.Jobs, errs[2] = jobs.Loads(ctx, o.pool)
	return s, errors.Join(errs[:]...)
}

// Limits of a connection. A client that is slower is cut off.
const (
	headerTime     = 5 * time.Second
	readTime       = 15 * time.Second
	writeTime      = 30 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// serve runs HTTP, the clock and the jobs until ctx ends or one of them fails. HTTP is there from the first moment on,
// so that probes tell a worker that waits for its database from one that is dead.
func (s *serveCmd) serve(c *call, catalog *plans.Catalog) error {
	l, err := settings.Listen(c.ctx, "WEIR_ADDR", s.Addr, "WEIR_ADMIN_TOKEN", s.token != "")
	if err != nil {
		return usageError{err}
	}
	front, err := newEntrance(c, func() {
		where := settings.Where(l)
		said := fmt.Sprintf("worker: serving on %s\n", where)
		if s.token != "" && strings.HasPrefix(where, "http") {
			said += fmt.Sprintf("worker: the operators' pages are at %s/admin/\n", where)
		}
		_, _ = io.WriteString(c.out, said)
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server := &http.Server{
		Handler: front, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(c.ctx) },
	}
	var g runner.Group
	working, stopWorking := context.WithCancel(c.ctx)
	g.Add(func() error { return server.Serve(l) }, func(error) {
		stopWorking() // not ready from now on, and no start that is under way opens
		end, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), s.StopTimeout)
		defer cancel()
		if server.Shutdown(end) != nil {
			_ = server.Close() // what is still open has had its time
		}
	})
	closeDatabase := func() {}
	g.Add(func() error {
		o, err := s.start(working, c, catalog, front)
		if err != nil {
			return err
		}
		closeDatabase = o.pool.Close // after the last call is answered
		server.RegisterOnShutdown(o.pages.Close)
		return o.work(working, front, s.StopTimeout)
	}, func(error) { stopWorking() })
	err = g.Run()
	closeDatabase()
	if c.ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// work opens the entrance, follows the clock and waits for ctx. The jobs run already; when it returns, whyever, they
// have ended, and the database may be closed.
func (o *office) work(ctx context.Context, front *entrance, stopTimeout time.Duration) error {
	err := o.console.start(ctx)
	if err == nil {
		o.working.Store(true)
		front.open(o.routes())
		o.clock.Run(ctx)
		o.working.Store(false)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, o.jobs.Stop(end))
}
