// Package doctor looks at an installation as an operator would, and says of each thing whether it is well and what to
// do next. It changes nothing but the stored difference between Stripe's clock and the database's, which every call to
// Stripe keeps up to date: what it writes for a test is gone when it returns.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/plans"
)

// Level of a line.
type Level string

// The levels. A monitor acts on errors.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Error   Level = "error"
)

// Line is what was found about one thing.
type Line struct {
	Check   string `json:"check"`
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // what to do; empty when it is well
}

// Config says what to look at. Empty fields are looked at as what they mean: no Stripe, no journal on this machine.
type Config struct {
	DatabaseURL string
	ListenURL   string         // direct connection for LISTEN; empty: DatabaseURL
	Catalog     *plans.Catalog // the plan file; nil: none is named
	Stripe      *billing.Client
	NoStripe    bool     // without Stripe on purpose
	Secrets     []string // of the webhook endpoints
	WebhookURL  string   // the endpoint's address; empty: the one that ends in /stripe/webhook
	JournalDir  string   // empty: where an enforcer of this user keeps it, if there is that
	Logger      *slog.Logger
}

// examination collects the lines.
type examination struct {
	cfg    Config
	lines  []Line
	pool   *pgxpool.Pool
	biller *billing.Biller
	now    time.Time // business time
}

// Examine looks at everything that can be looked at: what depends on a thing that is broken is left out. ctx bounds it.
func Examine(ctx context.Context, cfg Config) []Line {
	e := &examination{cfg: cfg}
	e.journal()
	if e.database(ctx) {
		defer e.pool.Close()
		e.listen(ctx)
		if e.schema(ctx) {
			e.stripe(ctx)
			e.work(ctx)
			return e.lines
		}
	}
	e.stripe(ctx)
	return e.lines
}

func (e *examination) ok(check, format string, args ...any) {
	e.lines = append(e.lines, Line{check, OK, fmt.Sprintf(format, args...), ""})
}

func (e *examination) warn(check, next, format string, args ...any) {
	e.lines = append(e.lines, Line{check, Warning, fmt.Sprintf(format, args...), next})
}

func (e *examination) wrong(check, next, format string, args ...any) {
	e.lines = append(e.lines, Line{check, Error, fmt.Sprintf(format, args...), next})
}

// age is a duration as people read it.
func age(d time.Duration) string { return d.Round(time.Second).String() }
