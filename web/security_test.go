package web_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web"
)

func TestALinkShowsNothingOfAnotherAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.subscribe("umbrella", "pro")
	w.use("acme", "events", 111)
	w.use("umbrella", "events", 999)
	require.Equal(t, 111., feature(t, w.numbers("acme"), 0)["used"])
	page := w.page("acme")
	require.NotContains(t, page, "umbrella")
	require.NotContains(t, page, "999")
	next := w.stream("/usage/" + w.token("acme") + "/live")
	require.NotContains(t, next(), "999")
}

func TestTokensThatAreNotOursAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	good := w.token("acme")
	expired, err := w.links.Token("acme", w.wall)
	require.NoError(t, err)
	form := url.Values{"key": {w.links.FormKey(good, "spending cap")}, "feature": {"events"}, "amount": {"1"}, "do": {"set"}}
	for name, token := range map[string]string{
		"expired": expired, "truncated": good[:len(good)-1], "longer": good + "A", "forged": strings.Repeat("A", len(good)), "short": "x",
		"long": strings.Repeat("A", 5000), "json of json": good + ".json",
	} {
		for _, path := range []string{"/usage/" + token, "/usage/" + token + ".json", "/usage/" + token + "/live"} {
			if name == "json of json" && !strings.HasSuffix(path, ".json.json") && !strings.HasSuffix(path, "live") {
				continue
			}
			a := w.get(path)
			require.Equal(t, http.StatusForbidden, a.status, "%s %s", name, path)
			require.NotContains(t, a.body, "acme")
		}
		a := w.do(http.MethodPost, "/usage/"+token+"/cap", form)
		require.Equal(t, http.StatusForbidden, a.status, name)
	}
	require.Contains(t, w.get("/usage/"+expired).body, "This link has expired")
	closed := newWorld(t, func(c *web.Config) { c.Links = nil })
	require.Equal(t, http.StatusForbidden, closed.get("/usage/"+good).status)
	require.Nil(t, feature(t, w.numbers("acme"), 0)["spending_cap"])
}

func TestPolicyHeaders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.get("/usage/" + w.token("acme"))
	csp := a.header.Get("Content-Security-Policy")
	require.Contains(t, csp, "default-src 'none'")
	require.Contains(t, csp, "frame-ancestors 'none'")
	require.NotContains(t, csp, "unsafe")
	require.Equal(t, "DENY", a.header.Get("X-Frame-Options"))
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
	require.Equal(t, "same-origin", a.header.Get("Referrer-Policy"))
	require.Empty(t, a.header.Get("Set-Cookie"))
	// Nothing inline, nothing from elsewhere.
	require.NotRegexp(t, `(?i)<script[^>]*>[^<]|<style| style=| on[a-z]+=|(src|href)="(https?:)?//`, strings.ReplaceAll(a.body, `href="https://example.com/upgrade"`, ""))

	w = newWorld(t, func(c *web.Config) { c.FrameAncestors = []string{"https://app.example.com", "http://localhost:3000"} })
	a = w.get("/usage/" + w.token("acme"))
	require.Contains(t, a.header.Get("Content-Security-Policy"), "frame-ancestors https://app.example.com http://localhost:3000")
	require.Empty(t, a.header.Get("X-Frame-Options"))
	for _, origin := range []string{"*", "app.example.com", "https://app.example.com/path", "https://a.example.com; script-src *", "https://a b", ""} {
		_, err := web.New(web.Config{DB: w.db, Clock: w.clock, Logger: nilLogger(), FrameAncestors: []string{origin}})
		require.Error(t, err, origin)
	}
}

func TestNamesWithMarkupInThemAreInert(t *testing.T) {
	t.Parallel()
	evil := `<script>alert(1)</script>"><img src=x onerror=alert(1)>`
	w := worldOf(t, `
currency: usd
default_plan: free
features:
  events: {display_name: '`+evil+`', unit: '<b>', meter: weir_events_overage}
plans:
  free:
    display_name: '`+evil+`'
    quota: {events: 10}
    on_exceeded: block
  pro:
    display_name: '`+evil+`'
    prices: [pro]
    quota: {events: {included: 10, overage: {price: "1", per: 1, max: 5}}}
    on_exceeded: bill_overage
`)
	w.subscribe(evil, "pro")
	w.use(evil, "events", 12)
	for _, body := range []string{w.page(evil), w.get("/plans").body} {
		require.NotContains(t, body, "<script>alert")
		require.NotContains(t, body, "<img")
		require.NotContains(t, body, "<b>of")
		require.Contains(t, html.UnescapeString(body), evil)
	}
	live := w.stream("/usage/" + w.token(evil) + "/live")()
	require.NotContains(t, live, "<script>")
	require.NotContains(t, live, "<img")
	a := w.get("/usage/" + w.token(evil) + ".json")
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.NotContains(t, a.body, "<script>")
}

var formKey = regexp.MustCompile(`name="key" value="([^"]+)"`)

func TestACapIsSetByThePagesOwnFormOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.use("acme", "events", 10)
	token := w.token("acme")
	m := formKey.FindStringSubmatch(w.page("acme"))
	require.NotNil(t, m)
	form := url.Values{"key": {m[1]}, "feature": {"events"}, "amount": {"1.50"}, "do": {"set"}}
	post := func(form url.Values, headers ...string) answer {
		return w.do(http.MethodPost, "/usage/"+token+"/cap", form, headers...)
	}
	limit := func() any { return feature(t, w.numbers("acme"), 0)["limit"] }

	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		require.Equal(t, http.StatusForbidden, post(form, from...).status, from)
	}
	keyless := url.Values{"feature": {"events"}, "amount": {"1"}, "do": {"set"}}
	require.Equal(t, http.StatusForbidden, post(keyless).status)
	keyless.Set("key", w.links.FormKey(w.token("umbrella"), "spending cap"))
	require.Equal(t, http.StatusForbidden, post(keyless).status)
	require.Equal(t, http.StatusMethodNotAllowed, w.get("/usage/"+token+"/cap").status)
	require.Equal(t, 6000., limit(), "nothing has changed")

	a := post(form, "Sec-Fetch-Site", "same-origin")
	require.Equal(t, http.StatusSeeOther, a.status, a.body)
	require.Equal(t, 1000.+3750, limit(), "floor(1.50 / 0.0004)")
	saved := w.get(strings.TrimSuffix(a.header.Get("Location"), "#cap-f0")).body
	require.Contains(t, saved, "Saved. It applies from now on.")
	require.Contains(t, saved, "$1.50 (3,750 events)")
	require.Contains(t, saved, "up to your spending cap of $1.50 (3,750 events)")

	form.Set("do", "remove")
	require.Equal(t, http.StatusSeeOther, post(form).status)
	require.Equal(t, 6000., limit())
}

func TestAmountsThatAreNoCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.use("acme", "events", 1_200)
	token := w.token("acme")
	for amount, want := range map[string]string{
		"": "Enter an amount", "-1": "Enter an amount", "1,50": "Enter an amount", "1e3": "Enter an amount", "1.": "Enter an amount", ".5": "Enter an amount",
		"1.005": "at most 9 digits and 2 decimals", "1234567890": "at most", "<script>": "Enter an amount",
	} {
		a := w.do(http.MethodPost, "/usage/"+token+"/cap", url.Values{"key": {w.links.FormKey(token, "spending cap")}, "feature": {"events"}, "amount": {amount}, "do": {"set"}})
		require.Equal(t, http.StatusUnprocessableEntity, a.status, amount)
		require.Contains(t, html.UnescapeString(a.body), want, amount)
		require.Contains(t, a.body, `aria-invalid="true"`)
		require.NotContains(t, a.body, "<script>")
	}
	for _, f := range []string{"seats", "nothing"} {
		a := w.do(http.MethodPost, "/usage/"+token+"/cap", url.Values{"key": {w.links.FormKey(token, "spending cap")}, "feature": {f}, "amount": {"1"}, "do": {"set"}})
		require.Equal(t, http.StatusBadRequest, a.status)
	}
	a := w.do(http.MethodPost, "/usage/"+token+"/cap", url.Values{"key": {strings.Repeat("k", 10_000)}})
	require.Equal(t, http.StatusBadRequest, a.status)

	// Nothing may go over any more; what did stays due.
	a = w.do(http.MethodPost, "/usage/"+token+"/cap", url.Values{"key": {w.links.FormKey(token, "spending cap")}, "feature": {"events"}, "amount": {"0"}, "do": {"set"}})
	require.Equal(t, http.StatusSeeOther, a.status)
	page := w.page("acme")
	require.Contains(t, page, "Spending cap reached")
	require.Contains(t, page, "your spending cap of $0.00 applies, so further calls are refused")
	require.Contains(t, page, "$0.08")
}

func TestLinksExpireByWallTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token := w.token("acme")
	w.clock.Set(april.AddDate(1, 0, 0)) // a simulated year says nothing
	require.Equal(t, http.StatusOK, w.get("/usage/"+token).status)
	w.wall = w.wall.Add(time.Hour)
	require.Equal(t, http.StatusForbidden, w.get("/usage/"+token).status)
}
