package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/stripesim"
)

// Whatever goes wrong, no secret is in what the program prints, logs or returns.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	const planted = "planted7f3a"
	p := newMigrated(t)
	p.stripe(stripesim.Config{})
	secrets := map[string]string{
		"STRIPE_API_KEY": "rk_test_" + planted, "STRIPE_WEBHOOK_SECRET": "whsec_" + planted, "WEIR_ADMIN_TOKEN": "token-" + planted,
		"WEIR_SECRET": strings.Repeat(planted, 4),
	}
	for name, v := range secrets {
		p.env[name] = v
	}
	var seen strings.Builder
	try := func(args ...string) {
		for _, format := range []string{"text", "json"} {
			out, errs, err := p.run(append([]string{"--log-level", "debug", "--log-format", format}, args...)...)
			seen.WriteString(out + errs)
			if err != nil {
				seen.WriteString(err.Error())
			}
		}
	}
	// Stripe does not know the key.
	for _, args := range [][]string{
		{"plans", "check"}, {"plans", "push", "--yes"}, {"doctor"}, {"sync"}, {"sync", "acme"}, {"reconcile"}, {"settle", "acme"}, {"map", "--reason", "a test", "acme", "cus_1"},
		{"findings"}, {"usage", "show", "acme"}, {"link", "acme"}, {"version"}, {"nonsense"}, {"plans", "apply"},
	} {
		try(args...)
	}
	s := p.serve("--log-level", "debug")
	for _, path := range []string{"/metrics", "/readyz", "/healthz", "/plans.json", "/nothing"} {
		_, body := s.request("GET", path, "", "")
		seen.WriteString(body)
	}
	_, body := s.request("POST", "/stripe/webhook", "", `{"id":"evt_1"}`)
	seen.WriteString(body)
	_, body = s.request("POST", "/v1/settle/acme", secrets["WEIR_ADMIN_TOKEN"], "")
	seen.WriteString(body)
	require.NoError(t, s.stop())
	seen.WriteString(s.log.String())
	// The database's password, in URLs that work, that do not, and that are none.
	for _, url := range []string{
		"postgres://weir:" + planted + "@127.0.0.1:1/weir", "postgres://weir:" + planted + "@127.0.0.1:1/weir?sslmode=nonsense",
		"postgres://weir:" + planted + " x@127.0.0.1:1/weir", "host=127.0.0.1 port=1 user=weir password=" + planted, "postgres://weir:" + planted + "@[::1/weir",
	} {
		p.env["DATABASE_URL"] = url
		for _, args := range [][]string{{"migrate"}, {"doctor"}, {"usage", "show", "acme"}} {
			try(args...)
		}
		seen.WriteString(p.servesInVain())
	}
	require.Greater(t, seen.Len(), 5_000)
	at := strings.Index(seen.String(), planted)
	require.Negative(t, at, "a secret is in: …%s", seen.String()[max(0, at-200):max(0, at)])

	// Arguments are in the list of processes: a password there is refused.
	for _, flag := range []string{"--database-url=postgres://weir:" + planted + "@127.0.0.1:1/weir"} {
		p.env["DATABASE_URL"] = ""
		_, err := p.fails(exitUsage, flag, "migrate")
		require.NotContains(t, err.Error(), planted)
	}
}

// /readyz tells the truth while the database comes and goes; /healthz keeps the process from being restarted for it.
func TestReadinessFollowsTheDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t)
	p := newFile(t)
	p.env["DATABASE_URL"] = server.URL("postgres")
	p.do("migrate")
	s := p.serve("--no-stripe")
	require.Equal(t, http.StatusOK, s.status("GET", "/healthz", "", ""))
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return s.status("GET", "/readyz", "", "") == http.StatusServiceUnavailable }, 20*time.Second, 20*time.Millisecond)
	_, page := s.request("GET", "/metrics", "", "")
	require.True(t, strings.Contains(page, "weir_worker_up 0") && !strings.Contains(page, "weir_inbox_rows"), "old numbers are shown while the database is away")
	require.Equal(t, http.StatusOK, s.status("GET", "/healthz", "", ""))
	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool { return s.status("GET", "/readyz", "", "") == http.StatusOK }, 30*time.Second, 20*time.Millisecond)
	require.NoError(t, s.stop())
	require.Zero(t, s.status("GET", "/healthz", "", ""))
}
