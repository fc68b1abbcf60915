// Package proxy passes requests on to an API that knows nothing of Weir, behind the enforcer's middleware.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/problem"
)

// Config configures a proxy. Enforcer, Upstream, Feature and Logger are needed.
type Config struct {
	Enforcer *enforcer.Enforcer
	Upstream *url.URL // http or https, with a host; its path is put before every request's
	Feature  string
	Units    int64 // per request; 0: only the rate is asked
	// AccountHeader names the header that carries the account. It is believed from Trusted peers; from others it is
	// taken away, and the caller is anonymous.
	AccountHeader string
	// Trusted are the networks of one's own gateways, whose account and X-Forwarded-For are believed. A peer on a Unix
	// socket is one of them.
	Trusted  []netip.Prefix
	GiveBack bool // the units of answers of 500 and above go back
	Draft    bool // add the IETF draft's RateLimit fields
	Logger   *slog.Logger
}

// ParseUpstream reads the address of an API: a URL of http or https without credentials, query or fragment.
func ParseUpstream(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("the upstream is %q: use a URL such as http://127.0.0.1:3000", s)
	}
	return u, nil
}

// New returns the handler that enforces and passes on. Bodies and answers stream; an upgraded connection (a WebSocket)
// passes, and counts as the one request that opened it.
func New(cfg Config) http.Handler {
	pass := &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { cfg.rewrite(r) },
		ModifyResponse: ownHeaders,
		ErrorHandler:   cfg.fail,
		FlushInterval:  -1, // at once: what streams is not held back
		Transport:      transport(),
		ErrorLog:       slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	m := enforcer.MiddlewareConfig{
		Account: cfg.account, Feature: enforcer.Always(cfg.Feature), Units: enforcer.Always(cfg.Units),
		Trusted: cfg.Trusted, DraftHeaders: cfg.Draft,
	}
	if cfg.GiveBack {
		m.GiveBack = enforcer.Failed
	}
	return cfg.Enforcer.Middleware(m)(pass)
}

// transport keeps enough idle connections for the load of one upstream, and bounds the waits that are not the
// upstream's work: an answer may take as long as it takes.
func transport() *http.Transport {
	return &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ExpectContinueTimeout: time.Second,
		MaxIdleConns: 256, MaxIdleConnsPerHost: 256, MaxResponseHeaderBytes: 256 << 10,
		DisableCompression: true, // the client's own Accept-Encoding counts
		ForceAttemptHTTP2:  true,
	}
}

// account reads the account where the peer is trusted with it.
func (cfg *Config) account(r *http.Request) string {
	values := r.Header.Values(cfg.AccountHeader)
	if len(values) != 1 || !cfg.trusts(r) { // a gateway that sets it leaves one
		return ""
	}
	return values[0]
}

func (cfg *Config) trusts(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return true // a Unix socket
	}
	addr := peer.Addr().Unmap().WithZone("")
	for _, network := range cfg.Trusted {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// rewrite addresses the upstream. What a client claims about who it is and whence it comes does not pass, neither under
// these names nor under such that many servers (CGI, WSGI, Rack) can't tell from them: X_Weir_Account.
func (cfg *Config) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(cfg.Upstream)
	for name := range r.Out.Header {
		if meant := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); meant != name && (meant == cfg.AccountHeader || strings.HasPrefix(meant, "X-Forwarded-")) {
			delete(r.Out.Header, name)
		}
	}
	if cfg.trusts(r.In) {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	} else {
		r.Out.Header.Del(cfg.AccountHeader)
	}
	r.SetXForwarded()
}

// ownHeaders drops the upstream's fields of the names that the middleware sets: an answer has one of each.
func ownHeaders(res *http.Response) error {
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit", "RateLimit-Policy", "Quota-Limit", "Quota-Remaining", "Quota-Reset"} {
		res.Header.Del(name)
	}
	return nil
}

func (cfg *Config) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		w.WriteHeader(499) // the client has gone; nobody reads this but the middleware
		return
	}
	cfg.Logger.Warn("weir: the upstream does not answer", "upstream", cfg.Upstream.Redacted(), "error", err)
	problem.New(http.StatusBadGateway, problem.BadGateway, "Bad gateway", "The API behind this gateway does not answer. Try again later.").Write(w)
}
