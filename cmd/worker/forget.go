package main

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

type forgetCmd struct {
	Account string `arg:"" help:"The account's id."`
	Yes     bool   `help:"Do it: it cannot be undone."`
}

// Run takes away what says who an account was; what was counted and billed stays.
func (f *forgetCmd) Run(c *call) error {
	if !f.Yes {
		return usageError{errors.New("forgetting cannot be undone: say --yes. Amounts, reports and invoices stay; the id, addresses and texts go (docs/operations.md)")}
	}
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	done, err := d.biller.Forget(c.ctx, f.Account)
	if errors.Is(err, billing.ErrActive) || errors.Is(err, usage.ErrNotFound) {
		return usageError{err}
	}
	if err != nil {
		return err
	}
	people := fmt.Sprintf("it is called %s from now on; %d addresses, %d answers and the texts of %d events and %d findings are gone",
		done.Name, done.Contacts, done.Answers, done.Events, done.Findings)
	if done.Customers > 0 {
		people += "; delete its customer at Stripe as well"
	}
	return c.print(done, line("%s", people))
}
