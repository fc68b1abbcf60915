package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/weirhq/weir/billing"
)

// Clock is business time.
type Clock interface{ Now() time.Time }

// Config configures the admin.
type Config struct {
	DB     *pgxpool.Pool   // required
	Biller *billing.Biller // required
	Clock  Clock           // required: business time
	Logger *slog.Logger    // required
	// Token admits whoever shows it: programs as a bearer token, people once, at the login page. Empty: nobody.
	Token string
	// UserHeader is the header in which a trusted proxy says who is signed in, such as X-Forwarded-User. Empty: none.
	UserHeader string
	// TrustedProxies are the addresses from which UserHeader is taken, and of whom X-Forwarded-For tells where a request
	// comes from: networks such as 10.0.0.0/8, addresses, or the word unix for a Unix socket. UserHeader needs them.
	TrustedProxies []string
	// Secret signs forms where no token is set. With neither, forms of one worker are refused by the others.
	Secret string
	// SecondPerson makes actions that move money wait for another person, whom the proxy names too: it needs UserHeader.
	SecondPerson bool
	// Jobs is River's own page, served under JobsPath. Nil: there is none.
	Jobs http.Handler
	// Loads reads the jobs that are not done. Nil: none are shown.
	Loads func(ctx context.Context) ([]Load, error)
	// JobKinds tells of jobs what kind they are, for the audit log. Those that are not there any more are left out. Nil:
	// nothing is known of them but their numbers.
	JobKinds func(ctx context.Context, ids []int64) (map[int64]string, error)
	// WallClock tells when sessions end. Default time.Now.
	WallClock func() time.Time
}

// Load is the background work of one kind and state that is not done.
type Load struct {
	Kind  string
	State string // as River has it: available, running, retryable, scheduled, discarded
	Jobs  int64
	Age   time.Duration // wall time since the oldest of them was to run; 0: in the future
}

// JobsPath is where Config.Jobs is served.
const JobsPath = "/admin/jobs"

const (
	maxReads = 8               // pages that read at once
	readTime = 5 * time.Second // of a page, waiting for its turn included
)

// Admin is an http.Handler for everything under /admin. Make it with New. It is safe for concurrent use.
type Admin struct {
	cfg      Config
	log      *slog.Logger
	mux      *http.ServeMux
	views    *views
	guard    *guard
	own      *http.CrossOriginProtection
	reads    *semaphore.Weighted
	attempts *attempts
	remedies map[string]remedy // by kind of finding
	books    *bookshelf
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Admin, error) {
	if cfg.DB == nil || cfg.Biller == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("new admin: a database, a Biller, a clock and a logger are needed")
	}
	if cfg.WallClock == nil {
		cfg.WallClock = time.Now
	}
	if cfg.SecondPerson && cfg.UserHeader == "" {
		return nil, errors.New("new admin: a second person needs the header of a trusted proxy: names that are given with a shared token are only claims")
	}
	g, err := newGuard(&cfg)
	if err != nil {
		return nil, fmt.Errorf("new admin: %w", err)
	}
	v, err := newViews()
	if err != nil {
		return nil, fmt.Errorf("new admin: %w", err)
	}
	a := &Admin{
		cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(), views: v, guard: g, own: http.NewCrossOriginProtection(),
		reads: semaphore.NewWeighted(maxReads), attempts: newAttempts(cfg.WallClock, g.fits), remedies: remedies(),
		books: newBookshelf(cfg.DB, cfg.Clock.Now, cfg.WallClock),
	}
	a.routes()
	return a, nil
}

// routes registers all pages and actions; each concern's are in its own file.
func (a *Admin) routes() {
	a.mux.HandleFunc("GET /admin/assets/{name}", a.asset)
	a.mux.HandleFunc("POST /admin/login", a.login)
	a.post("POST /admin/logout", a.logout)
	a.get("GET /admin/{$}", a.overview)
	a.get("GET /admin/search", a.search)
	a.get("GET /admin/accounts", a.accounts)
	a.get("GET /admin/findings", a.findings)
	a.get("GET /admin/held", a.held)
	a.get("GET /admin/nodes", a.nodes)
	a.get("GET /admin/nodes/{node}", a.node)
	a.itemRoutes()
	a.bookRoutes()
	a.jobRoutes()
	a.accountRoutes()
	a.get("GET /admin/", a.nothing)
	a.mux.Handle("GET /admin", http.RedirectHandler("/admin/", http.StatusMovedPermanently))
}

const strictPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request for one of the routes.
func (a *Admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	// Not no-referrer: with it browsers hide the origin of our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Security-Policy", strictPolicy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
	a.mux.ServeHTTP(w, r)
}

// handler answers a request of somebody who was admitted.
type handler func(w http.ResponseWriter, r *http.Request, who person)

// get registers a page: admitted people see it, others the login page.
func (a *Admin) get(pattern string, h handler) { a.mux.Handle(pattern, a.admitted(h)) }

// post registers an action: it is sent by our own pages' forms, or by a program that shows the token. The handler finds
// the form parsed, does its work, and ends with done, or shows its page again with what is wrong.
func (a *Admin) post(pattern string, h handler) { a.mux.Handle(pattern, a.admitted(a.ownForm(h))) }

// now is business time.
func (a *Admin) now() time.Time { return a.cfg.Clock.Now() }

// reading runs what a page reads when it is its turn, in bounded time.
func (a *Admin) reading(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	if err := a.reads.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for a turn: %w", err)
	}
	defer a.reads.Release(1)
	return read(ctx)
}
