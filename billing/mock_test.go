package billing_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
)

// mirror sends each request of the client also to stripe-mock, which knows every parameter that Stripe has.
type mirror struct {
	t    *testing.T
	mock string

	mu   sync.Mutex
	seen map[string]bool
}

var ids = regexp.MustCompile(`/(cus|in|mtr|sub)_[A-Za-z0-9_]+`)

func (m *mirror) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		m.check(r, body)
	}
	return http.DefaultTransport.RoundTrip(r)
}

func (m *mirror) check(r *http.Request, body []byte) {
	c, err := http.NewRequestWithContext(r.Context(), r.Method, m.mock+r.URL.Path+"?"+r.URL.RawQuery, bytes.NewReader(body))
	if err != nil {
		m.t.Error(err)
		return
	}
	c.Header = r.Header.Clone()
	res, err := http.DefaultTransport.RoundTrip(c)
	if err != nil {
		m.t.Error(err)
		return
	}
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		m.t.Errorf("stripe-mock answers %d to %s %s?%s %s: %s %v", res.StatusCode, r.Method, r.URL.Path, r.URL.RawQuery, body, text, err)
	}
	if err := res.Body.Close(); err != nil {
		m.t.Error(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen[r.Method+" "+ids.ReplaceAllString(r.URL.Path, "/{id}")] = true
}

// startMock builds stripe-mock as tools/go.mod pins it, and starts it on loopback.
func startMock(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "stripe-mock")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/stripe/stripe-mock")
	build.Dir = "../tools"
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	cmd := exec.CommandContext(t.Context(), bin, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	pipe, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(pipe)
	for lines.Scan() {
		if m := regexp.MustCompile(`Listening for HTTP at address: (\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			return "http://" + m[1]
		}
	}
	require.FailNow(t, "stripe-mock did not start")
	return ""
}

// Every /v1 request that our client sends has a shape that Stripe's own description accepts.
func TestEveryRequestShapePassesStripeMock(t *testing.T) {
	t.Parallel()
	m := &mirror{t: t, mock: startMock(t), seen: map[string]bool{}}
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item"), tune: func(c *billing.ClientConfig) {
		c.HTTPClient = &http.Client{Transport: m}
	}})
	w.over("acme", 40)
	_, gone := w.subscribe("gone", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	lost := w.node.use("gone", 1_100_000)
	w.advance(w.sim.Now().Add(2*time.Minute), time.Minute)
	_, err := w.api.Subscriptions.Cancel(gone.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(false)})
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(25*time.Hour), 13*time.Hour)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.NoError(t, w.b.Late(t.Context()))
	w.exec("UPDATE weir.late SET state = 'stored', retry_at = '-infinity' WHERE key = $1 AND state = 'sent'", lost)
	require.NoError(t, w.b.Late(t.Context()), "looked up before it is sent again")
	require.NoError(t, w.b.Reconcile(t.Context()))
	w.toEnd()
	w.finish()
	_, err = w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -39, "tester", "a refund")
	require.NoError(t, err)
	w.node.use("acme", 1)
	w.work()
	require.NoError(t, w.b.Late(t.Context()))
	w.exec("UPDATE weir.late SET state = 'stored', retry_at = '-infinity' WHERE state IN ('credited', 'held')")
	require.NoError(t, w.b.Late(t.Context()))
	for _, shape := range []string{
		"GET /v1/subscriptions", "GET /v1/customers/{id}", "GET /v1/billing/meters", "POST /v1/billing/meter_events", "GET /v1/billing/meters/{id}/event_summaries",
		"GET /v1/invoices/{id}", "GET /v1/invoices", "POST /v1/invoices", "GET /v1/invoiceitems", "POST /v1/invoiceitems", "GET /v1/credit_notes", "POST /v1/credit_notes",
	} {
		require.True(t, m.seen[shape], "%s was not sent; seen: %v", shape, m.seen)
	}
}
