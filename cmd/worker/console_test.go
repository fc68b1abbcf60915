package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/jobs"
)

func TestTheAdminIsServedToThoseWithTheToken(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["WEIR_ADMIN_TOKEN"] = "admin-token-of-a-test"
	s := p.serve("--no-stripe")
	for _, path := range []string{"/admin", "/admin/", "/admin/jobs/", "/admin/jobs/api/queues", "/admin/books/2026-01.csv"} {
		status, body := s.request(http.MethodGet, path, "", "")
		require.Equal(t, http.StatusUnauthorized, status, "%s: %s", path, body)
		require.Equal(t, http.StatusUnauthorized, s.status(http.MethodGet, path, "wrong", ""), path)
		require.Equal(t, http.StatusOK, s.status(http.MethodGet, path, "admin-token-of-a-test", ""), path)
	}
	_, body := s.request(http.MethodGet, "/admin/", "admin-token-of-a-test", "")
	require.Contains(t, body, "Overview")
	require.Contains(t, body, `href="/admin/jobs/"`)
	_, body = s.request(http.MethodGet, "/admin/jobs/api/queues", "admin-token-of-a-test", "")
	require.Contains(t, body, `"fold"`, "River's tables in Weir's schema")
	require.Contains(t, s.page("/metrics"), `weir_http_answers_total{route="admin",status="200"}`)
	require.Contains(t, s.page("/metrics"), `weir_http_answers_total{route="admin_jobs",status="401"}`)
}

func TestWithoutATokenTheAdminSaysWhatToSet(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	s := p.serve("--no-stripe")
	status, body := s.request(http.MethodGet, "/admin/", "", "")
	require.Equal(t, http.StatusUnauthorized, status)
	require.Contains(t, body, "WEIR_ADMIN_TOKEN")
	p.mustFail(exitUsage, "serve", "--no-stripe", "--addr", "127.0.0.1:0", "--admin-user-header", "X-User")
}

func TestAProxyIsTrustedByItsAddress(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	s := p.serve("--no-stripe", "--admin-user-header", "X-Forwarded-User", "--admin-trusted-proxies", "10.0.0.0/8,127.0.0.1")
	require.Equal(t, http.StatusOK, s.asked(http.MethodGet, "/admin/", "X-Forwarded-User", "ada"))
	require.Equal(t, http.StatusUnauthorized, s.asked(http.MethodGet, "/admin/"))
	// What River's page sends comes from its own page.
	const pause = "/admin/jobs/api/queues/fold/pause"
	require.Equal(t, http.StatusForbidden, s.asked(http.MethodPut, pause, "X-Forwarded-User", "ada", "Sec-Fetch-Site", "cross-site"))
	require.Equal(t, http.StatusForbidden, s.asked(http.MethodPut, pause, "X-Forwarded-User", "ada", "Origin", "https://evil.example"))
	require.Equal(t, http.StatusOK, s.asked(http.MethodPut, pause, "X-Forwarded-User", "ada", "Sec-Fetch-Site", "same-origin"))
	require.Equal(t, http.StatusOK, s.asked(http.MethodPut, "/admin/jobs/api/queues/fold/resume", "X-Forwarded-User", "ada", "Sec-Fetch-Site", "same-origin"))
}

// asked makes a request with headers and returns its answer's status.
func (s *serving) asked(method, path string, headers ...string) int {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(""))
	require.NoError(s, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(s, err)
	require.NoError(s, res.Body.Close())
	return res.StatusCode
}

// page is a page that needs no token.
func (s *serving) page(path string) string {
	s.Helper()
	status, body := s.request(http.MethodGet, path, "", "")
	require.Equal(s, http.StatusOK, status)
	return body
}

// novelArgs are a job of a kind that no worker of this version knows, as a newer one inserts it.
type novelArgs struct{}

// Kind names the job.
func (novelArgs) Kind() string { return "novel" }

func TestAJobThatFailsIsOnTheOverview(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["WEIR_ADMIN_TOKEN"] = "admin-token-of-a-test"
	s := p.serve("--no-stripe")
	db := pgtest.Pool(t, p.env["DATABASE_URL"])
	c, err := river.NewClient(riverpgxv5.New(db), &river.Config{Schema: jobs.Schema, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	job, err := c.Insert(t.Context(), novelArgs{}, &river.InsertOpts{Queue: "read", MaxAttempts: 1})
	require.NoError(t, err)
	var body string
	require.Eventually(t, func() bool {
		_, body = s.request(http.MethodGet, "/admin/", "admin-token-of-a-test", "")
		return strings.Contains(body, `id="alert-job-novel-discarded"`)
	}, time.Minute, 50*time.Millisecond)
	require.Contains(t, body, "Retry it once its cause is mended")

	// It is retried by hand: the audit log has who did it, and which job it was.
	id := job.Job.ID
	change := fmt.Sprintf(`{"ids":["%d"]}`, id)
	status, body := s.request(http.MethodPost, "/admin/jobs/api/jobs/retry", "admin-token-of-a-test", change)
	require.Equal(t, http.StatusOK, status, body)
	status, _ = s.request(http.MethodPost, "/admin/jobs/api/jobs/delete", "admin-token-of-a-test", `{"ids":["4242424242"]}`)
	require.Equal(t, http.StatusNotFound, status)
	status, _ = s.request(http.MethodPut, "/admin/jobs/api/queues/read/pause", "admin-token-of-a-test", "")
	require.Equal(t, http.StatusOK, status)
	log := audited(t, p.env["DATABASE_URL"])
	require.Equal(t, []string{
		fmt.Sprintf("api api retry jobs job %d: done", id), "api api delete jobs job 4242424242: refused", "api api pause queue read: done",
	}, log[len(log)-3:])
	_, body = s.request(http.MethodGet, "/admin/audit?action=retry+jobs", "admin-token-of-a-test", "")
	require.Contains(t, body, fmt.Sprintf("%d novel", id))
}

// A worker whose admin can't start ends: its jobs have ended before its database is closed.
func TestTheJobsEndWhenTheAdminCantStart(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	var all commands
	parser, err := newParser(&all, p.getenv, io.Discard, io.Discard, new(bool))
	require.NoError(t, err)
	_, err = parser.Parse([]string{"serve", "--no-stripe"})
	require.NoError(t, err)
	c := &call{globals: all.globals, ctx: t.Context(), env: p.getenv, out: io.Discard, errs: io.Discard, logger: slog.New(slog.DiscardHandler)}
	catalog, err := all.Serve.load(c)
	require.NoError(t, err)
	front, err := newEntrance(c, func() { require.Fail(t, "it can't stay") })
	require.NoError(t, err)
	once, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	o, err := all.Serve.try(once, c, catalog)
	require.NoError(t, err)
	t.Cleanup(o.pool.Close)

	broken := errors.New("the counts can't be read")
	o.console.counts = func(context.Context) error { return broken }
	require.ErrorIs(t, o.work(t.Context(), front, 20*time.Second), broken)
	require.Zero(t, o.pool.Stat().AcquiredConns(), "nothing uses the database any more")
	require.False(t, o.working.Load())
}

// The host's routes take the same token: wrong ones are bounded there too. A host that is known is not shut out.
func TestWrongTokensOnTheHostsRoutesAreBounded(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.env["WEIR_ADMIN_TOKEN"] = "admin-token-of-a-test"
	s := p.serve("--no-stripe")
	routes := map[string]string{
		"/v1/settle/acme": http.MethodPost, "/v1/accounts/acme": http.MethodPut, "/v1/accounts/acme/usage": http.MethodGet,
		"/v1/accounts/acme/link": http.MethodPost, "/v1/accounts/acme/contact": http.MethodPut,
	}
	for n := range 2 {
		for path, method := range routes {
			require.Equal(t, http.StatusUnauthorized, s.status(method, path, fmt.Sprint(path, n), "{}"), path)
		}
	}
	for path, method := range routes {
		require.Equal(t, http.StatusTooManyRequests, s.status(method, path, "admin-token-of-a-test", "{}"), path)
	}
	require.Equal(t, http.StatusTooManyRequests, s.status(http.MethodGet, "/admin/", "admin-token-of-a-test", ""), "one bound for all")

	s = p.serve("--no-stripe")
	require.NotEqual(t, http.StatusUnauthorized, s.status(http.MethodGet, "/v1/accounts/acme/usage", "admin-token-of-a-test", ""))
	for n := range 20 {
		require.Equal(t, http.StatusUnauthorized, s.status(http.MethodGet, "/v1/accounts/acme/usage", fmt.Sprint("wrong", n), ""))
	}
	require.NotEqual(t, http.StatusTooManyRequests, s.status(http.MethodGet, "/v1/accounts/acme/usage", "admin-token-of-a-test", ""))
}
