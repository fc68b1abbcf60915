package main

import (
	"time"

	"github.com/weirhq/weir/billing"
)

type lateCmd struct {
	List    lateListCmd    `cmd:"" default:"1" help:"List late usage that is open, the oldest first."`
	Release lateReleaseCmd `cmd:"" help:"Decide about late usage that is held."`
}

type lateListCmd struct{}

type lateJSON struct {
	ID       int64     `json:"id"`
	Account  string    `json:"account"`
	Feature  string    `json:"feature"`
	Starts   time.Time `json:"starts"`
	Ends     time.Time `json:"ends"`
	Units    int64     `json:"units"`
	Policy   string    `json:"policy"`
	State    string    `json:"state"`
	Cause    string    `json:"cause"`
	Customer string    `json:"customer,omitempty"`
	Since    time.Time `json:"since"`
	Error    string    `json:"error,omitempty"`
}

// Run lists open late usage.
func (lateListCmd) Run(c *call) error {
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	all, err := d.biller.LateList(c.ctx)
	if err != nil {
		return err
	}
	rows, out := [][]string{{"id", "since", "account", "feature", "period", "units", "policy", "state", "cause", "error"}}, []lateJSON{}
	for _, l := range all {
		rows = append(rows, []string{count(l.ID), day(l.Since), l.Account, l.Feature, day(l.Starts) + " – " + day(l.Ends), count(l.Units),
			l.Policy, l.State, l.Cause, l.Error})
		out = append(out, lateJSON{l.ID, l.Account, l.Feature, l.Starts.UTC(), l.Ends.UTC(), l.Units, l.Policy, l.State, l.Cause, l.Customer, l.Since.UTC(), l.Error})
	}
	if len(all) == 0 {
		return c.print(out, line("no late usage is open"))
	}
	return c.print(out, table(rows))
}

type lateReleaseCmd struct {
	ID     int64  `arg:"" help:"Its number in the list."`
	Policy string `required:"" enum:"invoice_item,forgive,credit_note" placeholder:"WHAT" help:"invoice_item bills it, forgive writes it off, credit_note credits what was billed too much."`
	actorFlags
}

// Run decides about held usage.
func (l *lateReleaseCmd) Run(c *call) error {
	if err := l.act(c, nil, &billing.ReleaseLate{ID: l.ID, Policy: l.Policy}); err != nil {
		return err
	}
	return c.print(map[string]any{"id": l.ID, "policy": l.Policy}, line("late usage %d: %s; a running worker does what is left to do at Stripe", l.ID, l.Policy))
}
