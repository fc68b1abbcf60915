package admin_test

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

func TestASearchLeadsToWhatWasMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	customer, sub := w.subscribe("acme/eu", "pro_monthly", "usage")
	w.hour()
	w.use("acme/eu", 1_040)
	w.hour()
	require.NoError(t, w.sim.Advance(t.Context(), start.AddDate(0, 1, 0).AddDate(0, 0, 1)))
	w.node.Flush(w.sim.Now())
	w.work()
	text := func(sql string) string {
		var s string
		require.NoError(t, w.db.QueryRow(t.Context(), sql).Scan(&s))
		return s
	}
	report, invoice := text("SELECT identifier FROM weir.reports ORDER BY id LIMIT 1"), text("SELECT invoice FROM weir.invoices ORDER BY created DESC LIMIT 1")
	number := text("SELECT number FROM weir.invoices WHERE number IS NOT NULL ORDER BY created DESC LIMIT 1")
	v := w.signedIn("Ada")
	at := func(q string) answer { return v.get("/admin/search?q=" + url.QueryEscape(q)) }
	for _, q := range []string{"acme/eu", customer, sub.ID, report, invoice, number, " acme/eu "} {
		a := at(q)
		require.Equal(t, http.StatusSeeOther, a.status, q)
		to := "/admin/accounts/acme%2Feu"
		if q == invoice || q == number {
			to += "?kind=invoice#story"
		}
		require.Equal(t, to, a.header.Get("Location"), q)
	}
	a := at(fmt.Sprint(w.node.ID))
	require.Equal(t, fmt.Sprintf("/admin/nodes/%d", w.node.ID), a.header.Get("Location"))
	require.Equal(t, http.StatusOK, v.get(a.header.Get("Location")).status)
	require.Equal(t, "/admin/accounts", at("").header.Get("Location"))
	for _, q := range []string{"nothing", "cus_none", "sub_none", "in_none", "weir:none", "0", "-1", "99999999999999999999", "a\x00b", "\xff", strings.Repeat("a", 300), "%", "_", "'; DROP TABLE weir.accounts; --"} {
		a := at(q)
		require.Equal(t, http.StatusNotFound, a.status, "%q", q)
		require.Contains(t, a.body, "Nothing is known by that name")
	}
}

func TestASearchByTheBeginningOfAnID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 60 {
		_, err := usage.FindAccount(t.Context(), w.db, fmt.Sprintf("org_%03d", i), true, start)
		require.NoError(t, err)
	}
	for _, name := range []string{"org_01", "orx", "or%", "Org_1", "ünï", "<b>x</b>", "..", "~x", "cus_1"} {
		_, err := usage.FindAccount(t.Context(), w.db, name, true, start)
		require.NoError(t, err)
	}
	v := w.signedIn("Ada")
	a := v.get("/admin/search?q=org_00")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, 10, strings.Count(a.body, ">org_00"))
	require.NotContains(t, a.body, "org_010")
	a = v.get("/admin/search?q=org_")
	require.Contains(t, a.body, "There may be more")
	require.Equal(t, 50, strings.Count(a.body, "<li>"))
	require.Equal(t, "/admin/accounts/org_01", v.get("/admin/search?q=org_01").header.Get("Location"), "an exact one comes first")
	require.Equal(t, http.StatusNotFound, v.get("/admin/search?q=o%25").status, "a percent sign is itself")
	require.NotContains(t, v.get("/admin/search?q=%3Cb%3E").body, "<b>x</b>")

	for name, path := range map[string]string{"or%": "/admin/accounts/or%25", "..": "/admin/accounts/~..", "~x": "/admin/accounts/~~x", "ünï": "/admin/accounts/%C3%BCn%C3%AF"} {
		require.Equal(t, path, v.get("/admin/search?q="+url.QueryEscape(name)).header.Get("Location"))
	}
}

var nextPage = regexp.MustCompile(`href="(/admin/accounts\?after=[^"]+)">More`)

func TestTheListOfAccountsIsPaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 120 {
		_, err := usage.FindAccount(t.Context(), w.db, fmt.Sprintf("org %03d", i), true, start)
		require.NoError(t, err)
	}
	v := w.signedIn("Ada")
	var seen []string
	for path := "/admin/accounts"; path != ""; {
		page := v.page(path)
		for _, m := range regexp.MustCompile(`>(org \d+)</a>`).FindAllStringSubmatch(page, -1) {
			seen = append(seen, m[1])
		}
		path = ""
		if m := nextPage.FindStringSubmatch(page); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	require.Len(t, seen, 120)
	require.IsIncreasing(t, seen)
	page := v.page("/admin/accounts?prefix=" + url.QueryEscape("org 11"))
	require.Contains(t, page, "org 119")
	require.NotContains(t, page, "org 109")
	require.Contains(t, v.page("/admin/accounts?prefix=zzz"), "No account begins with that")
}
