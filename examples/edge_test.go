//go:build edge

// Package examples_test runs the examples that need programs from outside: nginx and curl. A machine without them
// fails.
package examples_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

const edgePlans = `
currency: usd
default_plan: free
anonymous: {limit: 3, window: 24h}
features:
  events: {}
plans:
  free:
    rate: {limit: 40, window: 24h}
    quota: {events: 20}
    on_exceeded: block
`

// sidecar builds and runs the real binary and returns its address.
func sidecar(t *testing.T, env ...string) string {
	t.Helper()
	dir := t.TempDir()
	binary, plans := filepath.Join(dir, "enforcer"), filepath.Join(dir, "plans.yaml")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "github.com/weirhq/weir/cmd/enforcer").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, os.WriteFile(plans, []byte(edgePlans), 0o600))
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), append([]string{
		"DATABASE_URL=" + schematest.URL(t), "WEIR_PLANS=" + plans, "WEIR_JOURNAL_DIR=" + filepath.Join(dir, "journal"), "WEIR_ADDR=127.0.0.1:0",
		"WEIR_MAX_WAIT=5s", // a loaded machine is not what these tests are about
	}, env...)...)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	start(t, cmd)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(line, "enforcer: serving on "))
	require.Eventually(t, func() bool {
		res, err := http.Get(url + "/readyz") //nolint:noctx // polled
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == 200
	}, time.Minute, 5*time.Millisecond)
	return url
}

// start runs a program until the test ends, and then stops it in good order.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(cmd.Path, log.String())
		}
	})
}

func find(t *testing.T, name, pkg string) string {
	t.Helper()
	for _, path := range []string{name, filepath.Join("/usr/sbin", name), filepath.Join("/opt/homebrew/bin", name)} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	t.Fatalf("%s is not installed: run `apt-get install %s` or `brew install %s`", name, pkg, name)
	return ""
}

// nginx runs the example's configuration with this test's addresses in it.
func nginx(t *testing.T, weir, api string) string {
	t.Helper()
	binary := find(t, "nginx", "nginx-light")
	text, err := os.ReadFile("nginx/nginx.conf")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	dir := t.TempDir()
	config := string(text)
	for was, is := range map[string]string{
		"127.0.0.1:8787": strings.TrimPrefix(weir, "http://"), "127.0.0.1:3000": strings.TrimPrefix(api, "http://"),
		"listen 127.0.0.1:8080": "listen " + addr,
	} {
		require.Contains(t, config, was)
		config = strings.ReplaceAll(config, was, is)
	}
	path := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	require.NoError(t, l.Close())
	start(t, exec.CommandContext(t.Context(), binary, "-p", dir, "-c", path))
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	return "http://" + addr
}

type answer struct {
	status int
	header http.Header
	body   string
}

func get(t *testing.T, method, url string, headers ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(strings.Repeat("x", 100)))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(b)}
}

func TestNginxEnforcesInFrontOfAnAPI(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/forbidden":
			http.Error(w, "the API's own 403", http.StatusForbidden)
		case "/fail":
			http.Error(w, "the API's own 500", http.StatusInternalServerError)
		default:
			b, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "hello %d", len(b))
		}
	}))
	t.Cleanup(api.Close)
	weir := sidecar(t)
	url := nginx(t, weir, api.URL)

	for i := range 18 {
		a := get(t, http.MethodPost, url+"/some/path", "X-Api-Key", "key-of-acme", "X-Weir-Account", "victim", "X-Weir-Units", "0")
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, "hello 100", a.body)
		require.Equal(t, "20", a.header.Get("Quota-Limit"))
		require.Equal(t, fmt.Sprint(19-i), a.header.Get("Quota-Remaining"))
		require.Equal(t, fmt.Sprint(39-i), a.header.Get("RateLimit-Remaining"))
	}
	a := get(t, http.MethodGet, url+"/forbidden", "X-Api-Key", "key-of-acme")
	require.Equal(t, 403, a.status)
	require.Contains(t, a.body, "the API's own 403")
	a = get(t, http.MethodGet, url+"/fail", "X-Api-Key", "key-of-acme")
	require.Equal(t, 500, a.status)
	require.Contains(t, a.body, "the API's own 500")

	for range 20 {
		a = get(t, http.MethodGet, url, "X-Api-Key", "key-of-acme")
		require.Equal(t, 402, a.status)
	}
	var p map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.Equal(t, "quota_exceeded", p["error"])
	require.EqualValues(t, 402, p["status"])
	require.EqualValues(t, 20, p["used"])
	require.Equal(t, "0", a.header.Get("Quota-Remaining"))
	require.NotEmpty(t, a.header.Get("Quota-Reset"))
	require.Empty(t, a.header.Get("Retry-After"))
	require.Empty(t, a.header.Get("X-Weir-Body"))

	a = get(t, http.MethodGet, url, "X-Api-Key", "key-of-acme")
	require.Equal(t, 429, a.status)
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	require.Equal(t, "rate_limited", p["error"])
	require.Equal(t, fmt.Sprint(p["retry_after"]), a.header.Get("Retry-After"))

	for range 3 {
		require.Equal(t, 200, get(t, http.MethodGet, url, "X-Forwarded-For", fmt.Sprint("1.1.1.", time.Now().Nanosecond()%250)).status)
	}
	require.Equal(t, 429, get(t, http.MethodGet, url, "X-Forwarded-For", "1.2.3.4").status, "the peer's address counts, not its claim")
	require.Contains(t, get(t, http.MethodGet, weir+"/v1/usage/acme").body, `"used":20`, "each request was counted once")
	require.Contains(t, get(t, http.MethodGet, weir+"/v1/usage/victim").body, `"used":0`)
}

func TestNginxPassesNothingWithoutTheSidecar(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(api.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := l.Addr().String()
	require.NoError(t, l.Close())
	a := get(t, http.MethodGet, nginx(t, "http://"+nobody, api.URL), "X-Api-Key", "key-of-acme")
	require.Equal(t, 503, a.status)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.True(t, json.Valid([]byte(a.body)), a.body)
}

func TestTheShellScriptSpendsUntilItIsStopped(t *testing.T) {
	find(t, "curl", "curl")
	const token = "0123456789abcdef0123"
	url := sidecar(t, "WEIR_API_TOKEN="+token)
	run := func(args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "shell/spend.sh", args...)
		cmd.Env = append(os.Environ(), "WEIR_URL="+url, "WEIR_API_TOKEN="+token)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("acme", "events", "4")
	require.NoError(t, err, out)
	require.Regexp(t, `^spent 20 events of acme; 0 of 20 are left for \d+ seconds\n$`, out)
	out, err = run("acme", "nothing")
	require.Error(t, err)
	require.Contains(t, out, "answered 400:")
	require.Contains(t, out, "unknown_feature")
}
