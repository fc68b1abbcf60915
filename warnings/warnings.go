// Package warnings delivers what the fold found: that an account has reached a threshold of its allowance. It goes out as
// a signed webhook and as an email, each once per warning, from an outbox that any number of workers share.
//
// Delivery is at least once: a process that ends between a delivery and its record repeats it, under the same webhook-id
// and Message-ID.
package warnings

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// Clock is business time.
type Clock interface{ Now() time.Time }

// Config configures a Courier.
type Config struct {
	DB      *pgxpool.Pool // required
	Clock   Clock         // required: business time
	Logger  *slog.Logger  // required
	Mail    *Mail         // nil: no email
	Webhook *Webhook      // nil: no webhook
	// PageURL makes a link to an account's usage page, for the email. Nil, or an empty answer: it has none.
	PageURL func(account string) string
	// Settle is how long a warning waits for a higher threshold to take its place, so that a burst is told once.
	// Default 3 s; below 0: not at all.
	Settle time.Duration
}

const (
	defaultSettle = 3 * time.Second
	firstWait     = 10 * time.Second // between two tries; it doubles
	longestWait   = 30 * time.Minute
	mostAttempts  = 100 // two days
	sendTime      = 10 * time.Second
	deliverTime   = 15 * time.Second // after which a Deliver begins nothing new
)

// Courier delivers warnings. Make it with New; it is safe for concurrent use and starts nothing.
type Courier struct {
	cfg      Config
	channels map[string]channel
	names    []string
}

// channel is one way to tell somebody.
type channel interface {
	// send delivers a notice. It returns errNobody when there is nobody to tell, errShadow when it would say what is not
	// so, an error that wraps errFinal when it is not to be tried again, or any other error when it is.
	send(ctx context.Context, n notice) error
}

var (
	errNobody = errors.New("the account has no address")
	errShadow = errors.New("in shadow mode, where nothing is refused: the customer is not told")
	errFinal  = errors.New("not tried again")
)

// notice is a warning with all that is said of it.
type notice struct {
	usage.Send
	Installation string
	Catalog      *plans.Catalog
	PageURL      string
}

// New checks the configuration.
func New(cfg Config) (*Courier, error) {
	if cfg.DB == nil || cfg.Clock == nil || cfg.Logger == nil {
		return nil, errors.New("new courier: a database, a clock and a logger are needed")
	}
	switch {
	case cfg.Settle == 0:
		cfg.Settle = defaultSettle
	case cfg.Settle < 0:
		cfg.Settle = 0
	}
	c := &Courier{cfg: cfg, channels: map[string]channel{}}
	if cfg.Mail != nil {
		c.channels["email"], c.names = cfg.Mail, append(c.names, "email")
	}
	if cfg.Webhook != nil {
		c.channels["webhook"], c.names = cfg.Webhook, append(c.names, "webhook")
	}
	return c, nil
}

// Due reports whether there is something to deliver. Without a channel there never is.
func (c *Courier) Due(ctx context.Context) (bool, error) {
	if len(c.names) == 0 {
		return false, nil
	}
	return usage.SendsDue(ctx, c.cfg.DB, c.names)
}

// Deliver delivers what is due, until nothing is or it has taken 15 s. A delivery that failed is due again later; its
// error is returned when all others were tried.
func (c *Courier) Deliver(ctx context.Context) error {
	if len(c.names) == 0 {
		return nil
	}
	var failed []error
	for until := time.Now().Add(deliverTime); time.Now().Before(until); {
		sends, err := usage.ClaimSends(ctx, c.cfg.DB, c.names, c.cfg.Settle, c.cfg.Clock.Now())
		if err == nil && len(sends) > 0 {
			err = c.deliverAll(ctx, sends, until)
		}
		if err != nil {
			failed = append(failed, err)
		}
		if len(sends) < usage.MaxSends || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

func (c *Courier) deliverAll(ctx context.Context, sends []usage.Send, until time.Time) error {
	inst, err := usage.ReadInstallation(ctx, c.cfg.DB)
	if err != nil {
		return err
	}
	cat, err := usage.LatestCatalog(ctx, c.cfg.DB)
	if err != nil {
		return err
	}
	var failed []error
	for _, s := range sends {
		if time.Now().After(until) || ctx.Err() != nil {
			break // the claim of the rest ends by itself
		}
		n := notice{Send: s, Installation: hex.EncodeToString(inst.ID[:]), Catalog: cat.Catalog}
		if c.cfg.PageURL != nil {
			n.PageURL = c.cfg.PageURL(s.Account)
		}
		if err := c.deliver(ctx, n); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (c *Courier) deliver(ctx context.Context, n notice) error {
	once, cancel := context.WithTimeout(ctx, sendTime)
	err := c.channels[n.Channel].send(once, n)
	cancel()
	switch {
	case err == nil:
		return usage.SettleSend(ctx, c.cfg.DB, n.Send, usage.Sent, "")
	case errors.Is(err, errNobody) || errors.Is(err, errShadow):
		return usage.SettleSend(ctx, c.cfg.DB, n.Send, usage.Skipped, err.Error())
	case errors.Is(err, errFinal) || n.Attempts >= mostAttempts:
		c.cfg.Logger.Warn("a warning could not be delivered, and is not tried again", "warning", n.ID, "channel", n.Channel, "account", n.Account, "error", err)
		return usage.SettleSend(ctx, c.cfg.DB, n.Send, usage.Failed, err.Error())
	}
	wait := min(firstWait<<min(n.Attempts-1, 10), longestWait)
	// With a context of its own: a delivery that took all the time must still be given back.
	store, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTime)
	defer cancel()
	if again := usage.RetrySend(store, c.cfg.DB, n.Send, wait, err.Error()); again != nil {
		err = errors.Join(err, again)
	}
	return fmt.Errorf("deliver warning %d by %s: %w", n.ID, n.Channel, err)
}
