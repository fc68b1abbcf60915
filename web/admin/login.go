package admin

import (
	"net"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirhq/weir/internal/edge/problem"
)

// admitted lets those in whom the guard knows. To others a browser shows the login page, with status 401.
func (a *Admin) admitted(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, shows := bearer(r)
		if shows && !a.attempts.may(r.RemoteAddr) {
			a.tooMany(w, r)
			return
		}
		who, ok := a.guard.who(r)
		if ok {
			h(w, r, who)
			return
		}
		if shows {
			a.attempts.failed(r.RemoteAddr)
		}
		a.refuse(w, r)
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
	switch {
	case !a.attempts.may(r.RemoteAddr):
		a.tooMany(w, r)
		return
	case !a.guard.fits(strings.TrimSpace(r.PostForm.Get("token"))):
		a.attempts.failed(r.RemoteAddr)
		a.log.Warn("a login to the admin was refused", "from", r.RemoteAddr)
		v.Error = "This is not the token. It is the value of WEIR_ADMIN_TOKEN of the worker."
	case !named:
		v.Error, status = "Enter a name of 1 to 64 visible characters: it stands beside everything that you do.", http.StatusUnprocessableEntity
	default:
		a.log.Info("a session of the admin was opened", "name", name, "from", r.RemoteAddr)
		setCookie(w, r, sessionCookie, a.guard.newSession(name), sessionLife)
		http.Redirect(w, r, v.Next, http.StatusSeeOther)
		return
	}
	if len(v.Name) > 4*maxNameRunes {
		v.Name = ""
	}
	a.render(w, r, person{}, status, "login.html", view{Title: "Sign in", Page: v})
}

func (a *Admin) logout(w http.ResponseWriter, r *http.Request, _ person) {
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

const (
	attemptsEach = 6 * time.Second // wrong tokens from one address, on average
	attemptsOnce = 10              // at once
	maxAddresses = 1000            // that are remembered; beyond that all share one allowance
)

// attempts bounds how often wrong tokens may be shown: per address, and IPv6 addresses per network.
type attempts struct {
	wall func() time.Time

	mu  sync.Mutex // guards what follows
	all map[string]*rate.Limiter
}

func newAttempts(wall func() time.Time) *attempts {
	return &attempts{wall: wall, all: map[string]*rate.Limiter{}}
}

// of is the allowance of an address. Those that are whole again are forgotten when there are too many.
func (t *attempts) of(remote string) *rate.Limiter {
	from := network(remote)
	l, ok := t.all[from]
	if ok {
		return l
	}
	if len(t.all) >= maxAddresses {
		for k, v := range t.all {
			if k != "" && v.TokensAt(t.wall()) >= attemptsOnce {
				delete(t.all, k)
			}
		}
		if len(t.all) >= maxAddresses {
			from = ""
			if l, ok = t.all[from]; ok {
				return l
			}
		}
	}
	l = rate.NewLimiter(rate.Every(attemptsEach), attemptsOnce)
	t.all[from] = l
	return l
}

// may reports whether a token from there is looked at.
func (t *attempts) may(remote string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(remote).TokensAt(t.wall()) >= 1
}

func (t *attempts) failed(remote string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(remote).AllowN(t.wall(), 1)
}

func network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "unix"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap(); addr.Is6() {
		p, _ := addr.Prefix(64)
		return p.String()
	}
	return addr.String()
}

func (a *Admin) tooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(int(attemptsEach/time.Second)))
	const text = "Too many wrong tokens came from this address. Wait a minute and try again."
	if !wantsPage(r) {
		problem.New(http.StatusTooManyRequests, "rate_limited", "Too many attempts", text).Write(w)
		return
	}
	a.fault(w, r, person{}, http.StatusTooManyRequests, "Too many attempts", text)
}
