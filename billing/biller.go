package billing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Clock is business time. Production takes it from the database; tests and the demo move it.
type Clock interface{ Now() time.Time }

// Config is what a Biller needs.
type Config struct {
	// Stripe is nil in an installation that runs without it (--no-stripe): overage is recorded, nothing is reported, and
	// what would call Stripe returns ErrNoStripe.
	Stripe *Client
	Clock  Clock        // required
	Logger *slog.Logger // required
	// Enqueue wakes a worker for stored work, in the transaction that stores it. Nil wakes nobody: the work is found by
	// whoever looks for due rows next.
	Enqueue func(ctx context.Context, tx pgx.Tx, n Nudge) error
	// WebhookSecrets verify signatures; each of them may have signed. Snapshot and thin destinations have their own.
	WebhookSecrets []string
	// Senders bounds the meter events in flight; zero is 256: 1,000 a second, each of which takes a quarter of one. No
	// more are in flight than half of what EventsPerSecond of the client allows.
	Senders int
	// Readers bounds the GETs in flight; zero is 8.
	Readers int
	// SecondLook is the wall time after a reading of Stripe's clock that is too far off, before a second one stops
	// sending; nothing is sent meanwhile. Zero is 3 s.
	SecondLook time.Duration
	// LookEach is the wall time between two looks at ended periods that are due for a report or for new books; zero is 5 s.
	LookEach time.Duration
	// StoreTime bounds each storing of what came of work when the work's own time may be over: outcomes are known then,
	// and only then. What a database that hangs does not take is as after a crash. It also bounds the wait for what became
	// of a commit whose answer was lost. Zero is 10 s.
	StoreTime time.Duration
}

// Nudge tells a worker that there is work of a kind. It carries no state: the work is in rows. It fits River's JobArgs.
type Nudge interface{ Kind() string }

// The nudges that this package asks for.
type (
	// SyncArgs names a customer whose subscriptions are to be read.
	SyncArgs struct {
		Customer string `json:"customer"`
	}
	// InvoiceArgs names an invoice to be read.
	InvoiceArgs struct {
		Invoice string `json:"invoice"`
	}
	// ReportArgs asks for due reports to be planned and sent.
	ReportArgs struct{}
	// CloseArgs asks for ended periods to be closed.
	CloseArgs struct{}
	// LateArgs asks for late usage to be put on invoices.
	LateArgs struct{}
	// ReconcileArgs asks for summaries to be compared with the ledger.
	ReconcileArgs struct{}
	// SweepArgs asks for what webhooks missed.
	SweepArgs struct{}
	// MeterErrorArgs names a stored thin event about refused meter events.
	MeterErrorArgs struct {
		Event string `json:"event"`
	}
)

// Kind names the job.
func (SyncArgs) Kind() string { return "sync_subscription" }

// Kind names the job.
func (InvoiceArgs) Kind() string { return "read_invoice" }

// Kind names the job.
func (ReportArgs) Kind() string { return "report" }

// Kind names the job.
func (CloseArgs) Kind() string { return "close" }

// Kind names the job.
func (LateArgs) Kind() string { return "late" }

// Kind names the job.
func (ReconcileArgs) Kind() string { return "reconcile" }

// Kind names the job.
func (SweepArgs) Kind() string { return "sweep" }

// Kind names the job.
func (MeterErrorArgs) Kind() string { return "meter_error" }

// Biller does everything that has to do with Stripe. It is safe for concurrent use, and several processes may run one
// over the same database.
type Biller struct {
	db  *pgxpool.Pool
	cfg Config
	log *slog.Logger

	mu        sync.Mutex // guards what follows
	probed    time.Time  // wall: the last try while sending is stopped
	skewNoted time.Time  // wall: when the clock was compared last
	suspect   time.Time  // wall: when it was first found too far off; zero: it was not, or that is decided
	metersAt  time.Time  // wall: when meters were read last
	woken     time.Time  // wall: when ended periods were looked at last
}

// ErrNoStripe says that this installation runs without Stripe.
var ErrNoStripe = errors.New("no Stripe key is configured: set STRIPE_API_KEY")

// New makes a Biller; it starts nothing.
func New(db *pgxpool.Pool, cfg Config) (*Biller, error) {
	if db == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("billing: New needs a database, a clock and a logger")
	}
	if cfg.Senders == 0 {
		cfg.Senders = 256
	}
	if cfg.Readers == 0 {
		cfg.Readers = 8
	}
	if cfg.SecondLook == 0 {
		cfg.SecondLook = 3 * time.Second
	}
	if cfg.LookEach == 0 {
		cfg.LookEach = 5 * time.Second
	}
	if cfg.StoreTime == 0 {
		cfg.StoreTime = 10 * time.Second
	}
	if cfg.Senders < 0 || cfg.Readers < 0 {
		return nil, errors.New("billing: Senders and Readers cannot be negative")
	}
	b := &Biller{db: db, cfg: cfg, log: cfg.Logger}
	if cfg.Stripe != nil {
		cfg.Stripe.watch(b.compareClock)
		cfg.Stripe.share(b.lend)
	}
	return b, nil
}

func (b *Biller) now() time.Time { return b.cfg.Clock.Now().UTC().Truncate(time.Microsecond) }

func (b *Biller) stripe() (*Client, error) {
	if b.cfg.Stripe == nil {
		return nil, ErrNoStripe
	}
	return b.cfg.Stripe, nil
}

func (b *Biller) nudge(ctx context.Context, tx pgx.Tx, n Nudge) error {
	if b.cfg.Enqueue == nil {
		return nil
	}
	if err := b.cfg.Enqueue(ctx, tx, n); err != nil {
		return fmt.Errorf("enqueue %s: %w", n.Kind(), err)
	}
	return nil
}

// after is the time in which what came of ctx's work is stored, whether or not ctx has ended.
func (b *Biller) after(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), b.cfg.StoreTime)
}

// begin runs do in a transaction.
func (b *Biller) begin(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, b.db, do)
}
