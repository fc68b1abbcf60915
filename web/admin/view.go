package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/assets"
)

//go:embed templates/*.html assets/*
var files embed.FS

// view is what a page is made of. A handler sets the first part; the rest is the layout's.
type view struct {
	Title   string
	Section string // of the navigation: overview, accounts, findings, books, nodes, audit
	Page    any    // the page's own; its template finds it as .Page
	Query   string // what was searched for
	Refresh int    // seconds after which the page loads itself again; 0: never

	Who     person
	FormKey string // forms carry it as a hidden input named key
	Flash   flash
	Jobs    bool // there is a page of jobs
	Now     time.Time
	Assets  assetNames
}

type assetNames struct{ Style, Icon string }

type asset struct {
	kind  string
	bytes []byte
}

// views are the parsed pages, and the assets under names that change with their content.
type views struct {
	pages  map[string]*template.Template
	assets assetNames
	byName map[string]asset
}

// newViews parses each page together with the layout and the parts: a page defines "content".
func newViews() (*views, error) {
	v := &views{pages: map[string]*template.Template{}, byName: map[string]asset{}}
	if err := v.addAssets(); err != nil {
		return nil, err
	}
	base, err := template.New("").Option("missingkey=error").Funcs(functions()).ParseFS(files, "templates/layout.html", "templates/parts*.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	all, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	for _, file := range all {
		name := path.Base(file)
		if name == "layout.html" || strings.HasPrefix(name, "parts") {
			continue
		}
		page, err := base.Clone()
		if err == nil {
			page, err = page.ParseFS(files, file)
		}
		if err != nil {
			return nil, fmt.Errorf("read the template %s: %w", name, err)
		}
		v.pages[name] = page
	}
	return v, nil
}

func (v *views) addAssets() error {
	style, err := assets.Files.ReadFile("weir.css")
	if err != nil {
		return fmt.Errorf("read the style: %w", err)
	}
	own, err := files.ReadFile("assets/admin.css")
	if err != nil {
		return fmt.Errorf("read the style: %w", err)
	}
	account, err := files.ReadFile("assets/account.css")
	if err != nil {
		return fmt.Errorf("read the style: %w", err)
	}
	icon, err := assets.Files.ReadFile("icon.svg")
	if err != nil {
		return fmt.Errorf("read the icon: %w", err)
	}
	v.assets.Style = v.add("admin", ".css", "text/css; charset=utf-8", slices.Concat(style, own, account))
	v.assets.Icon = v.add("icon", ".svg", "image/svg+xml", icon)
	return nil
}

func (v *views) add(name, ext, kind string, b []byte) string {
	sum := sha256.Sum256(b)
	name += "-" + hex.EncodeToString(sum[:6]) + ext
	v.byName[name] = asset{kind, b}
	return "/admin/assets/" + name
}

// asset serves the style, which never changes under its name and holds nothing that anybody may not see.
func (a *Admin) asset(w http.ResponseWriter, r *http.Request) {
	f, ok := a.views.byName[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(f.bytes) // the reader has gone: nobody is left to tell
}

// render writes a page. It is made in full first: an error leaves no half page behind.
func (a *Admin) render(w http.ResponseWriter, r *http.Request, who person, status int, name string, v view) {
	v.Who, v.Assets, v.Now, v.Jobs = who, a.views.assets, a.now(), a.cfg.Jobs != nil
	if who.Name != "" {
		v.FormKey, v.Flash = a.guard.formKey(who), a.said(w, r)
	}
	page, ok := a.views.pages[name]
	if !ok {
		a.log.Error("a page has no template", "template", name)
		http.Error(w, "This page can't be made.", http.StatusInternalServerError)
		return
	}
	var b bytes.Buffer
	if err := page.ExecuteTemplate(&b, "layout", v); err != nil {
		a.log.Error("a page's template failed", "template", name, "error", err)
		http.Error(w, "This page can't be made.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // as above
}

type faultView struct{ Title, Text string }

// fault is a page that says what is wrong and what to do.
func (a *Admin) fault(w http.ResponseWriter, r *http.Request, who person, status int, title, text string) {
	a.render(w, r, who, status, "fault.html", view{Title: title, Page: faultView{title, text}})
}

// failed answers for an error. Its text goes to the log, never to a page.
func (a *Admin) failed(w http.ResponseWriter, r *http.Request, who person, err error) {
	switch {
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		return // nobody waits any more
	case errors.Is(err, usage.ErrNotFound):
		a.fault(w, r, who, http.StatusNotFound, "Nothing of this name", "It is not known here, or not any more. Search for it above.")
	default:
		a.log.Warn("a page of the admin could not be made", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "5")
		a.fault(w, r, who, http.StatusServiceUnavailable, "Not available at the moment", "The database can't be read now, or is too slow. Reload the page in a few seconds; the worker's log says why.")
	}
}

func (a *Admin) nothing(w http.ResponseWriter, r *http.Request, who person) {
	if path := r.URL.EscapedPath(); strings.HasSuffix(path, "/") {
		to := strings.TrimRight(path, "/")
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		http.Redirect(w, r, to, http.StatusPermanentRedirect)
		return
	}
	a.fault(w, r, who, http.StatusNotFound, "There is no such page", "Take one from above.")
}

// accountPath is the address of an account's page. Browsers take dots at the start of a name for steps, so such a name,
// and one that begins with the mark itself, is marked.
func accountPath(account string) string {
	if strings.HasPrefix(account, ".") || strings.HasPrefix(account, "~") {
		account = "~" + account
	}
	return "/admin/accounts/" + url.PathEscape(account)
}

// accountOf is the account that a path names as {account}.
func accountOf(r *http.Request) string { return strings.TrimPrefix(r.PathValue("account"), "~") }

// functions are what templates may call.
func functions() template.FuncMap {
	return template.FuncMap{"count": wording.Count, "instant": instant, "day": day, "accountPath": accountPath, "tab": newTab, "column": column}
}

// tab is one of the navigation's.
type tab struct {
	To, Text string
	Here     bool
}

func newTab(name, to, text, here string) tab { return tab{to, text, name == here} }

// All instants are shown in UTC; the layout says so.
func instant(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") }
func day(t time.Time) string     { return t.UTC().Format("2 Jan 2006") }
