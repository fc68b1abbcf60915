package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	runner "github.com/oklog/run"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// stripeFlags say how Stripe is reached. Secrets come by environment or file.
type stripeFlags struct {
	StripeKeyFile     string `name:"stripe-key-file" from:"STRIPE_API_KEY_FILE" placeholder:"FILE" help:"File with the Stripe key ($STRIPE_API_KEY_FILE, or $STRIPE_API_KEY itself)."`
	WebhookSecretFile string `name:"webhook-secret-file" from:"STRIPE_WEBHOOK_SECRET_FILE" placeholder:"FILE" help:"File with the webhook's signing secrets, separated by commas ($STRIPE_WEBHOOK_SECRET_FILE, or $STRIPE_WEBHOOK_SECRET itself)."`
	StripeBase        string `name:"stripe-base" from:"STRIPE_API_BASE" placeholder:"URL" help:"Stripe's address, for tests ($STRIPE_API_BASE)."`
	NoStripe          bool   `name:"no-stripe" help:"Run without Stripe on purpose: overage is recorded and nothing is reported."`

	key     string
	secrets []string
}

func (s *stripeFlags) read(env func(string) string) error {
	s.key = env("STRIPE_API_KEY")
	secrets := env("STRIPE_WEBHOOK_SECRET")
	err := errors.Join(
		settings.FromFile(&s.key, s.StripeKeyFile, "STRIPE_API_KEY"),
		settings.FromFile(&secrets, s.WebhookSecretFile, "STRIPE_WEBHOOK_SECRET"),
	)
	for one := range strings.SplitSeq(secrets, ",") {
		if one = strings.TrimSpace(one); one != "" {
			s.secrets = append(s.secrets, one)
		}
	}
	if s.NoStripe && s.key != "" {
		err = errors.Join(err, errors.New("--no-stripe and a Stripe key exclude each other: unset STRIPE_API_KEY"))
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// client makes the Stripe client, or nil without a key.
func (s *stripeFlags) client() (*billing.Client, error) {
	if s.key == "" {
		return nil, nil //nolint:nilnil // billing's way to run without Stripe
	}
	client, err := billing.NewClient(billing.ClientConfig{Key: s.key, BaseURL: s.StripeBase})
	if err != nil {
		return nil, usageError{fmt.Errorf("STRIPE_API_KEY: %w", err)}
	}
	return client, nil
}

type serveCmd struct {
	planFile
	stripeFlags
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
	if err := s.read(c.env); err != nil {
		return err
	}
	if catalog.BillsOverage() && s.key == "" && !s.NoStripe {
		return usageError{errors.New("a plan bills overage and no Stripe key is set: set STRIPE_API_KEY, or say --no-stripe to record overage and report nothing")}
	}
	if s.key != "" && len(s.secrets) == 0 {
		return usageError{errors.New("STRIPE_WEBHOOK_SECRET is not set: it is the signing secret of the webhook endpoint (whsec_…), shown where the endpoint was made")}
	}
	if s.Migrate {
		if err := (migrateCmd{}).Run(c); err != nil {
			return err
		}
	}
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	o, err := s.prepare(c, pool, catalog)
	if err != nil {
		return err
	}
	return o.serve(c, s)
}

// office is a worker that is ready to serve.
type office struct {
	pool   *pgxpool.Pool
	clock  *clock.Database
	biller *billing.Biller
	jobs   *jobs.Worker
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
	o := &office{pool: pool, clock: clock.NewDatabase(func(ctx context.Context) (time.Time, error) { return usage.Now(ctx, pool) })}
	if err := o.clock.Sync(c.ctx); err != nil {
		return nil, err
	}
	number, changed, err := usage.Publish(c.ctx, pool, catalog, actor(), o.clock.Now())
	if err != nil {
		return nil, err
	}
	if changed {
		c.logger.Info("published the plan file", "catalog", number, "file", s.Plans)
	}
	enqueuer, err := jobs.NewEnqueuer(pool)
	if err != nil {
		return nil, err
	}
	o.biller, err = billing.New(pool, billing.Config{
		Stripe: client, Clock: o.clock, Logger: c.logger, Enqueue: enqueuer.Enqueue, WebhookSecrets: s.secrets,
	})
	if err != nil {
		return nil, err
	}
	o.jobs, err = jobs.New(jobs.Config{DB: pool, Biller: o.biller, Clock: o.clock, Logger: c.logger, ListenURL: s.ListenURL})
	return o, err
}

// Limits of a connection. A client that is slower is cut off.
const (
	headerTime     = 5 * time.Second
	readTime       = 15 * time.Second
	writeTime      = 30 * time.Second
	idleTime       = 2 * time.Minute
	maxHeaderBytes = 32 << 10
)

// serve runs HTTP, the clock and the jobs until ctx ends or one of them fails.
func (o *office) serve(c *call, s *serveCmd) error {
	l, err := settings.Listen(c.ctx, "WEIR_ADDR", s.Addr, "WEIR_ADMIN_TOKEN", c.env("WEIR_ADMIN_TOKEN") != "")
	if err != nil {
		return usageError{err}
	}
	server := &http.Server{
		Handler: o.routes(), ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaderBytes, BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(c.ctx) },
	}
	var g runner.Group
	g.Add(func() error { return server.Serve(l) }, func(error) {
		end, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), s.StopTimeout)
		defer cancel()
		_ = server.Shutdown(end)
	})
	ticking, stopTicking := context.WithCancel(c.ctx)
	g.Add(func() error { o.clock.Run(ticking); return nil }, func(error) { stopTicking() })
	working, stopWorking := context.WithCancel(c.ctx)
	g.Add(func() error {
		if err := o.jobs.Start(working); err != nil {
			return err
		}
		<-working.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), s.StopTimeout)
		defer cancel()
		return o.jobs.Stop(end)
	}, func(error) { stopWorking() })
	_, _ = fmt.Fprintf(c.out, "worker: serving on %s\n", settings.Where(l))
	err = g.Run()
	if errors.Is(err, http.ErrServerClosed) || c.ctx.Err() != nil {
		return nil
	}
	return err
}

// routes are the worker's pages and endpoints.
func (o *office) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /stripe/webhook", o.biller.Webhook())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", o.ready)
	return mux
}

// readiness is the answer of /readyz. It names no secrets: whoever reaches the port may read it.
type readiness struct {
	Ready  bool      `json:"ready"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time"` // business time, as this process has it
}

// ready answers 200 while the database does.
func (o *office) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	answer := readiness{Ready: true, Time: o.clock.Now()}
	status := http.StatusOK
	if err := o.pool.Ping(ctx); err != nil {
		answer.Ready, answer.Reason, status = false, "the database does not answer", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer)
}
