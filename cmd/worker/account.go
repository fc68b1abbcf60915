package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// actorFlags say who decides something, and why.
type actorFlags struct {
	Reason string `required:"" placeholder:"TEXT" help:"Why; the audit log keeps it, and the ledger where money moves."`
	Actor  string `placeholder:"NAME" help:"On whose behalf. Default: the user who runs this."`
}

// by is who acts, for the audit log.
func (a *actorFlags) by() (usage.By, error) {
	if strings.TrimSpace(a.Reason) == "" {
		return usage.By{}, usageError{errors.New("--reason is empty: the audit log keeps why this was done")}
	}
	return (&whyFlags{Why: a.Reason, Actor: a.Actor}).by(), nil
}

// whyFlags are actorFlags for what scripts run, and a worker does by itself sooner or later: a reason may be left out.
type whyFlags struct {
	Why   string `name:"reason" placeholder:"TEXT" help:"Why; it goes into the audit log."`
	Actor string `placeholder:"NAME" help:"On whose behalf. Default: the user who runs this."`
}

func (f *whyFlags) by() usage.By {
	by := usage.By{Actor: f.Actor, Way: usage.WayCLI, Reason: f.Why}
	if by.Actor == "" {
		by.Actor = actor()
	}
	if strings.TrimSpace(by.Reason) == "" {
		by.Reason = "no reason was given"
	}
	return by
}

// do carries out an action. What the rules do not allow is a fault of the command line.
func (d *desk) do(ctx context.Context, a billing.Action, by usage.By) error {
	_, err := d.biller.Do(ctx, a, by)
	if err != nil && billing.Refused(err) {
		return usageError{err}
	}
	return err
}

// act carries out one action, on a database that it opens for it. flags may be nil where Stripe is not called.
func (a *actorFlags) act(c *call, flags *stripeFlags, action billing.Action) error {
	by, err := a.by()
	if err != nil {
		return err
	}
	d, err := c.desk(flags)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	return d.do(c.ctx, action, by)
}

type adjustCmd struct {
	Account string    `arg:"" help:"The account's id."`
	Feature string    `arg:"" help:"The feature."`
	Units   int64     `arg:"" help:"Units to add; negative is a refund (write it after --: adjust --reason … -- acme events -500)."`
	At      time.Time `placeholder:"TIME" format:"2006-01-02T15:04:05Z07:00" help:"An instant in the period that is corrected. Default: now."`
	actorFlags
	stripeFlags
}

// Run corrects what was counted.
func (a *adjustCmd) Run(c *call) error {
	if a.Units == 0 {
		return usageError{errors.New("0 units change nothing: give what to add, or a negative number to refund")}
	}
	action := billing.Adjust{Account: a.Account, Feature: a.Feature, At: a.At, Units: a.Units}
	err := a.act(c, &a.stripeFlags, &action)
	if errors.Is(err, usage.ErrRefund) {
		return usageError{fmt.Errorf("%w: `worker usage show %s` lists what is counted", err, a.Account)}
	}
	if err != nil {
		return err
	}
	done := action.Done
	out := struct {
		ID      int64 `json:"id"`
		Units   int64 `json:"units"`
		Free    int64 `json:"free"`
		Overage int64 `json:"overage"`
	}{done.ID, done.Units, done.Free, done.Overage}
	return c.print(out, line("adjustment %d: %+d units, of these %+d included and %+d overage", done.ID, done.Units, done.Free, done.Overage))
}

type overrideCmd struct {
	Account     string `arg:"" help:"The account's id."`
	Feature     string `arg:"" help:"The feature."`
	Included    *int64 `placeholder:"UNITS" help:"Included units per period, in place of the plan's."`
	Max         *int64 `placeholder:"UNITS" help:"The most overage units per period, in place of the plan's."`
	SpendingCap *int64 `name:"spending-cap" placeholder:"UNITS" help:"The customer's own cap, in overage units."`
	Clear       bool   `help:"Take the override away: everything is as the plan says."`
	actorFlags
}

// Run stores an override, which counts at once.
func (o *overrideCmd) Run(c *call) error {
	given := o.Included != nil || o.Max != nil || o.SpendingCap != nil
	if given == o.Clear {
		return usageError{errors.New("give at least one of --included, --max and --spending-cap, or --clear alone")}
	}
	action := billing.SetOverride{Account: o.Account, Feature: o.Feature, Included: o.Included, Maximum: o.Max, SpendingCap: o.SpendingCap}
	if err := o.act(c, nil, &action); err != nil {
		return err
	}
	out := struct {
		Account     string `json:"account"`
		Feature     string `json:"feature"`
		Included    *int64 `json:"included"` // null: as the plan says
		Max         *int64 `json:"max"`
		SpendingCap *int64 `json:"spending_cap"`
	}{o.Account, o.Feature, o.Included, o.Max, o.SpendingCap}
	return c.print(out, line("%s of %s: the open period and those to come have these terms; nodes learn of it within a second", o.Feature, plain(o.Account)))
}

type shadowCmd struct {
	Account string `arg:"" help:"The account's id."`
	Off     bool   `help:"End it: the account is refused again as its plan says."`
	actorFlags
}

// Run puts an account into shadow mode, or takes it out.
func (s *shadowCmd) Run(c *call) error {
	if err := s.act(c, nil, &billing.SetShadow{Account: s.Account, On: !s.Off}); err != nil {
		return err
	}
	text := "%s is in shadow mode: nothing is refused; `worker usage shadow` prints what would have been"
	if s.Off {
		text = "%s is out of shadow mode: it is refused as its plan says"
	}
	return c.print(map[string]any{"account": s.Account, "shadow": !s.Off}, line(text, plain(s.Account)))
}

type mapCmd struct {
	Account  string `arg:"" help:"The account's id."`
	Customer string `arg:"" help:"The customer's id at Stripe, cus_…"`
	actorFlags
	stripeFlags
}

// Run maps an account to a customer; what either was mapped to before is unmapped.
func (m *mapCmd) Run(c *call) error {
	by, err := m.by()
	if err != nil {
		return err
	}
	d, err := c.desk(&m.stripeFlags)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	if m.key == "" {
		return usageError{fmt.Errorf("map %q: %w: the mode of the key says whether the customer is a live one", m.Account, billing.ErrNoStripe)}
	}
	if err := d.do(c.ctx, &billing.MapCustomer{Account: m.Account, Customer: m.Customer}, by); err != nil {
		return err
	}
	return c.print(map[string]string{"account": m.Account, "customer": m.Customer},
		line("%s is mapped to %s; its subscriptions are read by the next worker that runs", plain(m.Account), m.Customer))
}

type settleCmd struct {
	Account string        `arg:"" help:"The account's id."`
	Wait    time.Duration `default:"30s" help:"How long to wait for Stripe to have it."`
	whyFlags
	stripeFlags
}

// Run reports all that is counted now. What Stripe does not have yet is exit code 3.
func (s *settleCmd) Run(c *call) error {
	d, err := c.desk(&s.stripeFlags)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	ctx, stop := withTimeout(c.ctx, s.Wait)
	defer stop()
	action := billing.Settle{Account: s.Account}
	_, err = d.biller.Do(ctx, &action, s.by())
	if err != nil {
		return needsStripe(fmt.Errorf("account %q: %w", s.Account, err))
	}
	done := action.Done
	rows := [][]string{{"feature", "billable", "reported", "waiting"}}
	var waiting int64
	for _, one := range done {
		waiting += one.Waiting
		rows = append(rows, []string{one.Feature, count(one.Billable), count(one.Reported), count(one.Waiting)})
	}
	if done == nil {
		done = []billing.Settlement{}
	}
	if err := c.print(done, table(rows)); err != nil {
		return err
	}
	if waiting > 0 {
		return findings{fmt.Errorf("%d units of %q are not at Stripe yet: run this again before the subscription is changed (a new one can't be reported in its first three minutes; else `worker findings` may say why)", waiting, s.Account)}
	}
	return nil
}
