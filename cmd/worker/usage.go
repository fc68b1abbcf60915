package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/weirhq/weir/usage"
)

type usageCmd struct {
	Show usageShowCmd `cmd:"" help:"Print what is stored of an account, by period and feature."`
}

type usageShowCmd struct {
	Account string `arg:"" help:"The account's id."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

// Run prints an account's stored usage. An account that is not known is an error.
func (u usageShowCmd) Run(c *call) error {
	pool, err := c.openMigrated()
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := usage.FindAccount(c.ctx, pool, u.Account, false, time.Time{}); err != nil {
		return fmt.Errorf("account %q: %w", u.Account, err)
	}
	totals, err := usage.Totals(c.ctx, pool, u.Account, time.Time{})
	if err != nil {
		return err
	}
	if u.JSON {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		return enc.Encode(totalsJSON(totals))
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "period\tstate\tplan\tfeature\tused\tincluded\toverage\tadjusted\t")
	for _, t := range totals {
		included := "unlimited"
		if t.Included != nil {
			included = strconv.FormatInt(*t.Included, 10)
		}
		_, _ = fmt.Fprintf(w, "%s – %s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t\n", day(t.Starts), day(t.Ends), t.State, t.Plan, t.Feature,
			t.Used+t.Adjusted, included, t.Overage, t.Adjusted)
	}
	return w.Flush()
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
