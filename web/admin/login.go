package admin

import (
	"net/http"
	"path"
	"strings"

	"github.com/weirhq/weir/internal/edge/problem"
)

// admitted lets those in whom the guard knows. To others a browser shows the login page, with status 401.
func (a *Admin) admitted(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.mayShow(w, r, false) {
			return
		}
		who, ok := a.guard.who(r)
		if !ok {
			a.refuse(w, r)
			return
		}
		switch ended, err := a.ended(r.Context(), who); {
		case err != nil:
			a.failed(w, r, person{}, err)
		case ended:
			a.refuse(w, r)
		default:
			h(w, r, who)
		}
	})
}

// refuse answers who was not admitted, and says what to do about it.
func (a *Admin) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	v := loginView{Off: a.guard.off(), Token: a.guard.set, Next: "/admin/"}
	if r.Method == http.MethodGet {
		v.Next = r.URL.RequestURI()
	}
	message := "The request shows no valid token: send Authorization: Bearer with the value of WEIR_ADMIN_TOKEN."
	switch {
	case v.Off:
		message = "This worker has no admin token and trusts no proxy, so its admin pages are refused: set WEIR_ADMIN_TOKEN, or --admin-user-header and --admin-trusted-proxies."
	case a.guard.header != "" && r.Header.Get(a.guard.header) != "" && !a.guard.trusted(r.RemoteAddr):
		message = "The header " + a.guard.header + " is taken from trusted proxies only, and this request did not come from one: see --admin-trusted-proxies."
		v.Error = message
	case !a.guard.set:
		message = "These pages are reached through the proxy that signs people in: it sends " + a.guard.header + " with one name."
	}
	if !wantsPage(r) {
		problem.New(http.StatusUnauthorized, problem.Unauthorized, "Unauthorized", message).Write(w)
		return
	}
	v.Message = message
	a.render(w, r, person{}, http.StatusUnauthorized, "login.html", view{Title: "Sign in", Page: v})
}

type loginView struct {
	Off     bool // nobody can sign in
	Token   bool // the form is shown
	Message string
	Error   string
	Name    string
	Next    string
}

// login takes the token once and opens a session under a name.
func (a *Admin) login(w http.ResponseWriter, r *http.Request) {
	if err := a.own.Check(r); err != nil {
		a.foreign(w, r)
		return
	}
	if !a.guard.set {
		a.refuse(w, r)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		a.fault(w, r, person{}, http.StatusBadRequest, "This form can't be read", "Go back and send it again.")
		return
	}
	v := loginView{Token: true, Name: r.PostForm.Get("name"), Next: ownPath(r.PostForm.Get("next"))}
	name, named := cleanName(v.Name)
	status := http.StatusUnauthorized
	from := a.guard.client(r)
	seen := a.attempts.look(from, strings.TrimSpace(r.PostForm.Get("token")), false)
	if seen == wrong {
		a.log.Warn("a login to the admin was refused", "from", from)
	}
	switch {
	case seen == unseen:
		a.tooMany(w, r)
		return
	case seen != right:
		v.Error = "This is not the token. It is the value of WEIR_ADMIN_TOKEN of the worker."
	case !named:
		v.Error, status = "Enter a name of 1 to 64 visible characters: it stands beside everything that you do.", http.StatusUnprocessableEntity
	default:
		a.log.Info("a session of the admin was opened", "name", name, "from", from)
		setCookie(w, r, sessionCookie, a.guard.newSession(name), sessionLife)
		http.Redirect(w, r, v.Next, http.StatusSeeOther)
		return
	}
	if len(v.Name) > 4*maxNameRunes {
		v.Name = ""
	}
	a.render(w, r, person{}, status, "login.html", view{Title: "Sign in", Page: v})
}

// logout ends a session, and not only its cookie: a copy of it admits nobody any more.
func (a *Admin) logout(w http.ResponseWriter, r *http.Request, who person) {
	if who.via == bySession {
		if err := a.end(r.Context(), who); err != nil {
			a.failed(w, r, who, err)
			return
		}
	}
	setCookie(w, r, sessionCookie, "", 0)
	http.Redirect(w, r, "/admin/", http.StatusSeeOther)
}

// ownPath is where a login leads: back to a page of the admin, never elsewhere. A path that a redirect or a browser would
// write another way is none of ours: of /admin/../\evil.example both make an address of another host.
func ownPath(s string) string {
	p, _, _ := strings.Cut(s, "?")
	switch {
	case strings.ContainsAny(s, "\\\t\r\n"), path.Clean(p) != strings.TrimSuffix(p, "/"), p == "/admin/login", p == "/admin/logout":
	case p == "/admin", strings.HasPrefix(p, "/admin/"):
		return s
	}
	return "/admin/"
}

// wantsPage reports whether a browser asks.
func wantsPage(r *http.Request) bool {
	_, shows := bearer(r)
	return !shows && strings.Contains(r.Header.Get("Accept"), "text/html")
}
