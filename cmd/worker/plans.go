package main

import (
	"errors"
	"fmt"
	"os/user"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

type plansCmd struct {
	Check plansCheckCmd `cmd:"" help:"Compare the plan file with Stripe: every difference, with what to do."`
	Push  plansPushCmd  `cmd:"" help:"Make at Stripe what the plan file needs: meters, products, prices. Changes and deletes nothing."`
	Apply plansApplyCmd `cmd:"" help:"Publish the plan file: periods that begin later get its terms."`
}

// planFile is the flag of every command that reads it.
type planFile struct {
	Plans string `name:"plans" from:"WEIR_PLANS" placeholder:"FILE" help:"The plan file ($WEIR_PLANS)."`
}

// load reads the plan file and prints its warnings.
func (p planFile) load(c *call) (*plans.Catalog, error) {
	if p.Plans == "" {
		return nil, usageError{errors.New("no plan file is named: set WEIR_PLANS, or give --plans FILE (docs/plan-file.md)")}
	}
	catalog, err := plans.Load(p.Plans)
	if err != nil {
		return nil, usageError{err}
	}
	for _, w := range catalog.Warnings() {
		_, _ = fmt.Fprintf(c.errs, "%s: warning: %s\n", p.Plans, w)
	}
	return catalog, nil
}

type plansApplyCmd struct {
	planFile
	Now bool `help:"Change the terms of open periods too, from now on. Ended ones never change."`
	whyFlags
}

// Run publishes the plan file.
func (p *plansApplyCmd) Run(c *call) error {
	catalog, err := p.load(c)
	if err != nil {
		return err
	}
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	action := billing.PublishPlans{Catalog: catalog, Now: p.Now}
	if _, err := d.biller.Do(c.ctx, &action, p.by()); err != nil {
		return err
	}
	if !action.Changed {
		_, _ = fmt.Fprintf(c.out, "catalog %d is this plan file already; open periods keep the terms that they began with, unless --now changes them\n", action.Number)
	} else {
		_, _ = fmt.Fprintf(c.out, "published as catalog %d: periods that begin from now on have its terms, open ones only with --now\n", action.Number)
	}
	if p.Now {
		_, _ = fmt.Fprintf(c.out, "the open periods of %d accounts have the new terms from now on; what was counted stays as it was counted\n", action.Accounts)
	}
	return nil
}

// publish publishes a worker's plan file when it starts. A file that counts already is no change; what a worker before
// left undone of its publication is done.
func (d *desk) publish(c *call, catalog *plans.Catalog, file string) error {
	latest, err := usage.LatestCatalog(c.ctx, d.pool)
	if err != nil && !errors.Is(err, usage.ErrNoCatalog) {
		return err
	}
	if latest.Hash == catalog.Hash() {
		_, _, err = usage.Publish(c.ctx, d.pool, catalog, actor(), d.clock.Now())
		return err
	}
	action := billing.PublishPlans{Catalog: catalog}
	if _, err := d.biller.Do(c.ctx, &action, usage.By{Actor: actor(), Way: usage.WayCLI, Reason: "the plan file of a worker that starts"}); err != nil {
		return err
	}
	if action.Changed {
		c.logger.Info("published the plan file: open periods keep their terms, unless worker plans apply --now changes them", "catalog", action.Number, "file", file)
	}
	return nil
}

// actor names who runs a command, for the records that it leaves.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
