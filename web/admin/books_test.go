package admin_test

import (
	"encoding/csv"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// month makes a month that is over, of an account whose name a spreadsheet would compute.
func (w *world) month(account string) (key int64) {
	w.Helper()
	w.catalogue()
	_, key = w.over(account, 40)
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(-time.Hour), 25*24*time.Hour)
	w.advance(end.Add(2*time.Hour), 20*time.Minute)
	return key
}

func TestTheBooksOfAMonth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const account = `=HYPERLINK("https://evil.example")`
	key := w.month(account)
	v := w.signedIn("Ada")
	require.Equal(t, "/admin/books/2026-02", v.get("/admin/books").header.Get("Location"), "of business time")
	require.Equal(t, "/admin/books/2025-12", v.get("/admin/books?month=2025-12").header.Get("Location"))
	page := v.page("/admin/books/2026-02")
	require.Contains(t, page, "They agree")
	require.Contains(t, page, "=HYPERLINK(&#34;https://evil.example&#34;)")
	number := regexp.MustCompile(`data-is="Invoiced"><a href="([^"]+)">40<`).FindStringSubmatch(page)
	require.NotNil(t, number)
	require.Contains(t, v.page(html.UnescapeString(number[1])), "Invoiced", "a number leads to its rows")
	require.Contains(t, v.page("/admin/books/2026-03"), "No period with overage ended")

	a := v.get("/admin/books/2026-02.csv")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "text/csv; charset=utf-8", a.header.Get("Content-Type"))
	require.Contains(t, a.header.Get("Content-Disposition"), `filename="weir-close-report-2026-02.csv"`)
	rows, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	require.Equal(t, "'"+account, rows[1][0], "no spreadsheet computes it")
	from := slices.Index(rows[0], "overage")
	require.Equal(t, []string{"40", "40", "0", "0", "0", "0", "40", "40", "0", "0"}, rows[1][from:from+10])
	require.Regexp(t, "^in_", rows[1][slices.Index(rows[0], "invoices")])

	// A break is on top of the page at once where its row is, also one that only the rows beneath tell, and everywhere
	// once the sums that were read before have aged.
	w.exec("UPDATE weir.chains SET upto = upto + 1 WHERE key = $1", key)
	page = v.page("/admin/books/2026-02")
	require.Contains(t, page, "1 break<")
	require.Contains(t, page, "its head says 41")
	w.exec("UPDATE weir.chains SET upto = upto - 1 WHERE key = $1", key)
	require.Contains(t, v.page("/admin/books/2026-02"), "They agree")
	w.exec("UPDATE weir.books SET invoiced = invoiced + 1 WHERE key = $1", key)
	behind := "/admin/books/2026-02?after=" + strconv.FormatInt(key, 10)
	require.Contains(t, v.page(behind), "They agree", "paging shows one reading of the sums")
	w.wall = w.wall.Add(time.Minute)
	require.Contains(t, v.page(behind), "overage 40 is not invoiced 41")
	page = v.page("/admin/books/2026-02")
	require.Contains(t, page, "Where the books do not agree")
	require.Contains(t, page, "overage 40 is not invoiced 41")
	require.Less(t, strings.Index(page, "do not agree"), strings.Index(page, "data-is="))
	require.Contains(t, page, `class="broken"`)
	for _, month := range []string{"2026-13", "x", "1999-01", "2026-02.json", "..%2F2026-02"} {
		require.Equal(t, http.StatusNotFound, v.get("/admin/books/"+month).status, month)
	}
	require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/books/2026-02.csv").status)
}

func TestTheBooksArePaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.crowd(250, 2)
	v := w.signedIn("Ada")
	seen, next := map[string]bool{}, "/admin/books/2026-01"
	pages := 0
	for ; next != ""; pages++ {
		page := v.page(next)
		require.Contains(t, page, "Total", "of all of them, on each page")
		require.Contains(t, page, "250 in all")
		require.Contains(t, page, "They agree")
		for _, m := range regexp.MustCompile(`<th scope="row"><a href="/admin/accounts/(acct-\d+)"`).FindAllStringSubmatch(page, -1) {
			require.False(t, seen[m[1]], "%s is on two pages", m[1])
			seen[m[1]] = true
		}
		next = ""
		if m := regexp.MustCompile(`<a href="([^"]+)">More`).FindStringSubmatch(page); m != nil {
			next = html.UnescapeString(m[1])
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, seen, 250)
	require.Contains(t, v.page("/admin/books/2026-01?after=x"), "acct-000001", "what is no place is the beginning")
}

func TestInvoicesOfAStoryAreInMoney(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.month("acme")
	page := w.signedIn("Ada").page("/admin/accounts/acme?kind=invoice")
	require.Regexp(t, `total \d+\.\d\d USD`, page)
	require.Regexp(t, `40 units, 0\.02 USD`, page)
	require.Regexp(t, `<li>40 of them are of events of acme, 10 Jan 2026`, page, "where a line's units come from")
	require.NotContains(t, page, "minor units")
}
