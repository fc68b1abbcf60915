package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testPlans = `
currency: usd
default_plan: free
anonymous: {limit: 3, window: 1h}
features:
  events: {}
  tokens: {}
  exports: {}
plans:
  free:
    rate: {limit: 1000, window: 1h}
    quota: {events: 50, tokens: unlimited}
    on_exceeded: block
`

// sidecar is a running process, in the test's own.
type sidecar struct {
	t      testing.TB
	url    string
	proxy  string // where the proxy serves
	client *http.Client
	stop   func() error // ends the process and returns what run returned; may be called again
	wait   func() error // the same, without ending it
}

// boot runs the sidecar with an environment until t ends.
func boot(t testing.TB, env map[string]string, args ...string) *sidecar {
	t.Helper()
	s, err := tryBoot(t, env, args...)
	require.NoError(t, err)
	return s
}

// tryBoot returns what run returned when it ended before it served.
func tryBoot(t testing.TB, env map[string]string, args ...string) (*sidecar, error) {
	t.Helper()
	full := map[string]string{"WEIR_JOURNAL_DIR": t.TempDir(), "WEIR_ADDR": "127.0.0.1:0", "WEIR_MAX_WAIT": "5s"}
	for k, v := range env {
		full[k] = v
	}
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = run(ctx, args, func(name string) string { return full[name] }, in, logWriter{t})
		_ = in.Close()
	}()
	stop := func() error {
		cancel()
		<-ended
		return result
	}
	t.Cleanup(func() { _ = stop() })
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		return nil, stop()
	}
	second := ""
	if full["WEIR_UPSTREAM"] != "" {
		if second, err = lines.ReadString('\n'); err != nil {
			return nil, stop()
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	where := strings.TrimPrefix(strings.TrimSpace(line), "enforcer: serving on ")
	s := &sidecar{t: t, url: where, stop: stop, wait: func() error { <-ended; return result }}
	s.proxy, _, _ = strings.Cut(strings.TrimPrefix(second, "enforcer: proxying on "), " to ")
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	if path, ok := strings.CutPrefix(where, "unix:"); ok {
		s.url = "http://weir"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	s.client = &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(transport.CloseIdleConnections)
	return s, nil
}

// ready waits until the sidecar decides.
func (s *sidecar) ready() *sidecar {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return s.get("/readyz").status == 200 }, 30*time.Second, 5*time.Millisecond)
	return s
}

// answer is an HTTP answer, read whole.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) json(t testing.TB) map[string]any {
	t.Helper()
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &m), a.body)
	return m
}

func (s *sidecar) do(method, path, body string, headers ...string) answer {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.client.Do(r)
	require.NoError(s.t, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return answer{res.StatusCode, res.Header, string(b)}
}

func (s *sidecar) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", headers...)
}

func (s *sidecar) post(path, body string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodPost, path, body, headers...)
}

// planFile writes a plan file and returns its path.
func planFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plans.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func decode[T any](t testing.TB, body string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(body), &v), body)
	return v
}
