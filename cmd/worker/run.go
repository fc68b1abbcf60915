package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/internal/tracing"
)

// Exit codes, for scripts and monitors.
const (
	exitFailed   = 1 // the command could not do its work
	exitUsage    = 2 // flags, environment or a file are wrong
	exitDisagree = 3 // it did, and found what a person must look at
)

// commands is the command line.
type commands struct {
	globals

	Serve   serveCmd   `cmd:"" default:"withargs" help:"Run the worker: jobs, webhook endpoint, pages. The default."`
	Migrate migrateCmd `cmd:"" help:"Bring the database to this program's schema version."`
	Demo    demoCmd    `cmd:"" help:"Run everything small on this machine: a month in under a minute, and every number compared."`
	Plans   plansCmd   `cmd:"" help:"Check, push and publish the plan file."`

	Doctor doctorCmd `cmd:"" help:"Look at everything an operator would look at, and say what to do next."`

	Usage    usageCmd    `cmd:"" help:"Look at what accounts used."`
	Adjust   adjustCmd   `cmd:"" help:"Correct what was counted for an account: a refund, or units that were missed."`
	Override overrideCmd `cmd:"" help:"Set what was negotiated with an account: its quota, its maximum, its spending cap."`
	Link     linkCmd     `cmd:"" help:"Print a link to an account's usage page."`
	Shadow   shadowCmd   `cmd:"" help:"Let an account pass whatever its plan says, and record it: for a first rollout."`
	Map      mapCmd      `cmd:"" help:"Map an account to its Stripe customer."`
	Forget   forgetCmd   `cmd:"" help:"Take away what says who an account was. What was counted and billed stays."`
	Settle   settleCmd   `cmd:"" help:"Report all that an account used, before its subscription is changed or cancelled."`

	Sync        syncCmd        `cmd:"" help:"Read subscriptions at Stripe again: of one account, or of all that changed."`
	Reconcile   reconcileCmd   `cmd:"" help:"Compare Stripe's meter summaries with the ledger."`
	CloseReport closeReportCmd `cmd:"" name:"close-report" help:"Print the books of a month, and where they don't agree."`
	Late        lateCmd        `cmd:"" help:"Look at usage that missed its invoice, and decide about it."`
	Replay      replayCmd      `cmd:"" help:"Try again what waited for a fault to be mended."`
	Restored    restoredCmd    `cmd:"" help:"Say that the database was restored, or that reports may go on."`
	Findings    findingsCmd    `cmd:"" help:"List what waits for a person."`
	Nodes       nodesCmd       `cmd:"" help:"List the enforcers that run or ran, and give up those that won't come back."`

	Version versionCmd `cmd:"" help:"Print the version."`
}

// globals are the flags of every command.
type globals struct {
	DatabaseURL     string `name:"database-url" from:"DATABASE_URL" placeholder:"URL" help:"The database; with a password in it only by $DATABASE_URL or --database-url-file."`
	DatabaseURLFile string `name:"database-url-file" from:"DATABASE_URL_FILE" placeholder:"FILE" help:"File with the database's URL ($DATABASE_URL_FILE)."`
	LogFormat       string `name:"log-format" from:"WEIR_LOG_FORMAT" enum:"text,json" default:"text" help:"text or json ($WEIR_LOG_FORMAT)."`
	JSON            bool   `name:"json" help:"Print JSON on standard output."`
	LogLevel        string `name:"log-level" from:"WEIR_LOG_LEVEL" enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error ($WEIR_LOG_LEVEL)."`
}

// call is what a command runs with.
type call struct {
	globals
	ctx    context.Context
	args   []string
	env    func(string) string
	out    io.Writer
	errs   io.Writer
	logger *slog.Logger
	traces *tracing.Tracing // nil: none
}

// usageError is a fault of the caller: exit code 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// findings is an outcome that a person must look at: exit code 3.
type findings struct{ error }

func (e findings) Unwrap() error { return e.error }

func exitCode(err error) int {
	var u usageError
	var f findings
	switch {
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &f):
		return exitDisagree
	}
	return exitFailed
}

// newParser reads command lines into c. helped is set once help was printed.
func newParser(c *commands, env func(string) string, stdout, stderr io.Writer, helped *bool) (*kong.Kong, error) {
	return kong.New(c,
		kong.Name("worker"),
		kong.Description("Weir's back office: folds usage, closes periods, reports overage to Stripe, keeps plans in sync.\n\n"+
			"Exit codes: 0 done, 1 failed, 2 wrong flags or files, 3 done and something needs a person."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { *helped = true }),
		kong.Resolvers(settings.Environment(env)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
}

// run is the program. It returns when its command is done, or ctx ends.
func run(ctx context.Context, args []string, env func(string) string, stdout, stderr io.Writer) error {
	var c commands
	helped := false
	parser, err := newParser(&c, env, stdout, stderr, &helped)
	if err != nil {
		return fmt.Errorf("read the command line: %w", err)
	}
	parsed, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return usageError{fmt.Errorf("%w: `worker --help` lists commands and flags", err)}
	}
	wrong := errors.Join(
		settings.NoPassword("--database-url", "DATABASE_URL", c.DatabaseURL, args),
		settings.FromFile(&c.DatabaseURL, c.DatabaseURLFile, "DATABASE_URL"),
	)
	if wrong != nil {
		return usageError{wrong}
	}
	return stoppedShort(ctx, parsed.Run(&call{
		globals: c.globals, ctx: ctx, args: args, env: env, out: stdout, errs: stderr,
		logger: settings.Logger(stderr, c.LogFormat, c.LogLevel),
	}))
}

// stoppedShort tells what failed because the program was told to stop from what failed by itself, and adds what to do.
func stoppedShort(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		return fmt.Errorf("%w: it was told to stop before it was done; run it again to go on", err)
	}
	return mendStripe(err)
}

// leastConns is how many connections the jobs and pages of a worker may have where the URL says nothing: a machine's
// few processors say nothing of how long they wait for Stripe and the database.
const leastConns = 16

// connectTime is how long a database may take to answer at all.
const connectTime = 10 * time.Second

// open connects to the database.
func (c *call) open() (*pgxpool.Pool, error) {
	if c.DatabaseURL == "" {
		return nil, usageError{errors.New("DATABASE_URL is not set: give it the database's URL, postgres://user:password@host:5432/name")}
	}
	cfg, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return nil, usageError{fmt.Errorf("DATABASE_URL can't be used: %w: write it as postgres://user:password@host:5432/name", err)}
	}
	if !strings.Contains(c.DatabaseURL, "pool_max_conns") {
		cfg.MaxConns = max(cfg.MaxConns, leastConns)
	}
	c.traces.Work(cfg)
	pool, err := pgxpool.NewWithConfig(c.ctx, cfg)
	if err != nil {
		return nil, usageError{fmt.Errorf("DATABASE_URL can't be used: %w", err)}
	}
	ctx, cancel := context.WithTimeout(c.ctx, connectTime)
	defer cancel()
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, settings.Mend(fmt.Errorf("connect to the database: %w", err))
	}
	return pool, nil
}

// openMigrated connects to a database whose schema fits this program.
func (c *call) openMigrated() (*pgxpool.Pool, error) {
	pool, err := c.open()
	if err != nil {
		return nil, err
	}
	if err := schema.Check(c.ctx, pool); err != nil {
		pool.Close()
		return nil, settings.Mend(err)
	}
	return pool, nil
}

type versionCmd struct{}

// Run prints the version.
func (versionCmd) Run(c *call) error {
	return c.print(map[string]any{"version": settings.Version(), "schema": schema.Version()}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "weir worker %s, schema version %d\n", settings.Version(), schema.Version())
		return err
	})
}
