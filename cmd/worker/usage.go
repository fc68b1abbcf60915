package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/usage"
)

type usageCmd struct {
	Show   usageShowCmd   `cmd:"" help:"Print what is stored of an account, by period and feature."`
	Shadow usageShadowCmd `cmd:"" help:"Print what shadow mode let pass that would have been refused."`
}

type usageShowCmd struct {
	Account string `arg:"" help:"The account's id."`
}

// Run prints an account's stored usage. An account that is not known is an error.
func (u usageShowCmd) Run(c *call) error {
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = usage.FindAccount(c.ctx, pool, u.Account, false, time.Time{})
	if errors.Is(err, usage.ErrNotFound) {
		return fmt.Errorf("account %q: %w: an account is known from its first call on, or from its customer at Stripe", u.Account, err)
	}
	if err != nil {
		return fmt.Errorf("account %q: %w", u.Account, err)
	}
	totals, err := usage.Totals(c.ctx, pool, u.Account, time.Time{})
	if err != nil {
		return err
	}
	now, err := usage.Now(c.ctx, pool)
	if err != nil {
		return err
	}
	rows := [][]string{{"period", "state", "plan", "feature", "used", "included", "overage", "adjusted"}}
	for _, t := range totals {
		included := "unlimited"
		if t.Included != nil {
			included = count(*t.Included)
		}
		rows = append(rows, []string{day(t.Starts) + " – " + day(t.Ends), stateAt(t, now), t.Plan, t.Feature, count(t.Used + t.Adjusted),
			included, count(t.Overage), count(t.Adjusted)})
	}
	return c.print(totalsJSON(totals), table(rows))
}

// stateAt is a period's state for people. The next period is open before it begins, so that nodes have its terms.
func stateAt(t usage.Total, now time.Time) string {
	if t.State == "open" && t.Starts.After(now) {
		return "ahead"
	}
	return t.State
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04Z") }

type totalJSON struct {
	Starts   time.Time `json:"starts"`
	Ends     time.Time `json:"ends"`
	State    string    `json:"state"`
	Plan     string    `json:"plan"`
	Feature  string    `json:"feature"`
	Used     int64     `json:"used"`
	Included *int64    `json:"included"` // null: unlimited
	Overage  int64     `json:"overage"`
	Adjusted int64     `json:"adjusted"`
	Ceiling  int64     `json:"ceiling"`
}

func totalsJSON(totals []usage.Total) []totalJSON {
	out := make([]totalJSON, 0, len(totals))
	for _, t := range totals {
		out = append(out, totalJSON{
			t.Starts.UTC(), t.Ends.UTC(), t.State, t.Plan, t.Feature, t.Used + t.Adjusted, t.Included, t.Overage, t.Adjusted, t.Ceiling,
		})
	}
	return out
}

type usageShadowCmd struct {
	Since time.Time `placeholder:"DAY" format:"2006-01-02" help:"Periods that ended before are left out. Default: those that are open."`
}

type shadowJSON struct {
	Account  string    `json:"account"`
	Feature  string    `json:"feature"`
	Plan     string    `json:"plan"`
	Starts   time.Time `json:"starts"`
	Ends     time.Time `json:"ends"`
	Included *int64    `json:"included"` // null: unlimited
	Used     int64     `json:"used"`
	Refused  int64     `json:"would_have_been_refused"`
	Billed   int64     `json:"would_be_billed"`
	Amount   *string   `json:"amount"` // of what would be billed, in whole units of the currency; null: the price is not known
	Lost     *string   `json:"amount_refused"`
	Currency string    `json:"currency,omitempty"`
}

// Run prints what shadow mode let pass, and what it is worth at the prices as they stand.
func (u usageShadowCmd) Run(c *call) error {
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	if u.Since.IsZero() {
		if u.Since, err = usage.Now(c.ctx, pool); err != nil {
			return err
		}
	}
	all, err := usage.Shadowed(c.ctx, pool, u.Since)
	if err != nil {
		return err
	}
	var currency string
	if last, err := usage.LatestCatalog(c.ctx, pool); err == nil {
		currency = last.Catalog.Currency()
	} else if !errors.Is(err, usage.ErrNoCatalog) {
		return err
	}
	rows, out := [][]string{{"account", "plan", "feature", "period", "used", "included", "would have been refused", "worth", "would be billed", "amount"}}, []shadowJSON{}
	for _, s := range all {
		included := "unlimited"
		if s.Included != nil {
			included = count(*s.Included)
		}
		amount, lost := books.Worth(s.Billed, s.UnitAmount, currency), books.Worth(s.Passed, s.UnitAmount, currency)
		rows = append(rows, []string{s.Account, s.Plan, s.Feature, day(s.Starts) + " – " + day(s.Ends), count(s.Used), included,
			count(s.Passed), orUnknown(lost, currency), count(s.Billed), orUnknown(amount, currency)})
		out = append(out, shadowJSON{s.Account, s.Feature, s.Plan, s.Starts.UTC(), s.Ends.UTC(), s.Included, s.Used, s.Passed, s.Billed, amount, lost, currency})
	}
	if len(all) == 0 {
		return c.print(out, line("shadow mode let nothing pass that would have been refused"))
	}
	return c.print(out, table(rows))
}
