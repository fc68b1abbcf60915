package web_test

import (
	"bufio"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
	"github.com/weirhq/weir/web/link"
)

const planFile = `
currency: usd
default_plan: free
upgrade_url: https://example.com/upgrade
features:
  events: {unit: event, meter: weir_events_overage}
  seats: {display_name: Seats}
plans:
  free:
    quota: {events: 100}
    on_exceeded: block
  pro:
    display_name: Pro
    prices: [pro_monthly]
    rate: {limit: 600, window: 1m}
    quota:
      events: {included: 1_000, overage: {price: "0.40", per: 1000, max: 5_000}}
      seats: {included: 5, on_exceeded: block}
    on_exceeded: bill_overage
  open:
    prices: [open_monthly]
    quota: {events: unlimited}
`

var (
	noon  = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	april = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
)

const adminToken = "an admin's token"

// world is a database that counts, and the pages over it.
type world struct {
	testing.TB
	db    *pgxpool.Pool
	clock *clock.Simulated
	links *link.Signer
	wall  time.Time
	pages *web.Pages
	url   string
	node  *usagetest.Node
}

func newWorld(t testing.TB, tune ...func(*web.Config)) *world { return worldOf(t, planFile, tune...) }

func worldOf(t testing.TB, file string, tune ...func(*web.Config)) *world {
	t.Helper()
	w := &world{TB: t, db: schematest.Pool(t), clock: clock.NewSimulated(noon), wall: noon}
	usagetest.Publish(t, w.db, file, noon.AddDate(-1, 0, 0))
	w.node = usagetest.Register(t, w.db, "node", noon)
	w.serve(tune...)
	return w
}

// serve makes the pages.
func (w *world) serve(tune ...func(*web.Config)) {
	w.Helper()
	var err error
	w.links, err = link.NewSigner(strings.Repeat("s", 32))
	require.NoError(w, err)
	cfg := web.Config{
		DB: w.db, Clock: w.clock, Logger: slog.New(slog.DiscardHandler), Links: w.links, AdminToken: adminToken, PublicURL: "https://usage.example.com",
		Refresh: 20 * time.Millisecond, WallClock: func() time.Time { return w.wall },
	}
	for _, f := range tune {
		f(&cfg)
	}
	w.pages, err = web.New(cfg)
	require.NoError(w, err)
	server := httptest.NewServer(w.pages)
	w.Cleanup(func() {
		w.pages.Close()
		server.Close()
	})
	w.url = server.URL
}

func (w *world) subscribe(account, plan string) int64 {
	w.Helper()
	id, err := usage.FindAccount(w.Context(), w.db, account, true, noon)
	require.NoError(w, err)
	starts := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	_, err = usage.ApplyPlan(w.Context(), w.db, id, usage.PlanState{
		Plan: plan, Quantity: 1, Anchor: starts, Months: 1, Starts: starts, Ends: april, Billable: []string{"events"},
	}, starts)
	require.NoError(w, err)
	return id
}

// use counts units now; they lie in the inbox until fold.
func (w *world) use(account, feature string, units int64) {
	w.Helper()
	w.node.Use(account, feature, units, w.clock.Now())
}

func (w *world) fold() {
	w.Helper()
	usagetest.Fold(w, w.db)
}

func (w *world) token(account string) string {
	w.Helper()
	token, err := w.links.Token(account, w.wall.Add(time.Hour))
	require.NoError(w, err)
	return token
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (w *world) do(method, path string, form url.Values, headers ...string) answer {
	w.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, body)
	require.NoError(w, err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 20 * time.Second}
	res, err := c.Do(r)
	require.NoError(w, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(w, err)
	return answer{res.StatusCode, res.Header, string(b)}
}

func (w *world) get(path string, headers ...string) answer {
	w.Helper()
	return w.do(http.MethodGet, path, nil, headers...)
}

// page is an account's usage page, which must be there.
func (w *world) page(account string) string {
	w.Helper()
	a := w.get("/usage/" + w.token(account))
	require.Equal(w, http.StatusOK, a.status, a.body)
	return a.body
}

// numbers is an account's usage as JSON.
func (w *world) numbers(account string) map[string]any {
	w.Helper()
	a := w.get("/usage/" + w.token(account) + ".json")
	require.Equal(w, http.StatusOK, a.status, a.body)
	var v map[string]any
	require.NoError(w, json.Unmarshal([]byte(a.body), &v))
	return v
}

func feature(t testing.TB, v map[string]any, i int) map[string]any {
	t.Helper()
	all, ok := v["features"].([]any)
	require.True(t, ok)
	require.Greater(t, len(all), i)
	return all[i].(map[string]any)
}

// stream follows a page's live numbers until the test ends.
func (w *world) stream(path string) (next func() string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+path, nil)
	require.NoError(w, err)
	res, err := http.DefaultClient.Do(r)
	require.NoError(w, err)
	w.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(w, http.StatusOK, res.StatusCode)
	require.Equal(w, "text/event-stream", res.Header.Get("Content-Type"))
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		return ""
	}
}
