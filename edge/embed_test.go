package edge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/embed"
)

// host is an application of another origin that shows the page of docs/embed.md, under the policy that it names.
type host struct {
	url    string
	worker string            // where its browser reaches the worker
	down   atomic.Bool       // the worker does not answer
	reads  atomic.Int64      // of usage
	fixed  map[string]string // what the worker answers in place of its own, by path; set before the page is opened
}

// documented is a fenced block of docs/embed.md, the nth of its kind.
func documented(t *testing.T, kind string, n int) string {
	t.Helper()
	text, err := os.ReadFile("../docs/embed.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```"+kind+"\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(blocks), n, kind)
	return blocks[n][1]
}

// newHost serves the documented page for an account, with changes to its text.
func (w *world) newHost(token string, css string, changes ...string) *host {
	w.Helper()
	h := &host{fixed: map[string]string{}}
	policy := strings.TrimSpace(strings.TrimPrefix(documented(w.T, "text", 0), "Content-Security-Policy: "))
	mux := http.NewServeMux()
	app := httptest.NewServer(mux)
	w.Cleanup(app.Close)
	elements, err := embed.New([]string{app.URL})
	require.NoError(w, err)
	behind, err := url.Parse(w.url)
	require.NoError(w, err)
	pages := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
	shared := elements.Share(pages)
	front := http.NewServeMux()
	front.Handle("GET /embed/", elements)
	front.HandleFunc("/", func(out http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/usage/") {
			h.reads.Add(1)
			require.Empty(w, r.Header.Get("Referer"))
			require.Empty(w, r.Header.Get("Cookie"))
		}
		if text := h.fixed[r.URL.Path]; text != "" {
			out.Header().Set("Access-Control-Allow-Origin", "*")
			_, _ = io.WriteString(out, text)
			return
		}
		if h.down.Load() {
			out.Header().Set("Access-Control-Allow-Origin", "*")
			http.Error(out, "away", http.StatusServiceUnavailable)
			return
		}
		if strings.HasPrefix(r.URL.Path, "/usage/") {
			shared.ServeHTTP(out, r)
			return
		}
		pages.ServeHTTP(out, r)
	})
	worker := httptest.NewServer(front)
	w.Cleanup(worker.Close)
	here := func(text string) string {
		return strings.NewReplacer("https://usage.example.com", worker.URL, "TOKEN", token).Replace(text)
	}
	page := here(strings.NewReplacer(changes...).Replace(documented(w.T, "html", 0)))
	mux.HandleFunc("GET /{$}", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Security-Policy", here(policy))
		out.Header().Set("Content-Type", "text/html; charset=utf-8")
		http.SetCookie(out, &http.Cookie{Name: "session", Value: "secret"})
		_, _ = io.WriteString(out, page)
	})
	mux.HandleFunc("GET /site.css", func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/css")
		_, _ = io.WriteString(out, css)
	})
	mux.HandleFunc("GET /favicon.ico", func(out http.ResponseWriter, _ *http.Request) { out.WriteHeader(http.StatusNoContent) })
	h.url, h.worker = app.URL, worker.URL
	return h
}

func (w *world) token(account string, life time.Duration) string {
	w.Helper()
	token, err := w.links.Token(account, time.Now().Add(life))
	require.NoError(w, err)
	return token
}

const siteStyle = `body { font: 16px/1.5 Georgia, serif; max-width: 720px; margin: 24px auto; padding: 0 16px; color: #222; background: #fff }`

const darkStyle = `:root { color-scheme: light dark } body { font: 16px/1.5 system-ui, sans-serif; max-width: 720px; margin: 24px auto; padding: 0 16px;
color: light-dark(#222, #e6edf0); background: light-dark(#fff, #11181c) } weir-meter { --weir-bar-height: 1em; --weir-flow: light-dark(#5b21b6, #b794f6) }`

// inside is the text of an element's shadow tree.
func (b *tab) inside(element string) string {
	b.Helper()
	return value[string](b, fmt.Sprintf(`document.querySelector(%q).shadowRoot.querySelector("[part=content]").innerText`, element))
}

func (b *tab) state(element, state string) {
	b.Helper()
	b.until(fmt.Sprintf(`document.querySelector(%q)?.getAttribute("state") === %q`, element, state))
}

func (b *tab) note(element string) string {
	b.Helper()
	return value[string](b, fmt.Sprintf(`document.querySelector(%q).shadowRoot.querySelector("[part=note]").textContent`, element))
}

func TestAHostsPageShowsUsageAndPrices(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	h := w.newHost(w.token("acme", time.Hour), siteStyle)
	b := open(t, 900, 900)
	b.load(h.url)
	b.state("weir-meter", "ready")
	b.state("weir-pricing", "ready")
	b.shoot("embed")
	usage := b.inside("weir-meter")
	for _, s := range []string{"API requests", "Over", "1,204,000 of 1,000,000", "204,000 over: $81.60 so far", "Report exports", "35%", "143 of 400", "257 left", "Resets Apr 1, 2026"} {
		require.Contains(t, usage, s)
	}
	prices := b.inside("weir-pricing")
	for _, s := range []string{"then $0.40 per 1,000, up to 5,000,000 more", "20,000,000", "then $0.25 per 1,000", "Unlimited", "3,000 a minute", "Your plan", "Choose Scale", "each month"} {
		require.Contains(t, prices, s)
	}
	require.NotContains(t, prices, "Choose Pro", "which the reader has")

	type meter struct{ Role, Label, Max, Now, Text string }
	var meters []meter
	require.NoError(t, json.Unmarshal([]byte(value[string](b, `JSON.stringify([...document.querySelector("weir-meter").shadowRoot.querySelectorAll("svg")].map(e => ({
		role: e.getAttribute("role"), label: e.getAttribute("aria-label"), max: e.getAttribute("aria-valuemax"), now: e.getAttribute("aria-valuenow"), text: e.getAttribute("aria-valuetext") })))`)), &meters))
	require.Equal(t, []meter{
		{"meter", "API requests", "1000000", "1000000", "1,204,000 of 1,000,000"}, {"meter", "Report exports", "400", "143", "143 of 400"},
	}, meters)
	const rows = `document.querySelector("weir-pricing").shadowRoot`
	require.Equal(t, 3, value[int](b, rows+`.querySelectorAll("thead th[scope=col]").length`))
	require.Equal(t, 3, value[int](b, rows+`.querySelectorAll("tbody th[scope=row]").length`))
	require.Equal(t, "Plans and what they include", value[string](b, rows+`.querySelector("caption").textContent`))
	require.Equal(t, "$49", value[string](b, rows+`.querySelector("slot[name=price-pro]").assignedElements()[0].textContent`))
	require.Zero(t, value[int](b, `[...document.querySelectorAll("weir-meter, weir-pricing")].flatMap(e => [...e.shadowRoot.querySelectorAll("[style], style")]).length`))
	b.quiet()
}

func TestAnExpiredLinkIsTold(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 790_000)
	h := w.newHost(w.token("acme", -time.Minute), siteStyle)
	b := open(t, 900, 500)
	b.load(h.url)
	b.state("weir-meter", "expired")
	require.Equal(t, "Your usage can't be shown any more: reload this page.", b.note("weir-meter"))
	require.Empty(t, b.inside("weir-meter"))
	b.shoot("embed-expired")
	reads := h.reads.Load()
	require.EqualValues(t, 1, reads)
	// The host renews the link.
	_ = value[bool](b, fmt.Sprintf(`document.querySelector("weir-meter").src = %q, true`, h.worker+"/usage/"+w.token("acme", time.Hour)+".json"))
	b.state("weir-meter", "ready")
	require.Contains(t, b.inside("weir-meter"), "79%")
	require.Empty(t, b.note("weir-meter"))
}

func TestTheLastNumbersStayWhileTheWorkerIsAway(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 790_000)
	h := w.newHost(w.token("acme", time.Hour), siteStyle)
	b := open(t, 900, 500)
	b.load(h.url)
	b.state("weir-meter", "ready")
	h.down.Store(true)
	// A new refresh asks at once.
	_ = value[bool](b, `document.querySelector("weir-meter").setAttribute("refresh", "30"), true`)
	b.state("weir-meter", "stale")
	require.Contains(t, b.inside("weir-meter"), "790,000 of 1,000,000")
	require.Contains(t, b.note("weir-meter"), "may be old")
	b.shoot("embed-stale")
	h.down.Store(false)
	w.use("acme", "requests", 10_000, now)
	w.fold()
	_ = value[bool](b, `document.querySelector("weir-meter").setAttribute("refresh", "31"), true`)
	b.state("weir-meter", "ready")
	require.Contains(t, b.inside("weir-meter"), "800,000 of 1,000,000")
	require.Contains(t, value[string](b, `document.querySelector("weir-meter").shadowRoot.querySelector(".sr").textContent`), "API requests: 80%", "a new level is announced")
}

func TestElementsFollowTheHostsLooksAndLanguage(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 850_000)
	german := documented(t, "html", 1)
	h := w.newHost(w.token("acme", time.Hour), darkStyle, `<weir-meter src="https://usage.example.com/usage/TOKEN.json">
  <a href="https://usage.example.com/usage/TOKEN">See your usage</a>
</weir-meter>`, german)
	b := open(t, 420, 900, dark())
	b.load(h.url)
	b.state("weir-meter", "ready")
	b.state("weir-pricing", "ready")
	b.shoot("embed-dark-phone")
	usage := b.inside("weir-meter")
	require.Contains(t, usage, "850.000 von 1.000.000")
	require.Contains(t, usage, "noch 150.000")
	const inner = `document.querySelector("weir-meter").shadowRoot.querySelector(%q)`
	require.Equal(t, "rgb(42, 59, 68)", value[string](b, fmt.Sprintf(`getComputedStyle(`+inner+`).fill`, ".track")), "dark, as the page is")
	require.Equal(t, "16px", value[string](b, fmt.Sprintf(`getComputedStyle(`+inner+`).height`, "svg")))
	require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 420, "the table scrolls in itself")
	b.quiet()
}

// Names come from the plan file, and numbers may be larger than a double holds.
func TestElementsShowTextAsTextAndNumbersExactly(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1000)
	token := w.token("acme", time.Hour)
	h := w.newHost(token, siteStyle)
	h.fixed["/usage/"+token+".json"] = `{"upgrade_url": "javascript:alert(1)", "features": [{"feature": "x", "name": "<img src=x onerror=alert(1)>",
		"used": 9223372036854775807, "included": 9007199254740993, "remaining": 0, "overage": 9214364837600034814,
		"overage_amount": {"amount": "92143648376000348.14", "currency": "eur"}, "status": "full"}]}`
	h.fixed["/plans.json"] = `{"currency": "usd", "plans": [{"plan": "pro", "name": "<b>Pro</b>", "upgrade_url": "javascript:alert(2)", "interval": "year", "rate": null,
		"quotas": [{"feature": "x", "name": "X & Y", "included": 9007199254740993, "overage": {"price": "0.00012", "per": 1, "max": null}}]}]}`
	b := open(t, 900, 600)
	b.load(h.url)
	b.state("weir-meter", "ready")
	b.state("weir-pricing", "ready")
	usage, prices := b.inside("weir-meter"), b.inside("weir-pricing")
	require.Contains(t, usage, "<img src=x onerror=alert(1)>")
	require.Contains(t, usage, "9,223,372,036,854,775,807 of 9,007,199,254,740,993")
	require.Contains(t, usage, "€92,143,648,376,000,348.14")
	require.Contains(t, prices, "<b>Pro</b>")
	require.Contains(t, prices, "then $0.00012 per 1")
	require.Zero(t, value[int](b, `[...document.querySelectorAll("weir-meter, weir-pricing")].flatMap(e => [...e.shadowRoot.querySelectorAll("a, img")]).length`))
	b.quiet()
}
