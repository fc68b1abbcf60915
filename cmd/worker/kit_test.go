package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/billingtest"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/stripesim"
)

const testPlans = `
currency: usd
default_plan: free
features:
  events: {meter: weir_events_overage}
plans:
  free:
    quota: {events: 100}
    on_exceeded: block
  pro:
    prices: [pro_monthly]
    quota:
      events: {included: 1_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}
    on_exceeded: bill_overage
`

// place is an installation to run commands in: an empty database, a plan file, and perhaps Stripe.
type place struct {
	*testing.T
	env map[string]string
	sim *billingtest.Stripe
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p := newFile(t)
	p.env["DATABASE_URL"] = pgtest.URL(t)
	return p
}

// newMigrated is a place whose database has the newest schema.
func newMigrated(t *testing.T) *place {
	t.Helper()
	p := newFile(t)
	p.env["DATABASE_URL"] = pgtest.Migrated(t, "worker-"+schema.Fingerprint(), func(ctx context.Context, url string) error {
		return run(ctx, []string{"migrate"}, func(name string) string { return map[string]string{"DATABASE_URL": url}[name] }, io.Discard, io.Discard)
	})
	return p
}

// newFile is a place without a database.
func newFile(t *testing.T) *place {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plans.yaml")
	require.NoError(t, os.WriteFile(file, []byte(testPlans), 0o600))
	return &place{T: t, env: map[string]string{"WEIR_PLANS": file}}
}

// stripe adds a simulated Stripe.
func (p *place) stripe(cfg stripesim.Config) {
	p.Helper()
	p.sim = billingtest.Serve(p, cfg)
	p.env["STRIPE_API_KEY"], p.env["STRIPE_API_BASE"], p.env["STRIPE_WEBHOOK_SECRET"] = p.sim.APIKey(), p.sim.URL, "whsec_planted_secret"
}

func (p *place) getenv(name string) string { return p.env[name] }

// run runs a command and returns what it printed.
func (p *place) run(args ...string) (stdout, stderr string, err error) {
	p.Helper()
	var out, errs bytes.Buffer
	err = run(p.Context(), args, p.getenv, &out, &errs)
	return out.String(), errs.String(), err
}

// do runs a command that has to succeed.
func (p *place) do(args ...string) string {
	p.Helper()
	out, errs, err := p.run(args...)
	require.NoError(p, err, "%v\n%s", args, errs)
	return out
}

// fails runs a command that has to end with an exit code.
func (p *place) fails(code int, args ...string) (string, error) {
	p.Helper()
	out, _, err := p.run(args...)
	require.Error(p, err, "%v\n%s", args, out)
	require.Equal(p, code, exitCode(err), "%v: %v", args, err)
	return out, err
}

// mustFail is fails where only the exit code counts.
func (p *place) mustFail(code int, args ...string) {
	p.Helper()
	_, err := p.fails(code, args...)
	require.Error(p, err)
}

// serving is a worker that serves.
type serving struct {
	*testing.T
	url  string
	log  *buffer
	stop func() error // asks it to stop, and returns how it ended
}

// serve starts a worker and waits until it is ready.
func (p *place) serve(args ...string) *serving {
	p.Helper()
	s := p.begin(args...)
	s.ready()
	return s
}

// ready waits until the worker is.
func (s *serving) ready() {
	s.Helper()
	require.Eventually(s, func() bool { return s.status("GET", "/readyz", "", "") == http.StatusOK }, 30*time.Second, 20*time.Millisecond, "%s", s.log)
}

// begin starts a worker and waits until it serves.
func (p *place) begin(args ...string) *serving {
	p.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	s := &serving{T: p.T, log: &buffer{}}
	go func() {
		err := run(ctx, append([]string{"serve", "--addr", "127.0.0.1:0"}, args...), p.getenv, write, s.log)
		_ = write.CloseWithError(io.EOF)
		ended <- err
	}()
	s.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	p.Cleanup(func() { _ = s.stop() })
	lines := bufio.NewScanner(read)
	for s.url == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "serving on "); ok {
			s.url = at
		}
	}
	require.NotEmpty(p, s.url, "the worker did not start: %s", s.log)
	go func() { _, _ = io.Copy(io.Discard, read) }()
	return s
}

// status makes a request and returns its answer's status.
func (s *serving) status(method, path, token, body string) int {
	status, _ := s.request(method, path, token, body)
	return status
}

func (s *serving) request(method, path, token, body string) (int, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body))
	require.NoError(s, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(s, err)
	return res.StatusCode, string(b)
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
