package enforcer

import (
	"context"
	"net/http"
	"net/netip"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/ratelimit"
)

// MiddlewareConfig says how a request becomes a call. Account and Feature are needed. The functions are called once
// per request, by many goroutines at once.
type MiddlewareConfig struct {
	// Account names the paying tenant. "" is an anonymous caller: only the plan file's anonymous rate is asked, by the
	// caller's address. Take it from what the request was authenticated by, never from what a client may choose.
	Account func(*http.Request) string
	// Feature names what the request spends; Always makes a constant of it.
	Feature func(*http.Request) string
	// Units is how many units the request spends. Nil: 1. For 0 the quota is not asked.
	Units func(*http.Request) int64
	// Caller tells an account's callers apart for the rate limit: an API key, a user. Nil: the account is one caller.
	Caller func(*http.Request) string
	// Key makes a request that is sent again count once (see ConsumeOnce); "" is none. A client that may choose it
	// can have any number of requests counted as one: give a key only where the handler does the work once, too. It
	// has no effect with Settle or GiveBack.
	Key func(*http.Request) string

	// Settle sets Units aside before the handler runs and counts what it tells ReportUnits, or all when it tells
	// nothing. A handler that panics gives them back.
	Settle bool
	// GiveBack reports whether the units of a request go back, by the status that the handler answered with; see
	// Failed. Nil: what was admitted stays counted.
	GiveBack func(status int) bool

	NoRate       bool           // the plan's rate limit is not asked
	NeedAccount  bool           // anonymous callers are answered 401
	DraftHeaders bool           // add the IETF draft's RateLimit fields
	Trusted      []netip.Prefix // networks of one's own proxies, whose X-Forwarded-For is believed
}

// Always returns a function that gives v for every request.
func Always[T any](v T) func(*http.Request) T { return func(*http.Request) T { return v } }

// Failed reports whether a status is the server's own fault, 500 and above. It is meant for MiddlewareConfig.GiveBack.
func Failed(status int) bool { return status >= http.StatusInternalServerError }

// Middleware returns a wrapper for handlers: it asks the plan's rate limit and then the quota, sets the headers that
// Answers describes, and either calls the handler or answers 429, 402 (or 403) or 503 in its place. It panics when
// Account or Feature is nil.
func (e *Enforcer) Middleware(cfg MiddlewareConfig) func(http.Handler) http.Handler {
	if cfg.Account == nil || cfg.Feature == nil {
		panic("enforcer: MiddlewareConfig needs Account and Feature")
	}
	if cfg.Units == nil {
		cfg.Units = Always[int64](1)
	}
	if cfg.Caller == nil {
		cfg.Caller = Always("")
	}
	if cfg.Key == nil {
		cfg.Key = Always("")
	}
	return func(next http.Handler) http.Handler { return &gate{e: e, cfg: cfg, next: next} }
}

// gate is a handler behind the middleware.
type gate struct {
	e    *Enforcer
	cfg  MiddlewareConfig
	next http.Handler
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	account := g.cfg.Account(r)
	if account == "" {
		g.anonymous(w, r)
		return
	}
	feature := g.cfg.Feature(r)
	var rate Decision
	if !g.cfg.NoRate {
		var err error
		if rate, err = g.e.Allow(r.Context(), account, g.cfg.Caller(r)); err != nil {
			g.fail(w, err)
			return
		}
		if !rate.Allowed {
			quota, _ := g.e.Standing(account, feature)
			g.refuse(w, rate, quota, rate)
			return
		}
	}
	units := g.cfg.Units(r)
	switch {
	case units == 0:
		quota, _ := g.e.Standing(account, feature)
		g.answers().Headers(w.Header(), rate, quota)
		g.next.ServeHTTP(w, r)
	case g.cfg.Settle || g.cfg.GiveBack != nil:
		g.reserved(w, r, rate, account, feature, units)
	default:
		g.consumed(w, r, rate, account, feature, units)
	}
}

func (g *gate) consumed(w http.ResponseWriter, r *http.Request, rate Decision, account, feature string, units int64) {
	var quota Decision
	var err error
	if key := g.cfg.Key(r); key != "" {
		quota, err = g.e.ConsumeOnce(r.Context(), account, feature, units, key)
	} else {
		quota, err = g.e.Consume(r.Context(), account, feature, units)
	}
	switch {
	case err != nil:
		g.fail(w, err)
	case !quota.Allowed:
		g.refuse(w, rate, quota, quota)
	default:
		g.answers().Headers(w.Header(), rate, quota)
		g.next.ServeHTTP(w, r)
	}
}

// anonymous asks the rate limit of callers who are known by their address only. They have no quota.
func (g *gate) anonymous(w http.ResponseWriter, r *http.Request) {
	if g.cfg.NeedAccount {
		problem.New(http.StatusUnauthorized, problem.Unauthorized, "Unauthorized", "This API needs an account: show who calls.").Write(w)
		return
	}
	var rate Decision
	if !g.cfg.NoRate {
		var err error
		address := ratelimit.ClientAddr(r.RemoteAddr, r.Header["X-Forwarded-For"], g.cfg.Trusted)
		if rate, err = g.e.AllowAnonymous(address.String()); err != nil {
			g.fail(w, err)
			return
		}
	}
	if !g.cfg.NoRate && !rate.Allowed {
		g.refuse(w, rate, Decision{}, rate)
		return
	}
	g.answers().Headers(w.Header(), rate, Decision{})
	g.next.ServeHTTP(w, r)
}

func (g *gate) answers() Answers { return g.e.Answers(g.cfg.DraftHeaders) }

func (g *gate) refuse(w http.ResponseWriter, rate, quota, why Decision) {
	a := g.answers()
	a.Headers(w.Header(), rate, quota)
	a.Refuse(w, why)
}

func (g *gate) fail(w http.ResponseWriter, err error) {
	if g.answers().Fail(w, err) == http.StatusInternalServerError {
		g.e.cfg.Logger.Error("weir: a request failed in a way that has no answer", "error", err)
	}
}

// reportKey is where a request's context holds what its handler reports.
type reportKey struct{}

// ReportUnits tells the middleware how many units a request has used, of those that MiddlewareConfig.Settle has set
// aside or beyond them; the last report counts. ctx is the request's. It reports false, and nothing is counted, where
// no such middleware is around the handler, or units are negative.
func ReportUnits(ctx context.Context, units int64) bool {
	r, ok := ctx.Value(reportKey{}).(*report)
	if !ok || units < 0 {
		return false
	}
	r.units.Store(units)
	return true
}
