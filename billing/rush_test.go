package billing_test

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// rush is one worker that has many periods to close at once: its jobs run side by side over one pool, as the real
// worker's do, and look again a second after they found nothing.
type rush struct {
	*world
	accounts int64
	db       *pgxpool.Pool
	client   *billing.Client
	accepted accepted
	asked    asked
	held     held

	began        time.Time
	folded, shut time.Duration // when the last row was folded, and the last period closed
	whole        time.Duration
	cpu          time.Duration // of this process, the simulator's share included
}

func newRush(w *world, accounts int) *rush {
	w.Helper()
	r := &rush{world: w, accounts: int64(accounts)}
	cfg := w.db.Config()
	cfg.MaxConns = 16 // cmd/worker's
	cfg.ConnConfig.Tracer = &r.asked
	var err error
	r.db, err = pgxpool.NewWithConfig(w.Context(), cfg)
	require.NoError(w, err)
	w.Cleanup(r.db.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	w.Cleanup(transport.CloseIdleConnections)
	r.accepted.RoundTripper = transport
	r.client, err = billing.NewClient(billing.ClientConfig{
		Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: &r.accepted, Timeout: 20 * time.Second},
		EventsPerSecond: 950, ReadsPerSecond: 20,
	})
	require.NoError(w, err)
	w.b = r.biller()
	return r
}

func (r *rush) biller() *billing.Biller {
	b, err := billing.New(r.db, billing.Config{Stripe: r.client, Clock: r.sim, Logger: slog.New(slog.DiscardHandler), WebhookSecrets: []string{secret}})
	require.NoError(r, err)
	return b
}

// run folds, closes and reports until every account's report is accepted, while webhooks come in and are read.
func (r *rush) run() {
	r.Helper()
	ctx, stop := context.WithTimeout(r.Context(), 15*time.Minute)
	defer stop()
	before := cpuTime()
	r.began = time.Now()
	var main, rest sync.WaitGroup
	side, done := context.WithCancel(ctx)
	rest.Go(func() { r.deliver(side) })
	rest.Go(func() { r.read(label(side, "sync"), r.b.SyncDue) })
	rest.Go(func() { r.read(label(side, "invoices"), r.b.ReadDueInvoices) })
	rest.Go(func() { r.held.watch(side, r) })
	main.Go(func() { r.fold(label(ctx, "fold")) })
	main.Go(func() { r.close(label(ctx, "close")) })
	main.Go(func() { r.report(label(ctx, "report")) })
	main.Wait()
	r.whole, r.cpu = time.Since(r.began), cpuTime()-before
	done()
	rest.Wait()
	require.NoError(r, ctx.Err())
}

func (r *rush) fold(ctx context.Context) {
	for {
		n, err := usage.Fold(ctx, r.db, 5000)
		if err != nil {
			r.Errorf("fold: %v", err)
			return
		}
		if n == 0 {
			r.folded = time.Since(r.began)
			return
		}
	}
}

func (r *rush) close(ctx context.Context) {
	for closed := int64(0); closed <= r.accounts; { // the crowd, and the one before it
		n, err := r.b.Close(ctx)
		if err != nil {
			r.Errorf("close: %v", err)
			return
		}
		if closed += n; n == 0 {
			pause(ctx)
		}
	}
	r.shut = time.Since(r.began)
}

func (r *rush) report(ctx context.Context) {
	for r.accepted.count.Load() < r.accounts {
		before := r.accepted.count.Load()
		if err := r.b.Report(ctx); err != nil {
			r.Errorf("report: %v", err)
			return
		}
		if r.accepted.count.Load() == before {
			pause(ctx)
		}
	}
}

// deliver lets Stripe send its webhooks while reports go out.
func (r *rush) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := r.sim.DeliverWebhooks(ctx); err != nil || n == 0 {
			return
		}
	}
}

// read reads customers or invoices at the rate that their budgets allow.
func (r *rush) read(ctx context.Context, due func(context.Context, int) (int, error)) {
	for ctx.Err() == nil {
		n, err := due(ctx, 100)
		if _, ok := billing.Throttled(err); err != nil && !ok && ctx.Err() == nil {
			r.Errorf("read: %v", err)
			return
		}
		if err != nil || n == 0 {
			pause(ctx)
		}
	}
}

// serveSlowly answers so many webhooks a second.
func (w *world) serveSlowly(b *billing.Biller, perSecond int) {
	h, l := b.Webhook(), rate.NewLimiter(rate.Limit(perSecond), 1)
	w.hook.Serve(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if l.Wait(r.Context()) == nil {
			h.ServeHTTP(rw, r)
		}
	}))
}

// pause is a worker's second between two looks.
func pause(ctx context.Context) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// took is the time from the first to the last event accepted.
func (r *rush) took() time.Duration {
	return time.Duration(r.accepted.last.Load() - r.accepted.first.Load())
}

func (r *rush) tell() {
	first := time.Duration(r.accepted.first.Load() - r.began.UnixNano())
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }
	r.Logf("%d accounts: %s from the first to the last event accepted (%.0f/s), the first after %s; folded after %s, closed after %s, all stored after %s; %s of CPU time, the simulator's included",
		r.accounts, round(r.took()), float64(r.accounts)/r.took().Seconds(), round(first), round(r.folded), round(r.shut), round(r.whole), round(r.cpu))
	r.asked.tell(r)
	r.held.tell(r)
}

// bounded checks that what the worker holds does not grow with the number of accounts.
func (r *rush) bounded() {
	require.LessOrEqual(r, r.asked.most(), int64(500), "rows that a statement hands over")
	require.LessOrEqual(r, r.held.links, int64(2_000), "links between their claim and their outcome's storing")
	require.Less(r, slices.Max(r.held.heap), int64(32<<20), "bytes of the worker's part")
}

// accepted notes when meter events were accepted.
type accepted struct {
	http.RoundTripper
	count, first, last atomic.Int64
}

func (a *accepted) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.RoundTripper.RoundTrip(req)
	if err == nil && res.StatusCode == http.StatusOK && req.URL.Path == eventsPath {
		now := time.Now().UnixNano()
		a.count.Add(1)
		a.first.CompareAndSwap(0, now)
		a.last.Store(now)
	}
	return res, err
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
