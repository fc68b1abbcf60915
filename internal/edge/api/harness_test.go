package api_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/api"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const testPlans = `
currency: usd
default_plan: free
upgrade_url: https://example.com/upgrade
anonymous: {limit: 3, window: 1h}
features:
  events: {}
  tokens: {}
  exports: {}
plans:
  free:
    rate: {limit: 20, window: 24h}
    quota: {events: 10, tokens: unlimited}
    on_exceeded: block
`

// harness is an API over real HTTP, on a real enforcer and database. Every answer is held against the description.
type harness struct {
	t        testing.TB
	enforcer *enforcer.Enforcer
	api      *api.API
	server   *httptest.Server
	schema   *description
}

func newHarness(t testing.TB, text string) *harness {
	t.Helper()
	return startHarness(t, newEnforcer(t, text))
}

// newRealTimeHarness runs on the database's clock, as production does.
func newRealTimeHarness(t testing.TB, text string) *harness {
	t.Helper()
	return startHarness(t, newEnforcerWith(t, text, nil))
}

func startHarness(t testing.TB, e *enforcer.Enforcer) *harness {
	t.Helper()
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, e.Stop(ctx))
	})
	return serve(t, e)
}

func newEnforcer(t testing.TB, text string) *enforcer.Enforcer {
	t.Helper()
	return newEnforcerWith(t, text, stopped(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)))
}

func newEnforcerWith(t testing.TB, text string, clock enforcer.Clock) *enforcer.Enforcer {
	t.Helper()
	catalog, err := plans.Parse([]byte(text))
	require.NoError(t, err)
	e, err := enforcer.New(schematest.Pool(t), &enforcer.Config{
		Plans: catalog, NoJournal: true, MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Clock: clock,
	})
	require.NoError(t, err)
	return e
}

type stopped time.Time

func (c stopped) Now() time.Time { return time.Time(c) }

func serve(t testing.TB, e *enforcer.Enforcer) *harness {
	t.Helper()
	a, err := api.New(api.Config{Enforcer: e, Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	h := &harness{t: t, enforcer: e, api: a, server: s}
	h.schema = describe(t, h.raw(http.MethodGet, "/openapi.json", "").body)
	return h
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) json(t testing.TB) (m map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), &m), a.body)
	return m
}

// do sends a request and holds the answer against the description of its route.
func (h *harness) do(route, method, path, body string, headers ...string) answer {
	h.t.Helper()
	a := h.raw(method, path, body, headers...)
	h.schema.check(h.t, route, method, a)
	return a
}

func (h *harness) raw(method, path, body string, headers ...string) answer {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.server.URL+path, strings.NewReader(body))
	require.NoError(h.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := h.server.Client().Do(r)
	require.NoError(h.t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(h.t, err)
	require.NoError(h.t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(b)}
}

func (h *harness) consume(body string, headers ...string) answer {
	h.t.Helper()
	return h.do("/v1/consume", http.MethodPost, "/v1/consume", body, headers...)
}

func (h *harness) used(account string) int64 {
	h.t.Helper()
	d, err := h.enforcer.Usage(h.t.Context(), account, "events")
	require.NoError(h.t, err)
	return d.Used
}

// description is the OpenAPI document, ready to check with.
type description struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
	mu       sync.Mutex
}

const documentURL = "https://weir.test/openapi.json"

func describe(t testing.TB, text string) *description {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	require.NoError(t, c.AddResource(documentURL, doc))
	return &description{doc: doc.(map[string]any), compiler: c}
}

// compile returns the schema at a JSON pointer of the document.
func (d *description) compile(t testing.TB, pointer string) *jsonschema.Schema {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.compiler.Compile(documentURL + "#" + pointer)
	require.NoError(t, err)
	return s
}

func escape(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "~", "~0"), "/", "~1") }

// check holds an answer against the description: its status, its type, its body, and that its headers are numbers
// where they say so.
func (d *description) check(t testing.TB, route, method string, a answer) {
	t.Helper()
	responses := d.at(t, "paths", route, strings.ToLower(method), "responses")
	response, ok := responses[strconv.Itoa(a.status)].(map[string]any)
	require.True(t, ok, "%s %s answers %d, which is not described: %s", method, route, a.status, a.body)
	headers, _ := response["headers"].(map[string]any)
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "Quota-Limit", "Quota-Remaining", "Quota-Reset", "Retry-After", "X-Weir-Status", "X-Weir-Body"} {
		if v := a.header.Get(name); v != "" {
			require.Contains(t, headers, name, "%s %s %d", method, route, a.status)
			if name != "X-Weir-Body" {
				_, err := strconv.ParseUint(v, 10, 63)
				require.NoError(t, err, name)
			}
		}
	}
	content, _ := response["content"].(map[string]any)
	if a.body == "" {
		return
	}
	kind := strings.Split(a.header.Get("Content-Type"), ";")[0]
	require.Contains(t, content, kind, "%s %s %d", method, route, a.status)
	if !strings.HasSuffix(kind, "json") {
		return
	}
	body, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
	require.NoError(t, err, a.body)
	pointer := "/paths/" + escape(route) + "/" + strings.ToLower(method) + "/responses/" + strconv.Itoa(a.status) + "/content/" + escape(kind) + "/schema"
	require.NoError(t, d.compile(t, pointer).Validate(body), a.body)
}

func (d *description) at(t testing.TB, path ...string) map[string]any {
	t.Helper()
	at := d.doc
	for _, p := range path {
		next, ok := at[p].(map[string]any)
		require.True(t, ok, "the description has no %s in %v", p, path)
		at = next
	}
	return at
}
