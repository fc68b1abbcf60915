package stripesim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server is one simulated Stripe account. It is an http.Handler, and safe for
// concurrent use. Make one with New.
type Server struct {
	cfg    Config
	log    *slog.Logger
	mux    *http.ServeMux
	faults *Faults
	limits *limiter
	closed chan struct{}
	close  sync.Once

	// turn is held by whoever moves time or drains webhooks, across deliveries.
	turn sync.Mutex
	// stirred is signalled when webhooks were queued; see Run.
	stirred chan struct{}

	mu      sync.Mutex // guards all below
	key     string
	account string
	skew    time.Duration
	cursor  time.Time
	rng     *rand.Rand
	seq     int64
	agenda  agenda
	outbox  agenda
	held    []heldDelivery
	caller  *call // the call being executed, for the events it causes

	calls    history[*Call]
	sent     history[*Delivery]
	replies  replies
	meters   meterStore
	declined map[string]bool // customers whose payments fail

	customers    table[*customer]
	products     table[*product]
	prices       table[*price]
	subs         table[*subscription]
	items        table[*item]
	invoices     table[*invoice]
	invoiceItems table[*invoiceItem]
	creditNotes  table[*creditNote]
	checkouts    table[*checkout]
	endpoints    table[*endpoint]
	events       eventLog
	thin         eventLog
}

// New makes a server; it starts nothing. It panics when cfg cannot be used
// (a bound below zero, a version that is none, an endpoint without a secret),
// as that is a fault of the program that wrote it.
func New(cfg Config) *Server {
	if err := cfg.validateWithDefaults(); err != nil {
		panic("stripesim: " + err.Error())
	}
	cfg = cfg.withDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(), faults: &Faults{}, limits: newLimiter(cfg.Limits),
		closed: make(chan struct{}), stirred: make(chan struct{}, 1), key: cfg.APIKey,
		cursor: cfg.Start.UTC().Truncate(time.Second), rng: rand.New(rand.NewPCG(cfg.Seed, 0x57e1)),
		calls: newHistory[*Call](cfg.HistorySize), sent: newHistory[*Delivery](cfg.HistorySize),
		replies: newReplies(cfg.MaxIdempotencyKeys), meters: newMeterStore(cfg.MaxMeterEvents),
		declined:  make(map[string]bool),
		customers: newTable[*customer](), products: newTable[*product](), prices: newTable[*price](),
		subs: newTable[*subscription](), items: newTable[*item](), invoices: newTable[*invoice](),
		invoiceItems: newTable[*invoiceItem](), creditNotes: newTable[*creditNote](),
		checkouts: newTable[*checkout](), endpoints: newTable[*endpoint](),
		events: newEventLog(cfg.HistorySize), thin: newEventLog(cfg.HistorySize),
	}
	if cfg.Clock != nil {
		s.cursor = cfg.Clock.Now().UTC()
	}
	for _, w := range cfg.Webhooks {
		s.addEndpoint(w, s.cursor)
	}
	s.account = s.newID("acct", 16)
	s.route()
	return s
}

func (c Config) validateWithDefaults() error { return c.withDefaults().validate() }

// ServeHTTP answers one API request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// APIKey is the key that the server accepts now.
func (s *Server) APIKey() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key
}

// RollKey replaces the API key; the old one gets 401 from then on. The account
// stays in its mode.
func (s *Server) RollKey(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = key
}

// SkewDate adds d to the Date header of every answer.
func (s *Server) SkewDate(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew = d
}

// Faults injects failures.
func (s *Server) Faults() *Faults { return s.faults }

// Close releases every stalled request and ends Run. The state stays readable.
func (s *Server) Close() { s.close.Do(func() { close(s.closed) }) }

// Listen serves on a free loopback port and returns the base URL. stop releases
// stalled requests, closes the listener and waits for the serving goroutine.
func (s *Server) Listen() (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for the stripe simulator: %w", err)
	}
	srv := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	stop = sync.OnceValue(func() error {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := srv.Shutdown(ctx)
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	})
	return "http://" + l.Addr().String(), stop, nil
}

func (s *Server) live() bool { return livemode(s.cfg.APIKey) }
