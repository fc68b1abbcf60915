package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"time"

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
}

// Run publishes the plan file.
func (p plansApplyCmd) Run(c *call) error {
	catalog, err := p.load(c)
	if err != nil {
		return err
	}
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	now, err := usage.Now(c.ctx, pool)
	if err != nil {
		return err
	}
	number, changed, err := usage.Publish(c.ctx, pool, catalog, actor(), now)
	if err != nil {
		return err
	}
	if !changed {
		_, _ = fmt.Fprintf(c.out, "catalog %d is this plan file already; open periods keep the terms that they began with, unless --now changes them\n", number)
	} else {
		_, _ = fmt.Fprintf(c.out, "published as catalog %d: periods that begin from now on have its terms, open ones only with --now\n", number)
	}
	if p.Now {
		n, err := applyNow(c.ctx, pool, number, now)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.out, "the open periods of %d accounts have the new terms from now on; what was counted stays as it was counted\n", n)
	}
	return nil
}

// applyNow changes the open periods of all accounts, one transaction each.
func applyNow(ctx context.Context, db usage.DB, catalog int64, now time.Time) (int, error) {
	const chunk = 1000
	var n int
	for last := int64(0); ; {
		ids, err := usage.AccountIDs(ctx, db, last, chunk)
		if err != nil || len(ids) == 0 {
			return n, err
		}
		for _, id := range ids {
			if err := usage.ApplyNow(ctx, db, id, catalog, now); err != nil {
				return n, err
			}
			n, last = n+1, id
		}
	}
}

// actor names who runs a command, for the records that it leaves.
func actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
