package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirhq/weir/internal/doctor"
	"github.com/weirhq/weir/plans"
)

type doctorCmd struct {
	planFile
	stripeFlags
	webhookFlags
	ListenURL  string        `name:"listen-url" from:"WEIR_LISTEN_URL" placeholder:"URL" help:"Direct database connection for LISTEN ($WEIR_LISTEN_URL)."`
	JournalDir string        `name:"journal-dir" from:"WEIR_JOURNAL_DIR" placeholder:"DIR" help:"The enforcer's journal folder, where one runs on this machine ($WEIR_JOURNAL_DIR)."`
	WebhookURL string        `name:"webhook-url" placeholder:"URL" help:"The address of the webhook endpoint. Default: the one at Stripe that ends in /stripe/webhook."`
	NoStripe   bool          `name:"no-stripe" help:"The worker runs without Stripe on purpose."`
	Strict     bool          `help:"Let warnings be exit code 3 too."`
	Timeout    time.Duration `default:"60s" help:"How long it may take."`
}

// Run looks at the installation. An error is exit code 3.
func (d *doctorCmd) Run(c *call) error {
	if err := errors.Join(d.stripeFlags.read(c.env), d.webhookFlags.read(c.env)); err != nil {
		return usageError{err}
	}
	cfg := doctor.Config{
		DatabaseURL: c.DatabaseURL, ListenURL: d.ListenURL, Secrets: d.secrets, WebhookURL: d.WebhookURL, JournalDir: d.JournalDir, NoStripe: d.NoStripe, Logger: c.logger,
	}
	var lines []doctor.Line
	var err error
	if d.NoStripe && d.key != "" {
		return usageError{errors.New("--no-stripe and a Stripe key exclude each other: unset STRIPE_API_KEY")}
	}
	if cfg.Stripe, err = d.client(); err != nil {
		lines = append(lines, doctor.Line{Check: "stripe key", Level: doctor.Error, Message: err.Error(), Next: "mend what it names; STRIPE_API_KEY is to be a restricted key"})
	}
	if d.Plans != "" {
		if cfg.Catalog, err = plans.Load(d.Plans); err != nil {
			lines = append(lines, doctor.Line{Check: "plans", Level: doctor.Error, Message: err.Error(), Next: "correct the plan file (docs/plan-file.md)"})
		}
	}
	ctx, stop := context.WithTimeout(c.ctx, d.Timeout)
	defer stop()
	lines = append(lines, doctor.Examine(ctx, cfg)...)
	if c.ctx.Err() != nil { // what was not looked at is not wrong
		return fmt.Errorf("look at the installation: %w", c.ctx.Err())
	}
	if err := c.print(lines, printLines(lines)); err != nil {
		return err
	}
	var wrong, warnings int
	for _, l := range lines {
		switch l.Level {
		case doctor.Error:
			wrong++
		case doctor.Warning:
			warnings++
		case doctor.OK:
		}
	}
	if wrong > 0 || d.Strict && warnings > 0 {
		return findings{fmt.Errorf("errors: %d, warnings: %d", wrong, warnings)}
	}
	return nil
}

func printLines(lines []doctor.Line) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, l := range lines {
			if _, err := fmt.Fprintf(w, "%-8s %-17s %s\n", l.Level, l.Check, plain(l.Message)); err != nil {
				return err
			}
			if l.Next == "" {
				continue
			}
			if _, err := fmt.Fprintf(w, "%-8s %-17s → %s\n", "", "", plain(l.Next)); err != nil {
				return err
			}
		}
		return nil
	}
}
