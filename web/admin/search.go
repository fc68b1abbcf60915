package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/weirhq/weir/books"
)

const (
	mostMatches  = 50
	accountsEach = 50 // of a page
)

type searchView struct {
	Matches []matchView
	Full    bool // there may be more
}

type matchView struct{ What, ID, To, More string }

// search leads to what was looked for: straight there when an id is met exactly, else over a list.
func (a *Admin) search(w http.ResponseWriter, r *http.Request, who person) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if text == "" {
		http.Redirect(w, r, "/admin/accounts", http.StatusSeeOther)
		return
	}
	var found []books.Match
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		found, err = books.Lookup(ctx, a.cfg.DB, text, mostMatches)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	if len(found) > 0 && found[0].ID == text && pathOf(&found[0]) != "" && (len(found) == 1 || found[0].What != "account" || found[1].What == "account") {
		http.Redirect(w, r, pathOf(&found[0]), http.StatusSeeOther)
		return
	}
	v := searchView{Full: len(found) >= mostMatches}
	for i := range found {
		m := &found[i]
		x := matchView{What: m.What, ID: m.ID, To: pathOf(m)}
		switch {
		case m.What == "account":
			x.More = m.Customer
		case m.What == "node":
		case m.Account == "":
			x.More = "mapped to no account"
		default:
			x.More = "of account " + m.Account
		}
		v.Matches = append(v.Matches, x)
	}
	status := http.StatusOK
	if len(found) == 0 {
		status = http.StatusNotFound
	}
	a.render(w, r, who, status, "search.html", view{Title: "Search", Query: shortened(text), Page: v})
}

// pathOf is the page of a match; what belongs to no account has none but the findings that say so.
func pathOf(m *books.Match) string {
	switch {
	case m.What == "node":
		return "/admin/nodes/" + m.ID
	case m.Account != "" && m.What == "invoice":
		return accountPath(m.Account) + "?kind=invoice#story"
	case m.Account != "":
		return accountPath(m.Account)
	}
	return ""
}

func shortened(s string) string {
	if len(s) > 255 {
		return strings.ToValidUTF8(s[:255], "")
	}
	return s
}

type accountsView struct {
	Prefix string
	Rows   []accountRow
	Next   string // the page after; empty: this is the last
	First  bool
}

type accountRow struct {
	Account, To, Plan, Customer, Since string
	Findings                           string
	Shadow                             bool
}

// accounts lists all accounts, or those whose ids begin with something.
func (a *Admin) accounts(w http.ResponseWriter, r *http.Request, who person) {
	q := r.URL.Query()
	prefix, after := cleanID(q.Get("prefix")), cleanID(q.Get("after"))
	var rows []books.AccountRow
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		rows, err = books.Accounts(ctx, a.cfg.DB, prefix, after, accountsEach+1)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := accountsView{Prefix: prefix, First: after == ""}
	if len(rows) > accountsEach {
		rows = rows[:accountsEach]
		v.Next = "/admin/accounts?" + url.Values{"prefix": {prefix}, "after": {rows[accountsEach-1].Account}}.Encode()
	}
	for i := range rows {
		x := &rows[i]
		row := accountRow{Account: x.Account, To: accountPath(x.Account), Plan: x.Plan, Customer: x.Customer, Shadow: x.Shadow, Since: day(x.CreatedAt)}
		if x.Plan == "" {
			row.Plan = "default plan"
		}
		if x.Findings > 0 {
			row.Findings = strconv.FormatInt(x.Findings, 10)
		}
		v.Rows = append(v.Rows, row)
	}
	a.render(w, r, who, http.StatusOK, "accounts.html", view{Title: "Accounts", Section: "accounts", Page: v})
}

// cleanID is text that the database takes; what cannot be an id is nothing.
func cleanID(s string) string {
	if len(s) > 255 || strings.ContainsRune(s, 0) || strings.ToValidUTF8(s, "") != s {
		return ""
	}
	return s
}
