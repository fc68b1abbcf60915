package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/admin"
)

func login(name, token string) url.Values { return url.Values{"name": {name}, "token": {token}} }

func TestNobodyIsAdmittedWithoutProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/admin/", "/admin/accounts/acme", "/admin/nothing"} {
		a := w.browser().get(path)
		require.Equal(t, http.StatusUnauthorized, a.status, path)
		require.Contains(t, a.body, "Admin token")
		require.NotContains(t, a.body, "Overview")
		a = w.browser("Accept", "application/json").get(path)
		require.Equal(t, http.StatusUnauthorized, a.status, path)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.Contains(t, a.header.Get("WWW-Authenticate"), "Bearer")
		require.Equal(t, http.StatusUnauthorized, w.browser().get(path, "Authorization", "Bearer wrong").status)
		require.Equal(t, http.StatusUnauthorized, w.browser().get(path, "Authorization", "Basic "+adminToken).status)
		require.Equal(t, http.StatusUnauthorized, w.browser().get(path, "X-Forwarded-User", "mallory").status)
		require.Equal(t, http.StatusUnauthorized, w.browser().get(path, "Cookie", "weir_admin=9999999999.bWFsbG9yeQ.AAAA").status)
	}
	require.Equal(t, http.StatusUnauthorized, w.browser().post("/admin/logout", url.Values{}).status)
	require.Equal(t, http.StatusOK, w.browser().get("/admin/", "Authorization", "Bearer "+adminToken).status)
	require.Equal(t, http.StatusNotFound, w.browser().get("/admin/nothing", "Authorization", "Bearer "+adminToken).status)
}

func TestALoginOpensASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.browser()
	a := v.post("/admin/login", login("Ada", "wrong"))
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, "This is not the token")
	require.NotContains(t, a.body, "wrong")
	for _, name := range []string{"", "  ", "a\nb", strings.Repeat("x", 65), "a\u202eb"} {
		require.Equal(t, http.StatusUnprocessableEntity, v.post("/admin/login", login(name, adminToken)).status, "%q", name)
	}
	require.Empty(t, v.get("/admin/").header.Values("Set-Cookie"))
	form := login("Ada Ärger", adminToken)
	form.Set("next", "/admin/accounts/acme?x=1")
	a = v.post("/admin/login", form)
	require.Equal(t, http.StatusSeeOther, a.status)
	require.Equal(t, "/admin/accounts/acme?x=1", a.header.Get("Location"))
	cookie := a.header.Get("Set-Cookie")
	for _, part := range []string{"HttpOnly", "SameSite=Strict", "Path=/admin", "Max-Age=28800"} {
		require.Contains(t, cookie, part)
	}
	require.NotContains(t, cookie, "Secure", "it came over plain http")
	require.Contains(t, w.browser().post("/admin/login", form, "X-Forwarded-Proto", "https").header.Get("Set-Cookie"), "Secure")
	require.Contains(t, v.page("/admin/"), "Ada Ärger")
	for _, next := range []string{"https://evil.example", "//evil.example", "/adminx", "javascript:alert(1)", "/usage/x",
		`/admin/../\evil.example`, `/admin/..\evil.example`, "/admin/..//evil.example", "/admin/../usage/x", "/admin/./../x", "/admin//x", "/admin/\t/x", "/admin/login", "/admin/logout?x=1",
	} {
		form.Set("next", next)
		require.Equal(t, "/admin/", w.browser().post("/admin/login", form).header.Get("Location"), next)
	}
}

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.signedIn("Ada")
	w.wall = w.wall.Add(8*time.Hour - time.Second)
	require.Equal(t, http.StatusOK, v.get("/admin/").status)
	w.wall = w.wall.Add(time.Second)
	require.Equal(t, http.StatusUnauthorized, v.get("/admin/").status, "its time is over")

	v = w.signedIn("Ada")
	other := w.signedIn("Ada")
	stolen := v.http.Jar.Cookies(mustParse(t, w.url+"/admin/"))[0].String()
	require.Equal(t, http.StatusOK, w.browser().get("/admin/", "Cookie", stolen).status)
	key := v.key("/admin/")
	require.Equal(t, http.StatusSeeOther, v.post("/admin/logout", url.Values{"key": {key}}).status)
	require.Equal(t, http.StatusUnauthorized, v.get("/admin/").status, "it was ended")
	require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/", "Cookie", stolen).status, "and so are its copies")
	require.Equal(t, http.StatusOK, other.get("/admin/").status, "another session of the same moment goes on")
	w.serve()
	require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/", "Cookie", stolen).status, "at every worker")
	w.wall = w.wall.Add(9 * time.Hour)
	v = w.signedIn("Ada")
	require.Equal(t, http.StatusSeeOther, v.post("/admin/logout", url.Values{"key": {v.key("/admin/")}}).status)
	var kept int
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT count(*) FROM weir.ended_sessions").Scan(&kept))
	require.Equal(t, 1, kept, "those whose time is over are forgotten")

	v = w.signedIn("Ada")
	w.cfg.Token = "another token"
	before := w.url
	w.serve()
	for _, c := range v.http.Jar.Cookies(mustParse(t, before+"/admin/")) {
		require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/", "Cookie", c.String()).status, "the token was changed")
	}
}

func mustParse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	require.NoError(t, err)
	return u
}

func TestWrongTokensAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 5 {
		require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/", "Authorization", fmt.Sprint("Bearer a", n)).status)
		require.Equal(t, http.StatusUnauthorized, w.browser().post("/admin/login", login("Mallory", fmt.Sprint("b", n))).status)
	}
	a := w.browser().post("/admin/login", login("Ada", adminToken))
	require.Equal(t, http.StatusTooManyRequests, a.status, "not even the right one is looked at")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, http.StatusTooManyRequests, w.browser().get("/admin/", "Authorization", "Bearer "+adminToken).status)
	w.wall = w.wall.Add(time.Minute)
	require.Equal(t, http.StatusSeeOther, w.browser().post("/admin/login", login("Ada", adminToken)).status)
}

func TestATrustedProxySaysWho(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *admin.Config) {
		c.Token, c.UserHeader, c.TrustedProxies = "", "X-Forwarded-User", []string{"10.0.0.0/8", "127.0.0.1"}
	})
	v := w.browser("X-Forwarded-User", "ada@example.com")
	require.Contains(t, v.page("/admin/"), "ada@example.com")
	a := w.browser().get("/admin/")
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, "through the proxy")
	require.Equal(t, http.StatusUnauthorized, w.browser("X-Forwarded-User", " ").get("/admin/").status)
	require.Equal(t, http.StatusUnauthorized, w.browser().post("/admin/login", login("Ada", "")).status, "an unset token is none")
	require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/", "Authorization", "Bearer ").status)

	w.cfg.TrustedProxies = []string{"10.0.0.0/8", "unix"}
	w.serve()
	a = w.browser("X-Forwarded-User", "mallory").get("/admin/")
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, "taken from trusted proxies only")
}

func TestWithoutAnyProofTheAdminSaysWhatToSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *admin.Config) { c.Token = "" })
	a := w.browser().get("/admin/")
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, "WEIR_ADMIN_TOKEN")
	require.NotContains(t, a.body, "<form")
	require.Equal(t, http.StatusUnauthorized, w.browser().post("/admin/login", login("Ada", "")).status)
}

func TestPostsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.signedIn("Ada")
	form := url.Values{"key": {v.key("/admin/")}}
	for _, from := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		require.Equal(t, http.StatusForbidden, v.post("/admin/logout", form, from...).status, from)
		require.Equal(t, http.StatusForbidden, v.post("/admin/login", login("Ada", adminToken), from...).status, from)
	}
	require.Equal(t, http.StatusForbidden, v.post("/admin/logout", url.Values{}).status, "no key")
	other := w.signedIn("Grace")
	require.Equal(t, http.StatusForbidden, v.post("/admin/logout", url.Values{"key": {other.key("/admin/")}}).status, "another person's key")
	require.Equal(t, http.StatusBadRequest, v.post("/admin/logout", url.Values{"key": {strings.Repeat("k", 100_000)}}).status)
	require.Equal(t, http.StatusOK, v.get("/admin/").status, "the session is still there")
	require.Equal(t, http.StatusSeeOther, v.post("/admin/logout", form, "Sec-Fetch-Site", "same-origin").status)
}

func TestPagesAreStrict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.signedIn("<script>alert(1)</script>").get("/admin/")
	csp := a.header.Get("Content-Security-Policy")
	require.Contains(t, csp, "default-src 'none'")
	require.Contains(t, csp, "frame-ancestors 'none'")
	require.NotContains(t, csp, "unsafe")
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	require.Equal(t, "DENY", a.header.Get("X-Frame-Options"))
	require.NotRegexp(t, `(?i)<script|<style| style=| on[a-z]+=|(src|href)="(https?:)?//`, a.body)
	require.Contains(t, a.body, "&lt;script&gt;")
}

func TestWhatNewRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, tune := range map[string]func(*admin.Config){
		"no database":      func(c *admin.Config) { c.DB = nil },
		"header alone":     func(c *admin.Config) { c.UserHeader = "X-User" },
		"no network":       func(c *admin.Config) { c.TrustedProxies = []string{"proxy.example"} },
		"no network's end": func(c *admin.Config) { c.UserHeader, c.TrustedProxies = "X-User", []string{"10.0.0.0/99"} },
	} {
		cfg := w.cfg
		tune(&cfg)
		_, err := admin.New(cfg)
		require.Error(t, err, name)
	}
}

func TestAnAddressWithASlashTooManyLeadsToItsPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/admin/accounts/":         "/admin/accounts",
		"/admin/accounts/?after=a": "/admin/accounts?after=a",
		"/admin/no/such/page/":     "/admin/no/such/page",
		"/admin/a%20b%2F/":         "/admin/a%20b%2F",
	} {
		a := w.browser().get(path, "Authorization", "Bearer "+adminToken)
		require.Equal(t, http.StatusPermanentRedirect, a.status, path)
		require.Equal(t, want, a.header.Get("Location"), path)
	}
}
