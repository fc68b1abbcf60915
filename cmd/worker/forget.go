package main

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/billing"
)

type forgetCmd struct {
	Account string `arg:"" help:"The account's id."`
	Yes     bool   `help:"Do it: it cannot be undone."`
	actorFlags
}

// Run takes away what says who an account was; what was counted and billed stays.
func (f *forgetCmd) Run(c *call) error {
	if !f.Yes {
		return usageError{errors.New("forgetting cannot be undone: say --yes. Amounts, reports and invoices stay; the id, addresses and texts go (docs/operations.md)")}
	}
	action := billing.Forget{Account: f.Account}
	if err := f.act(c, nil, &action); err != nil {
		return err
	}
	done := action.Done
	people := fmt.Sprintf("it is called %s from now on; %d addresses, %d answers and the texts of %d events and %d findings are gone",
		done.Name, done.Contacts, done.Answers, done.Events, done.Findings)
	if done.Customers > 0 {
		people += "; delete its customer at Stripe as well"
	}
	return c.print(done, line("%s", people))
}
