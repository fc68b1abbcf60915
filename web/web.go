package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/web/link"
)

// Clock is business time.
type Clock interface{ Now() time.Time }

// Config configures the pages.
type Config struct {
	DB     *pgxpool.Pool // required
	Clock  Clock         // required: business time
	Logger *slog.Logger  // required
	// Links opens usage pages. Nil: every link is refused.
	Links *link.Signer
	// AdminToken is the bearer token of the host's routes. Empty: they are refused.
	AdminToken string
	// PublicURL is where customers reach the pages, for links that the host asks for. Empty: such a call says so.
	PublicURL string
	// FrameAncestors are the origins whose pages may embed usage pages, such as https://app.example.com. Empty: none.
	FrameAncestors []string
	// Refresh is how often a page that is watched is read again. Default 1 s.
	Refresh time.Duration
	// MaxStreams bounds the pages that are watched at once; further ones show the numbers of their load and try again.
	// Default 1,000.
	MaxStreams int
	// WallClock tells when links expire. Default time.Now.
	WallClock func() time.Time
}

const (
	defaultRefresh = time.Second
	defaultStreams = 1000
	maxReads       = 8               // statements that are read at once
	readTimeout    = 5 * time.Second // for a page, waiting for its turn included
	catalogFresh   = 2 * time.Second
)

// Pages is an http.Handler with all routes of this package. Make it with New.
type Pages struct {
	cfg     Config
	log     *slog.Logger
	mux     *http.ServeMux
	views   *views
	frames  string
	biller  *billing.Biller // for what is changed here; it has no Stripe
	reads   *semaphore.Weighted
	streams *hub

	mu      sync.Mutex // guards what follows
	catalog catalogue
	readAt  time.Time
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Pages, error) {
	if cfg.DB == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("new pages: a database, a clock and a logger are needed")
	}
	if cfg.Refresh == 0 {
		cfg.Refresh = defaultRefresh
	}
	if cfg.MaxStreams == 0 {
		cfg.MaxStreams = defaultStreams
	}
	if cfg.WallClock == nil {
		cfg.WallClock = time.Now
	}
	frames, err := frameAncestors(cfg.FrameAncestors)
	if err != nil {
		return nil, fmt.Errorf("new pages: %w", err)
	}
	v, err := newViews()
	if err != nil {
		return nil, fmt.Errorf("new pages: %w", err)
	}
	biller, err := billing.New(cfg.DB, billing.Config{Clock: cfg.Clock, Logger: cfg.Logger})
	if err != nil {
		return nil, fmt.Errorf("new pages: %w", err)
	}
	p := &Pages{cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(), views: v, frames: frames, biller: biller, reads: semaphore.NewWeighted(maxReads)}
	p.streams = newHub(p, cfg.MaxStreams)
	p.routes()
	return p, nil
}

func (p *Pages) routes() {
	forms := http.NewCrossOriginProtection()
	p.mux.HandleFunc("GET /usage/{token}", p.usage)
	p.mux.HandleFunc("GET /usage/{token}/live", p.live)
	p.mux.Handle("POST /usage/{token}/cap", forms.Handler(http.HandlerFunc(p.setCap)))
	p.mux.HandleFunc("GET /usage-assets/{name}", p.asset)
	p.mux.HandleFunc("GET /plans", p.pricing)
	p.mux.HandleFunc("GET /plans.json", p.plansJSON)
	p.mux.Handle("GET /v1/accounts/{account}/usage", p.admin(p.accountUsage))
	p.mux.Handle("POST /v1/accounts/{account}/link", p.admin(p.accountLink))
	p.mux.Handle("PUT /v1/accounts/{account}/contact", p.admin(p.accountContact))
}

// ServeHTTP answers a request for one of the routes.
func (p *Pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	// Not no-referrer: with it browsers hide the origin of our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors "+p.frames)
	if p.frames == noFrames {
		h.Set("X-Frame-Options", "DENY")
	}
	p.mux.ServeHTTP(w, r)
}

// Close ends the streams of watched pages, so that a server's Shutdown need not wait for them. It is idempotent.
func (p *Pages) Close() { p.streams.close() }

const noFrames = "'none'"

// frameAncestors checks origins and writes them as a source list.
func frameAncestors(origins []string) (string, error) {
	if len(origins) == 0 {
		return noFrames, nil
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || strings.ContainsAny(o, " ;,'\"*\t\r\n") || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || o != u.Scheme+"://"+u.Host {
			return "", fmt.Errorf("frame ancestor %q: use an origin, such as https://app.example.com", o)
		}
	}
	return strings.Join(origins, " "), nil
}

// turn waits for one of the places of those that read at once.
func (p *Pages) turn(ctx context.Context) (done func(), err error) {
	if err := p.reads.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { p.reads.Release(1) }, nil
}
