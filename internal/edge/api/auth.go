package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/wire"
	"github.com/weirhq/weir/ratelimit"
)

// accountHeader carries the account at /v1/auth. The proxy must set it on every call, so that no client does.
const accountHeader = "X-Weir-Account"

// authPath is asked by proxies that know it letter for letter.
const authPath = "/v1/auth"

// authPrefix begins the form of the question for proxies that append their client's path and query (Envoy).
const authPrefix = "/v1/auth/"

// authCall is what /v1/auth is asked. Only the account comes from a header: everything else is in the URL, which the
// proxy's configuration writes and no client does.
type authCall struct {
	wire.Call
	nginx bool
}

// asksQuota reports whether the quota is asked, and not only the rate.
func (c *authCall) asksQuota() bool { return c.Account != "" && c.Units != 0 }

// auth answers a proxy that asks before it passes a request on: 200, or what refuses it. Without an account the
// anonymous rate is asked by the client's address.
func (a *API) auth(w http.ResponseWriter, r *http.Request) int {
	q, err := a.questions.of(r.URL.RawQuery)
	if err != nil {
		return invalid(w, sentence(err))
	}
	return a.ask(w, r, q)
}

// authByPath answers the same question about the feature that follows the prefix. What comes after it, and the query,
// are a client's and say nothing.
func (a *API) authByPath(w http.ResponseWriter, r *http.Request) int {
	feature, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, authPrefix), "/")
	return a.ask(w, r, &question{call: wire.Call{Feature: feature, Units: 1, Rate: true}, accountHeader: accountHeader})
}

func (a *API) ask(w http.ResponseWriter, r *http.Request, q *question) int {
	c := authCall{Call: q.call, nginx: q.nginx}
	if err := q.about(r, &c.Call); err != nil {
		return invalid(w, sentence(err))
	}
	ctx := r.Context()
	var v verdict
	switch {
	case c.Account == "" && c.Rate:
		v.rate, v.err = a.cfg.Enforcer.AllowAnonymous(a.address(r))
	case c.Account == "":
	case c.Units == 0:
		a.rate(ctx, &c.Call, &v)
		v.quota, _ = a.cfg.Enforcer.Standing(c.Account, c.Feature)
	default:
		a.decide(ctx, &c.Call, &v)
	}
	if v.err != nil {
		return a.fail(w, v.err)
	}
	return a.admit(w, &c, &v)
}

// admit answers the proxy. nginx passes 2xx, 401 and 403 on and takes anything else for a fault: it gets a 403, and
// the true answer in headers.
func (a *API) admit(w http.ResponseWriter, c *authCall, v *verdict) int {
	out := a.cfg.Enforcer.Answers(a.cfg.Draft)
	h := w.Header()
	out.Headers(h, v.rate, v.quota)
	d := v.refusal(c.asksQuota())
	switch {
	case d == nil:
		h["Cache-Control"] = a.noStore // a remembered 200 would count nothing
		return http.StatusOK           // which net/http sends
	case c.nginx:
		return nginx(w, out, *d)
	}
	out.Refuse(w, *d)
	return out.Status(*d)
}

func nginx(w http.ResponseWriter, out enforcer.Answers, d enforcer.Decision) int {
	h := w.Header()
	enforcer.SetRetryAfter(h, d)
	h.Set("X-Weir-Status", strconv.Itoa(out.Status(d)))
	h.Set("X-Weir-Body", string(out.Problem(d))) // printable ASCII on one line
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusForbidden)
	return http.StatusForbidden
}

// about completes a call by the request's headers.
func (q *question) about(r *http.Request, c *wire.Call) error {
	if q.callerHeader != "" {
		c.Caller = r.Header.Get(q.callerHeader)
	}
	if values := r.Header[q.accountHeader]; len(values) > 1 {
		return fmt.Errorf("the header %.60q is there %d times: the proxy must set it, in place of the client's", q.accountHeader, len(values))
	} else if len(values) == 1 {
		c.Account = values[0]
	}
	return nil
}

// address is the client's, as the proxy that calls tells it.
func (a *API) address(r *http.Request) string {
	peer, trusted := r.RemoteAddr, a.cfg.Trusted
	p, err := netip.ParseAddrPort(peer)
	if err != nil { // a Unix socket
		p = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 1)
		peer = p.String()
	}
	addr := p.Addr().Unmap()
	trusted = append(trusted[:len(trusted):len(trusted)], netip.PrefixFrom(addr.WithZone(""), addr.BitLen()))
	return ratelimit.ClientAddr(peer, r.Header["X-Forwarded-For"], trusted).String()
}
