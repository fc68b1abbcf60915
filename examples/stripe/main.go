// Command stripe is a Stripe on this machine, for a first look at a plan file: the repository's simulator, which sells the
// file's plans and subscribes accounts to them.
//
//	go run ./examples/stripe -plans plans.yaml acme=pro
//
// It prints how the worker is started beside it. Time is real, so no month ends; worker demo shows one that does. It keeps
// nothing: take an empty database for each run. Each plan's price is 49.00 a month here.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/plans"
)

const (
	key    = "sk_test_simulator"
	secret = "whsec_of_the_simulator"
)

func main() {
	cfg := config{out: os.Stdout}
	flag.StringVar(&cfg.addr, "addr", "127.0.0.1:12111", "host:port to serve on")
	flag.StringVar(&cfg.file, "plans", "testdata/plans.yaml", "plan file")
	flag.StringVar(&cfg.hook, "webhook", "http://127.0.0.1:8788/stripe/webhook", "the worker's webhook endpoint")
	verbose := flag.Bool("v", false, "log each call and each delivery")
	flag.Usage = func() {
		_, _ = fmt.Fprintf(os.Stderr, "Usage: stripe [flags] ACCOUNT=PLAN…\n\nSells the plan file's plans and subscribes accounts to them.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	cfg.log = slog.New(slog.DiscardHandler)
	if *verbose {
		cfg.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	cfg.wanted = flag.Args()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, cfg)
	stop()
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "stripe: %s\n", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

type config struct {
	addr, file, hook string
	wanted           []string // ACCOUNT=PLAN
	out              io.Writer
	log              *slog.Logger
}

type now struct{}

func (now) Now() time.Time { return time.Now() }

// run serves until ctx ends.
func run(ctx context.Context, cfg config) error {
	catalog, err := plans.Load(cfg.file)
	if err != nil {
		return err
	}
	wanted, err := read(catalog, cfg.wanted)
	if err != nil {
		return err
	}
	sim := stripesim.New(stripesim.Config{
		Clock: now{}, APIKey: key, Webhooks: []stripesim.Webhook{{URL: cfg.hook, Secret: secret}},
		RetryDelays: slices.Repeat([]time.Duration{time.Second}, 24*60*60), // the worker may start later
		Logger:      cfg.log,
	})
	defer sim.Close()
	l, err := net.Listen("tcp", cfg.addr)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: sim, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { _ = server.Close() }()
	s := shop{base: "http://" + l.Addr().String(), http: &http.Client{Timeout: 10 * time.Second}}
	if err := s.open(ctx, cfg, catalog, wanted); err != nil {
		return err
	}
	ticked := make(chan error, 1)
	go func() { ticked <- sim.Run(ctx, 100*time.Millisecond) }()
	select {
	case err = <-served:
	case err = <-ticked:
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// open sells the plans, subscribes the accounts, and says how the worker gets to know them.
func (s *shop) open(ctx context.Context, cfg config, catalog *plans.Catalog, wanted []subscription) error {
	if err := s.sell(ctx, catalog); err != nil {
		return err
	}
	for _, w := range wanted {
		customer, err := s.subscribe(ctx, w, catalog)
		if err != nil {
			return fmt.Errorf("subscribe %s to %s: %w", w.account, w.plan.Name, err)
		}
		if _, err := fmt.Fprintf(cfg.out, "%s is customer %s, on plan %s\n", w.account, customer, w.plan.Name); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(cfg.out, "A Stripe is at %s. The worker finds it by\n\n"+
		"  export STRIPE_API_BASE=%s STRIPE_API_KEY=%s STRIPE_WEBHOOK_SECRET=%s\n"+
		"  bin/worker serve --plans %s\n\n", s.base, s.base, key, secret, cfg.file)
	return err
}

// subscription is what an account is to get.
type subscription struct {
	account string
	plan    plans.Plan
}
