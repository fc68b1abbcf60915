package enforcer_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
)

const edgePlans = `
currency: usd
default_plan: free
anonymous: {limit: 3, window: 1h}
features:
  events: {}
  exports: {}
plans:
  free:
    rate: {limit: 20, window: 24h}
    quota: {events: 10}
    on_exceeded: block
`

// edge is an enforcer, and requests to handlers behind its middleware over real HTTP.
type edge struct {
	*enforcer.Enforcer
	t testing.TB
}

func newEdge(t testing.TB) *edge {
	t.Helper()
	return &edge{start(t, schematest.Pool(t), enforcer.Config{Plans: catalog(t, edgePlans), NoJournal: true}), t}
}

// byHeader is a configuration whose functions read headers, as a test wants them.
func byHeader() enforcer.MiddlewareConfig {
	return enforcer.MiddlewareConfig{
		Account: func(r *http.Request) string { return r.Header.Get("Account") },
		Feature: enforcer.Always("events"),
		Units: func(r *http.Request) int64 {
			n, err := strconv.ParseInt(r.Header.Get("Units"), 10, 64)
			if err != nil {
				return 1
			}
			return n
		},
		Caller: func(r *http.Request) string { return r.Header.Get("Caller") },
	}
}

func (e *edge) serve(cfg enforcer.MiddlewareConfig, h http.HandlerFunc) *httptest.Server {
	e.t.Helper()
	s := httptest.NewServer(e.Middleware(cfg)(h))
	e.t.Cleanup(s.Close)
	return s
}

func (e *edge) get(s *httptest.Server, headers ...string) *http.Response {
	e.t.Helper()
	r, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(e.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(r)
	require.NoError(e.t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(e.t, err)
	require.NoError(e.t, res.Body.Close())
	res.Body = io.NopCloser(strings.NewReader(string(body)))
	return res
}

func (e *edge) used(account string) int64 {
	e.t.Helper()
	d, err := e.Usage(e.t.Context(), account, "events")
	require.NoError(e.t, err)
	return d.Used
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

func TestAHandlerIsReachedUpToTheQuotaAndTheRate(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s := e.serve(byHeader(), hello)
	for i := range 10 {
		res := e.get(s, "Account", "acme")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, strconv.Itoa(9-i), res.Header.Get("Quota-Remaining"))
		require.Equal(t, strconv.Itoa(19-i), res.Header.Get("RateLimit-Remaining"))
	}
	for range 10 {
		res := e.get(s, "Account", "acme")
		require.Equal(t, 402, res.StatusCode)
		require.Equal(t, "10", res.Header.Get("Quota-Limit"))
		require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"))
	}
	res := e.get(s, "Account", "acme")
	require.Equal(t, 429, res.StatusCode, "the rate is asked first")
	require.Equal(t, "0", res.Header.Get("Quota-Remaining"), "also on this answer")
	retry, err := strconv.Atoi(res.Header.Get("Retry-After"))
	require.NoError(t, err)
	require.Positive(t, retry)
	require.Equal(t, 402, e.get(s, "Account", "acme", "Caller", "another key").StatusCode)
	require.EqualValues(t, 10, e.used("acme"))
}

func TestARequestThatIsFreeAsksTheRateOnly(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	s := e.serve(byHeader(), hello)
	require.Equal(t, 200, e.get(s, "Account", "acme", "Units", "10").StatusCode)
	require.Equal(t, 200, e.get(s, "Account", "acme", "Units", "0").StatusCode)
	require.Equal(t, 400, e.get(s, "Account", "acme", "Units", "-1").StatusCode)
	require.Equal(t, 400, e.get(s, "Account", strings.Repeat("a", 300)).StatusCode)
	require.EqualValues(t, 10, e.used("acme"))
}

func TestAFailedHandlerGivesItsUnitsBackByOption(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	cfg := byHeader()
	cfg.GiveBack = enforcer.Failed
	s := e.serve(cfg, func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Do") {
		case "fail":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "refuse":
			w.WriteHeader(http.StatusUnprocessableEntity)
		case "hint":
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	require.Equal(t, 503, e.get(s, "Account", "acme", "Units", "4", "Do", "fail").StatusCode)
	require.Equal(t, 500, e.get(s, "Account", "acme", "Units", "4", "Do", "hint").StatusCode)
	require.EqualValues(t, 0, e.used("acme"))
	require.Equal(t, 422, e.get(s, "Account", "acme", "Units", "3", "Do", "refuse").StatusCode)
	require.Equal(t, 200, e.get(s, "Account", "acme", "Units", "2").StatusCode)
	require.EqualValues(t, 5, e.used("acme"))
	require.EqualValues(t, 0, e.Stats().Reserved)
	require.Equal(t, 402, e.get(s, "Account", "acme", "Units", "6").StatusCode)

	cfg.GiveBack = nil
	kept := e.serve(cfg, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	require.Equal(t, 500, e.get(kept, "Account", "other", "Units", "3").StatusCode)
	require.EqualValues(t, 3, e.used("other"))
}

func TestWhatTheHandlerReportsIsCounted(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	cfg := byHeader()
	cfg.Settle, cfg.Units = true, enforcer.Always[int64](6)
	s := e.serve(cfg, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Do") == "panic" {
			panic(http.ErrAbortHandler)
		}
		if n, err := strconv.ParseInt(r.Header.Get("Report"), 10, 64); err == nil {
			if !enforcer.ReportUnits(r.Context(), n) {
				w.WriteHeader(http.StatusTeapot)
			}
		}
	})
	require.Equal(t, 200, e.get(s, "Account", "acme", "Report", "2").StatusCode)
	require.EqualValues(t, 2, e.used("acme"))
	require.Equal(t, 200, e.get(s, "Account", "acme", "Report", "0").StatusCode)
	require.EqualValues(t, 2, e.used("acme"))
	require.Equal(t, 418, e.get(s, "Account", "none", "Report", "-1").StatusCode)
	require.EqualValues(t, 6, e.used("none"), "without a report everything that was set aside counts")
	require.Equal(t, 200, e.get(s, "Account", "acme", "Report", "9").StatusCode, "the work is done: it counts beyond the quota")
	require.EqualValues(t, 11, e.used("acme"))
	require.Equal(t, 402, e.get(s, "Account", "acme").StatusCode)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Account", "panics")
	r.Header.Set("Do", "panic")
	_, err = s.Client().Do(r)
	require.Error(t, err)
	require.EqualValues(t, 0, e.used("panics"))
	require.EqualValues(t, 0, e.Stats().Reserved)
	require.False(t, enforcer.ReportUnits(t.Context(), 1))
}

func TestAnonymousCallersAreLimitedByTheirAddress(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	spoofed := e.serve(byHeader(), hello)
	for i := range 3 {
		res := e.get(spoofed, "X-Forwarded-For", fmt.Sprintf("1.1.1.%d", i))
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, "3", res.Header.Get("RateLimit-Limit"))
		require.Empty(t, res.Header.Get("Quota-Limit"))
	}
	require.Equal(t, 429, e.get(spoofed, "X-Forwarded-For", "1.1.1.9").StatusCode, "nobody is trusted, so the header says nothing")

	cfg := byHeader()
	cfg.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s := e.serve(cfg, hello)
	for i, xff := range []string{"2.2.2.2", "9.9.9.9, 2.2.2.2", "2.2.2.2"} {
		require.Equal(t, 200, e.get(s, "X-Forwarded-For", xff).StatusCode, i)
	}
	require.Equal(t, 429, e.get(s, "X-Forwarded-For", "8.8.8.8, 2.2.2.2").StatusCode)
	require.Equal(t, 429, e.get(s, "X-Forwarded-For", "::ffff:2.2.2.2").StatusCode)
	for i := range 3 {
		require.Equal(t, 200, e.get(s, "X-Forwarded-For", fmt.Sprintf("2001:db8::%d", i)).StatusCode)
	}
	require.Equal(t, 429, e.get(s, "X-Forwarded-For", "2001:db8::ffff:1:2:3").StatusCode, "one subscriber has the whole /64")
	require.Equal(t, 200, e.get(s, "X-Forwarded-For", "2001:db8:0:1::1").StatusCode)

	cfg.NeedAccount = true
	require.Equal(t, 401, e.get(e.serve(cfg, hello), "X-Forwarded-For", "7.7.7.7").StatusCode)
}

func TestAKeyedRequestCountsOnce(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	cfg := byHeader()
	cfg.Key = func(r *http.Request) string { return r.Header.Get("Idempotency-Key") }
	s := e.serve(cfg, hello)
	for range 3 {
		require.Equal(t, 200, e.get(s, "Account", "acme", "Units", "4", "Idempotency-Key", "k").StatusCode)
	}
	require.EqualValues(t, 4, e.used("acme"))
	require.Equal(t, 409, e.get(s, "Account", "acme", "Units", "5", "Idempotency-Key", "k").StatusCode)
}

func TestAWatchedHandlerStreamsAndTakesConnectionsOver(t *testing.T) {
	t.Parallel()
	e := newEdge(t)
	cfg := byHeader()
	cfg.GiveBack = enforcer.Failed
	goOn := make(chan struct{})
	s := e.serve(cfg, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\nbye")
				_ = conn.Close()
			}
			return
		}
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-goOn
		_, _ = w.(io.ReaderFrom).ReadFrom(strings.NewReader("second"))
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	require.NoError(t, err)
	r.Header.Set("Account", "acme")
	res, err := s.Client().Do(r)
	require.NoError(t, err)
	first := make([]byte, 5)
	_, err = io.ReadFull(res.Body, first)
	require.NoError(t, err)
	require.Equal(t, "first", string(first))
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, "second", string(rest))

	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nAccount: acme\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
	require.NoError(t, err)
	up, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 101, up.StatusCode)
	require.NoError(t, up.Body.Close())
	require.NoError(t, conn.Close())
}

func TestAnEnforcerThatIsNotRunningAnswers503(t *testing.T) {
	t.Parallel()
	e := &edge{t: t}
	pool := schematest.Pool(t)
	var err error
	e.Enforcer, err = enforcer.New(pool, &enforcer.Config{Plans: catalog(t, edgePlans), NoJournal: true, MaxWait: 5 * time.Second})
	require.NoError(t, err)
	s := e.serve(byHeader(), hello)
	for _, headers := range [][]string{{"Account", "acme"}, {}} {
		res := e.get(s, headers...)
		require.Equal(t, 503, res.StatusCode)
		require.Equal(t, "1", res.Header.Get("Retry-After"))
	}
	require.NoError(t, e.Start(t.Context()))
	require.Equal(t, 200, e.get(s, "Account", "acme").StatusCode)
	require.NoError(t, e.Stop(context.Background()))
	require.Equal(t, 503, e.get(s, "Account", "acme").StatusCode)
}

func TestAMiddlewareNeedsAnAccountAndAFeature(t *testing.T) {
	t.Parallel()
	e := &enforcer.Enforcer{}
	require.Panics(t, func() { e.Middleware(enforcer.MiddlewareConfig{Account: enforcer.Always("a")}) })
	require.Panics(t, func() { e.Middleware(enforcer.MiddlewareConfig{Feature: enforcer.Always("a")}) })
}
