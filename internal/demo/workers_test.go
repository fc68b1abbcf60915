package demo

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/stripesim"
)

// Two workers and three nodes; the schema goes one version ahead while nodes are asked and a node and a worker are
// started on it; one worker is killed while Stripe holds the answers to its final reports, the other one was frozen until
// then. Nothing is lost, and no invoice is wrong. It runs inside the package, with the demo's own month.
func TestAWorkerIsKilledDuringCloseAndTheSchemaRunsAhead(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dir := t.TempDir()
	for _, name := range []string{"worker", "enforcer"} {
		out, err := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, name), "github.com/weirhq/weir/cmd/"+name).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	w := &world{
		cfg: Config{Worker: filepath.Join(dir, "worker"), Enforcer: filepath.Join(dir, "enforcer"), Seed: 11, Out: io.Discard},
		say: newPrinter(io.Discard, false), clock: clock.NewSimulated(begins()),
	}
	t.Cleanup(w.close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(w.lastWords(), w.open(t))
		}
	})
	require.NoError(t, w.startDatabase(ctx))
	require.NoError(t, w.startStripe(ctx))
	balancer := newBalancer(t)
	require.NoError(t, w.startWorker(ctx))
	first := w.worker
	require.NoError(t, first.ready(ctx))
	balancer.set(first.url)
	w.sendWebhooksTo(t, balancer.url)
	require.NoError(t, w.startEnforcers(ctx))
	require.NoError(t, w.subscribe(ctx))

	// The schema moves while the nodes are asked.
	busy := make(chan error, 1)
	go func() { busy <- w.traffic(ctx) }()
	_, err := w.db.Exec(ctx, `ALTER TABLE weir.accounts ADD COLUMN of_the_next_version text;
		INSERT INTO weir.schema_version (version, name) SELECT max(version) + 1, 'next' FROM weir.schema_version`)
	require.NoError(t, err)
	at, err := schema.At(ctx, w.db)
	require.NoError(t, err)
	require.Equal(t, schema.Version()+1, at)
	second := w.anotherWorker(t)
	require.NoError(t, <-busy)
	last := w.enforcer[nodes-1]
	last.stop()
	w.enforcer = w.enforcer[:nodes-1]
	env := []string{"DATABASE_URL=" + w.dbURL, "WEIR_ADDR=127.0.0.1:0", "WEIR_JOURNAL_DIR=" + filepath.Join(w.dir, "journal-3")}
	again, err := startChild(ctx, "enforcer 3 again", w.cfg.Enforcer, nil, env, filepath.Join(w.dir, "enforcer-3-again.log"))
	require.NoError(t, err)
	w.onClose(again.stop)
	require.NoError(t, again.ready(ctx))

	// The first worker alone closes; Stripe takes its reports and holds the answers; it dies of kill -9.
	require.NoError(t, second.cmd.Process.Signal(syscall.SIGSTOP))
	held := w.stripe.Faults().Inject(stripesim.Match{Method: http.MethodPost, Path: "/v1/billing/meter_events$"}, stripesim.StallAfter(0))
	require.NoError(t, w.setClock(ctx, w.ends.Add(5*time.Minute)))
	require.NoError(t, held.Wait(ctx, 1))
	// The clock jumped while the second one was frozen, as no clock but the demo's does: it has to see that first.
	require.NoError(t, second.cmd.Process.Signal(syscall.SIGCONT))
	require.NoError(t, until(ctx, func() (bool, error) {
		now, err := second.businessTime(ctx)
		return now.After(w.ends), err
	}))
	w.worker = second
	balancer.set(second.url)
	require.NoError(t, first.cmd.Process.Kill())
	<-first.done
	held.Remove()
	held.Release()
	// What the dead worker had claimed is free again a minute later, and is sent once more, unchanged. A second worker
	// that took the jump for a wrong clock has held up everything, and goes on once it agrees with Stripe's.
	require.Eventually(t, func() bool {
		var open int
		err := w.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced)
			+ (SELECT count(*) FROM weir.stops) + (SELECT count(*) FROM weir.chains WHERE due)
			+ (SELECT count(*) FROM weir.periods WHERE state IN ('open', 'closing') AND ends <= $1)`, w.ends).Scan(&open)
		return err == nil && open == 0
	}, 4*time.Minute, 100*time.Millisecond)
	require.NoError(t, w.endMonth(ctx))
	require.NoError(t, w.finalize(ctx))
	agree, err := w.compare(ctx)
	require.NoError(t, err)
	require.True(t, agree)
	seen := map[string]bool{}
	for _, e := range w.stripe.MeterEvents() {
		require.False(t, seen[e.Identifier], "%s was taken twice", e.Identifier)
		seen[e.Identifier] = true
	}
	require.NoError(t, runChild(ctx, w.cfg.Worker, []string{"close-report", "--month", w.ends.Format("2006-01")}, []string{"DATABASE_URL=" + w.dbURL}))
}

// open quotes what is not done, for a test that failed.
func (w *world) open(t *testing.T) string {
	t.Helper()
	var text string
	err := w.db.QueryRow(context.Background(), `SELECT concat_ws(E'\n',
		(SELECT string_agg(concat_ws(' ', 'report', key, seq, try, from_units, to_units, state, replaced, stamp, code, message), E'\n') FROM weir.reports),
		(SELECT string_agg(concat_ws(' ', 'chain', key, upto, due, planned_at), E'\n') FROM weir.chains),
		(SELECT string_agg(concat_ws(' ', 'stop', cause, message), E'\n') FROM weir.stops),
		(SELECT string_agg(concat_ws(' ', 'finding', kind, subject, message, cleared_at), E'\n') FROM weir.findings),
		(SELECT string_agg(concat_ws(' ', 'invoice', invoice, customer, status, wanted, read, claimed_until, finalizes_at), E'\\n') FROM weir.invoices),
		(SELECT string_agg(concat_ws(' ', 'period', p.id, a.account, p.starts, p.ends, p.state, p.confirmed), E'\n') FROM weir.periods p JOIN weir.accounts a ON a.id = p.account_id))`).Scan(&text)
	if err != nil {
		return err.Error()
	}
	return text
}

// anotherWorker starts a second worker over the same database.
func (w *world) anotherWorker(t *testing.T) *child {
	t.Helper()
	env := []string{
		"DATABASE_URL=" + w.dbURL, "WEIR_PLANS=" + filepath.Join(w.dir, "plans.yaml"), "WEIR_ADDR=127.0.0.1:0", "STRIPE_API_KEY=" + w.stripe.APIKey(),
		"STRIPE_API_BASE=" + w.stripeAt, "STRIPE_WEBHOOK_SECRET=" + w.hook, "WEIR_SECRET=a secret of the demo and of nothing else",
	}
	c, err := startChild(t.Context(), "worker 2", w.cfg.Worker, []string{"serve"}, env, filepath.Join(w.dir, "worker-2.log"))
	require.NoError(t, err)
	w.onClose(func() {
		_ = c.cmd.Process.Signal(syscall.SIGCONT)
		c.stop()
	})
	require.NoError(t, c.ready(t.Context()))
	return c
}

// sendWebhooksTo leads all webhooks to whichever worker lives. An endpoint that never answers would keep Stripe's drafts
// open.
func (w *world) sendWebhooksTo(t *testing.T, url string) {
	t.Helper()
	api := w.api()
	list := api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
	for list.Next() {
		_, err := api.WebhookEndpoints.Del(list.WebhookEndpoint().ID, nil)
		require.NoError(t, err)
	}
	require.NoError(t, list.Err())
	w.stripe.AddWebhook(stripesim.Webhook{URL: url + "/stripe/webhook", Secret: w.hook})
}

// balancer passes webhooks on, as a load balancer in front of workers does.
type balancer struct {
	url string
	to  atomic.Pointer[url.URL]
}

func newBalancer(t *testing.T) *balancer {
	t.Helper()
	b := &balancer{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(b.to.Load())
		},
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *balancer) set(to string) {
	u, err := url.Parse(to)
	if err == nil {
		b.to.Store(u)
	}
}
