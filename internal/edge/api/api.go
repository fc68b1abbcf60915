// Package api is the sidecar's HTTP interface: the routes that servers in any language call.
//
// Every answer is JSON; a fault is a problem (package problem) that says what is wrong, where, and what to do. A call
// that is refused, or can't be decided, is answered with the bytes of enforcer.Answers, as the middleware answers it.
package api

import (
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/problem"
)

// Limits of what the interface takes. Past them a call is answered 400.
const (
	MaxBody     = 256 << 10       // bytes of a request's body
	MaxBatch    = 1000            // calls in a list
	requestTime = 5 * time.Second // for a list, and for all features of an account; what comes after is answered unavailable
)

// Config configures an API. Enforcer, Registry and Logger are needed.
type Config struct {
	Enforcer *enforcer.Enforcer
	Registry *prometheus.Registry // served at /metrics
	Logger   *slog.Logger
	// Token is the bearer token that callers must show; empty: whoever can connect may call.
	Token string
	// NotReady says why the process can't answer calls now, in words that anybody may read; "" when it can. Nil: it
	// always can.
	NotReady func() string
	// Trusted are the networks of one's own proxies, whose X-Forwarded-For is believed at /v1/auth. Who calls that
	// route is one of them anyway.
	Trusted []netip.Prefix
	// Draft adds the IETF draft's RateLimit fields.
	Draft bool
}

// API answers requests. Make it with New; safe for concurrent use.
type API struct {
	cfg     Config
	token   *token
	metrics *metrics
	handler http.Handler

	reservations *reservations
	questions    questions
	draining     atomic.Bool
	born         time.Time // calls are timed from it: one reading of the clock each
	scratches    sync.Pool
	json         []string // values of headers, shared and never changed
	noStore      []string
}

// New makes an API and registers its metrics.
func New(cfg Config) (*API, error) {
	a := &API{cfg: cfg, token: newToken(cfg.Token), reservations: newReservations(), born: time.Now(), json: []string{"application/json"}, noStore: []string{"no-store"}}
	var err error
	if a.metrics, err = newMetrics(cfg.Registry, cfg.Enforcer); err != nil {
		return nil, err
	}
	a.handler = a.mux()
	return a, nil
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.handler.ServeHTTP(w, r) }

// handle answers a request and returns the status that it sent.
type handle func(w http.ResponseWriter, r *http.Request) int

// Route is one method of one path.
type Route struct {
	Method string // empty: any
	Path   string // a pattern of http.ServeMux
	Open   bool   // needs no token
	spends bool   // is not answered any more while the API drains
	handle handle
}

// Routes lists every route.
func (a *API) Routes() []Route {
	return []Route{
		{Method: http.MethodPost, Path: "/v1/consume", spends: true, handle: a.consume},
		{Method: http.MethodPost, Path: "/v1/reserve", spends: true, handle: a.reserve},
		{Method: http.MethodPost, Path: "/v1/reservations/{id}/settle", handle: a.settle},
		{Method: http.MethodPost, Path: "/v1/reservations/{id}/cancel", handle: a.cancel},
		{Method: http.MethodGet, Path: "/v1/usage/{account}", handle: a.usage},
		{Path: authPath, spends: true, handle: a.auth},
		{Path: authPrefix + "{feature}/", spends: true, handle: a.authByPath},
		{Method: http.MethodGet, Path: "/openapi.json", Open: true, handle: a.describe},
		{Method: http.MethodGet, Path: "/healthz", Open: true, handle: a.healthz},
		{Method: http.MethodGet, Path: "/readyz", Open: true, handle: a.readyz},
		{Method: http.MethodGet, Path: "/metrics", handle: a.serveMetrics},
	}
}

// mux routes requests. Other methods of a known path, and other paths, are answered with problems.
func (a *API) mux() http.Handler {
	byPath := make(map[string][]Route)
	for _, r := range a.Routes() {
		byPath[r.Path] = append(byPath[r.Path], r)
	}
	var auth, byFeature http.Handler
	exact := make(map[string]http.Handler) // what most calls ask for needs no search
	mux := http.NewServeMux()
	for pattern, routes := range byPath {
		if strings.HasPrefix(pattern, authPrefix) { // what follows is a client's pattern, which the mux would tidy up
			byFeature = a.dispatch(pattern, routes)
			continue
		}
		h := a.dispatch(pattern, routes)
		if pattern == authPath {
			auth = h
			continue
		}
		mux.Handle(pattern, h)
		if !strings.Contains(pattern, "{") {
			exact[pattern] = h
		}
	}
	other := a.measured("other", func(w http.ResponseWriter, r *http.Request) int {
		if !a.token.admits(r) {
			return unauthorized(w)
		}
		return fault(w, http.StatusNotFound, problem.NotFound, "Not found", "There is no such route. GET /openapi.json describes those that there are.")
	})
	mux.Handle("/", other)
	guarded := a.sameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := exact[r.URL.Path]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		// The mux would answer with a redirect, which few programs follow with their body.
		if p := r.URL.EscapedPath(); path.Clean(p) != strings.TrimSuffix(p, "/") {
			other.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch p := r.URL.Path; { // the first two carry the headers of a client, whose call it is not
		case p == authPath:
			auth.ServeHTTP(w, r)
		case strings.HasPrefix(p, authPrefix):
			byFeature.ServeHTTP(w, r)
		default:
			guarded.ServeHTTP(w, r)
		}
	})
}

// sameOrigin refuses calls that a web page of another origin makes with somebody's browser: without a token, a
// developer's own machine would answer them.
func (a *API) sameOrigin(next http.Handler) http.Handler {
	check := http.NewCrossOriginProtection()
	check.SetDenyHandler(a.measured("cross-origin", func(w http.ResponseWriter, _ *http.Request) int {
		return fault(w, http.StatusForbidden, problem.Forbidden, "Cross-origin call",
			"A web page of another origin made this call. The sidecar is called by servers.")
	}))
	checked := check.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header["Origin"]) == 0 && len(r.Header["Sec-Fetch-Site"]) == 0 { // no browser, as the check itself has it
			next.ServeHTTP(w, r)
			return
		}
		checked.ServeHTTP(w, r)
	})
}

func (a *API) dispatch(path string, routes []Route) http.Handler {
	return a.measured(path, func(w http.ResponseWriter, r *http.Request) int {
		for i := range routes {
			route := &routes[i]
			if route.Method != "" && route.Method != r.Method && !(route.Method == http.MethodGet && r.Method == http.MethodHead) {
				continue
			}
			if !route.Open && !a.token.admits(r) {
				return unauthorized(w)
			}
			if route.spends && a.draining.Load() {
				return a.fail(w, enforcer.ErrUnavailable)
			}
			return route.handle(w, r)
		}
		allow := routes[0].Method
		for _, route := range routes[1:] {
			allow += ", " + route.Method
		}
		w.Header().Set("Allow", allow)
		return fault(w, http.StatusMethodNotAllowed, problem.MethodNotAllowed, "Method not allowed", "This route takes "+allow+".")
	})
}

// shortBody is the size up to which net/http tells a body's length by itself, for less.
const shortBody = 2 << 10

// send answers 200 with a JSON body.
func (a *API) send(w http.ResponseWriter, body []byte) int {
	h := w.Header()
	h["Content-Type"] = a.json
	if len(body) >= shortBody {
		h["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	_, _ = w.Write(body) // a caller who has gone is told nothing
	return http.StatusOK
}

func fault(w http.ResponseWriter, status int, code, title, message string) int {
	problem.New(status, code, title, message).Write(w)
	return status
}
