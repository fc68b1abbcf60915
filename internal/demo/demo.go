// Package demo runs Weir small and whole: a private PostgreSQL server, the Stripe simulator and its clock, the worker
// and three enforcer processes behind real HTTP traffic. One billing period passes; then every number is compared with
// every other. It drives the programs that production runs and has no path of its own through them.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// Config says where the demo finds its parts.
type Config struct {
	Worker      string    // the worker's binary
	Enforcer    string    // the sidecar's binary
	DatabaseURL string    // an empty database to use; empty: a private server
	Stay        bool      // leave everything running at the end, until ctx ends
	Seed        uint64    // of the traffic
	Out         io.Writer // progress and result
	Color       bool      // ANSI colours in Out
}

// ErrDisagree is returned when the numbers do not agree.
var ErrDisagree = errors.New("the numbers do not agree")

const (
	nodes      = 3
	linkSecret = "a secret of the demo and of nothing else"
	stepBudget = 90 * time.Second // of anything that is waited for: longer than the worker waits before it tries again
)

// begins is the instant at which the demo's month begins.
func begins() time.Time { return time.Date(2027, time.January, 31, 10, 0, 0, 0, time.UTC) }

// world is everything that runs.
type world struct {
	cfg      Config
	say      *printer
	dir      string
	db       *pgxpool.Pool
	dbURL    string
	clock    *clock.Simulated
	stripe   *stripesim.Server
	stripeAt string
	ticking  sync.Mutex   // held while the simulator acts, and while the clock moves
	asking   sync.RWMutex // held by each request to the simulator, and while the clock moves
	hook     string       // the webhook's signing secret
	worker   *child
	enforcer []*child
	accounts []*account
	ends     time.Time    // of the last subscription's month
	repeated atomic.Int64 // calls that were answered 503
	closers  []func()
}

// Run runs the demo. It returns nil when all numbers agree, an error that wraps ErrDisagree when they do not, and any
// other error for a part that failed. What it started is stopped when it returns.
func Run(ctx context.Context, cfg Config) error {
	w := &world{cfg: cfg, say: newPrinter(cfg.Out, cfg.Color), clock: clock.NewSimulated(begins())}
	defer w.close()
	began := time.Now()
	steps := []struct {
		title string
		run   func(context.Context) error
	}{
		{"a private PostgreSQL", w.startDatabase},
		{"a Stripe to talk to", w.startStripe},
		{"the worker", w.startWorker},
		{"three enforcers", w.startEnforcers},
		{"customers subscribe", w.subscribe},
		{"traffic on three nodes", w.traffic},
		{"the month ends", w.endMonth},
		{"the invoice is finalized", w.finalize},
	}
	for _, s := range steps {
		w.say.step(s.title)
		if err := s.run(ctx); err != nil {
			w.say.failed()
			return fmt.Errorf("demo: %s: %w%s", s.title, err, w.lastWords())
		}
		w.say.done()
	}
	agree, err := w.compare(ctx)
	if err != nil {
		return fmt.Errorf("demo: compare: %w%s", err, w.lastWords())
	}
	w.say.verdict(agree, time.Since(began))
	if cfg.Stay {
		if err := w.invite(); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		<-ctx.Done()
	}
	if !agree {
		return fmt.Errorf("demo: %w", ErrDisagree)
	}
	return nil
}

func (w *world) onClose(f func()) { w.closers = append(w.closers, f) }

func (w *world) close() {
	for i := len(w.closers) - 1; i >= 0; i-- {
		w.closers[i]()
	}
}

// startDatabase starts a private server, or takes the one that was given.
func (w *world) startDatabase(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "weir-demo-")
	if err != nil {
		return err
	}
	w.dir = dir
	w.onClose(func() { _ = os.RemoveAll(dir) })
	w.dbURL = w.cfg.DatabaseURL
	if w.dbURL == "" {
		server, err := postgres.Start(ctx, postgres.Options{})
		if err != nil {
			return err
		}
		w.onClose(func() {
			stop, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = server.Stop(stop)
		})
		w.dbURL = server.URL("postgres")
		w.say.detail("private, in a folder of its own, with fsync on")
	}
	if w.db, err = pgxpool.New(ctx, w.dbURL); err != nil {
		return err
	}
	w.onClose(w.db.Close)
	if err := w.db.Ping(ctx); err != nil {
		return err
	}
	return w.refuseUsed(ctx)
}

// refuseUsed keeps the demo away from a database that somebody uses: it simulates the clock.
func (w *world) refuseUsed(ctx context.Context) error {
	var used bool
	if err := w.db.QueryRow(ctx, "SELECT to_regclass('weir.installation') IS NOT NULL").Scan(&used); err != nil {
		return err
	}
	if used {
		return errors.New("the database holds a weir schema already, and the demo simulates the clock: name an empty database")
	}
	return nil
}

// setClock moves the one clock that everybody shares: the simulator's, and the database's, which the worker and the nodes
// follow within a second. Until they do, the simulator neither acts nor answers: its webhooks would be messages from the
// future, and the date of its answers would tell the worker that the clocks differ, so that it stops sending.
func (w *world) setClock(ctx context.Context, at time.Time) error {
	w.ticking.Lock()
	defer w.ticking.Unlock()
	w.asking.Lock()
	defer w.asking.Unlock()
	select { // the last answer is read before the clock moves
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	w.clock.Set(at)
	if err := usage.SimulateClock(ctx, w.db, w.clock.Now()); err != nil {
		return err
	}
	err := until(ctx, func() (bool, error) {
		nodes, err := usage.Nodes(ctx, w.db)
		if err != nil {
			return false, err
		}
		for _, n := range nodes {
			if n.State == "live" && n.Sealed.Before(at) {
				return false, nil
			}
		}
		now, err := w.worker.businessTime(ctx)
		return !now.Before(at), err
	})
	if err != nil {
		return fmt.Errorf("the clock is not followed: %w", err)
	}
	return nil
}

// startWorker migrates and starts the worker.
func (w *world) startWorker(ctx context.Context) error {
	plans := filepath.Join(w.dir, "plans.yaml")
	if err := os.WriteFile(plans, []byte(planFile), 0o600); err != nil {
		return err
	}
	env := []string{
		"DATABASE_URL=" + w.dbURL, "WEIR_LOG_LEVEL=warn", "WEIR_PLANS=" + plans, "WEIR_ADDR=127.0.0.1:0", "STRIPE_API_KEY=" + w.stripe.APIKey(),
		"STRIPE_API_BASE=" + w.stripeAt, "STRIPE_WEBHOOK_SECRET=" + w.hook, "WEIR_ADMIN_TOKEN=token-of-the-demo", "WEIR_SECRET=" + linkSecret,
	}
	if err := runChild(ctx, w.cfg.Worker, []string{"migrate"}, env); err != nil {
		return err
	}
	if err := usage.SimulateClock(ctx, w.db, w.clock.Now()); err != nil {
		return err
	}
	var err error
	if w.worker, err = startChild(ctx, "worker", w.cfg.Worker, []string{"serve"}, env, filepath.Join(w.dir, "worker.log")); err != nil {
		return err
	}
	w.onClose(w.worker.stop)
	if err := w.worker.ready(ctx); err != nil { // it serves before it has published the plan file
		return err
	}
	w.say.detail("serving on %s", w.worker.url)
	w.stripe.AddWebhook(stripesim.Webhook{URL: w.worker.url + "/stripe/webhook", Secret: w.hook})
	return nil
}

func (w *world) startEnforcers(ctx context.Context) error {
	for i := range nodes {
		env := []string{
			"DATABASE_URL=" + w.dbURL, "WEIR_ADDR=127.0.0.1:0", "WEIR_JOURNAL_DIR=" + filepath.Join(w.dir, fmt.Sprintf("journal-%d", i+1)),
		}
		c, err := startChild(ctx, fmt.Sprintf("enforcer %d", i+1), w.cfg.Enforcer, nil, env, filepath.Join(w.dir, fmt.Sprintf("enforcer-%d.log", i+1)))
		if err != nil {
			return err
		}
		w.enforcer = append(w.enforcer, c)
		w.onClose(c.stop)
	}
	for _, c := range w.enforcer {
		if err := c.ready(ctx); err != nil {
			return err
		}
	}
	return nil
}

// lastWords quotes the end of the logs of what runs, for a demo that failed.
func (w *world) lastWords() string {
	var text string
	for _, c := range append([]*child{w.worker}, w.enforcer...) {
		if c != nil {
			text += c.tail()
		}
	}
	return text
}
