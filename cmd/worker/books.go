package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
)

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

type syncCmd struct {
	Account string `arg:"" optional:"" help:"One account; without it all customers whose subscriptions changed."`
	whyFlags
	stripeFlags
}

// Run reads subscriptions again.
func (s *syncCmd) Run(c *call) error {
	d, err := c.desk(&s.stripeFlags)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	if s.Account != "" {
		if _, err := d.biller.Do(c.ctx, &billing.Resync{Account: s.Account}, s.by()); err != nil {
			return needsStripe(fmt.Errorf("account %q: %w", s.Account, err))
		}
		return c.print(map[string]int{"customers": 1}, line("read the subscriptions of %s", plain(s.Account)))
	}
	var all billing.ResyncChanged
	if _, err := d.biller.Do(c.ctx, &all, s.by()); err != nil {
		return needsStripe(err)
	}
	return c.print(map[string]int{"customers": all.Customers}, line("read the subscriptions of %d customers", all.Customers))
}

// needsStripe makes a missing key a fault of the command line.
func needsStripe(err error) error {
	if errors.Is(err, billing.ErrNoStripe) {
		return usageError{err}
	}
	return err
}

type reconcileCmd struct{ stripeFlags }

// Run compares summaries with the ledger, as far as they are due, and prints what the last comparisons of each window
// said. Open findings are exit code 3.
func (r *reconcileCmd) Run(c *call) error {
	d, err := c.desk(&r.stripeFlags)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	if r.key == "" {
		return usageError{billing.ErrNoStripe}
	}
	if err := d.biller.Reconcile(c.ctx); err != nil {
		return needsStripe(err)
	}
	if err := d.printCompared(c); err != nil {
		return err
	}
	return d.printFindings(c)
}

// printCompared tells people what the findings follow from; programs read the findings.
func (d *desk) printCompared(c *call) error {
	all, err := d.biller.Compared(c.ctx)
	if err != nil || c.JSON || len(all) == 0 {
		return err
	}
	rows := [][]string{{"meter", "windows", "reported", "of these unsure", "at Stripe", "read from", "to"}}
	for _, m := range all {
		rows = append(rows, []string{m.Meter, count(m.Windows), count(m.Reported), count(m.Unsure), count(m.AtStripe), day(m.Oldest), day(m.Newest)})
	}
	return table(rows)(c.out)
}

type findingsCmd struct{}

// Run lists what waits for a person; something there is exit code 3.
func (findingsCmd) Run(c *call) error {
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	return d.printFindings(c)
}

type findingJSON struct {
	Kind    string    `json:"kind"`
	Subject string    `json:"subject"`
	Account string    `json:"account,omitempty"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
	Seen    time.Time `json:"seen"`
	Times   int64     `json:"times"`
}

func (d *desk) printFindings(c *call) error {
	open, err := d.biller.Findings(c.ctx)
	if err != nil {
		return err
	}
	rows, out := [][]string{{"since", "kind", "subject", "account", "what is wrong"}}, []findingJSON{}
	for _, f := range open {
		rows = append(rows, []string{day(f.Since), f.Kind, f.Subject, f.Account, f.Message})
		out = append(out, findingJSON{f.Kind, f.Subject, f.Account, f.Message, f.Since.UTC(), f.SeenAt.UTC(), f.Times})
	}
	people := table(rows)
	if len(open) == 0 {
		people = line("nothing waits for a person")
	}
	if err := c.print(out, people); err != nil || len(open) == 0 {
		return err
	}
	return findings{fmt.Errorf("%d findings wait for a person: docs/troubleshooting.md says what each kind means", len(open))}
}

type closeReportCmd struct {
	Month  string `required:"" placeholder:"YYYY-MM" help:"The month, in UTC, in which the periods ended."`
	Format string `enum:"table,json,csv" default:"table" help:"table, json or csv."`
}

// Run prints the books of a month. A place where they don't agree is exit code 3.
func (r *closeReportCmd) Run(c *call) error {
	month, err := time.Parse("2006-01", r.Month)
	if err != nil {
		return usageError{fmt.Errorf("--month is %q: write year and month, such as 2026-01", r.Month)}
	}
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	breaks, err := r.write(c, d, month)
	if err != nil {
		return err
	}
	if breaks > 0 {
		return findings{fmt.Errorf("the books of %s do not agree in %d places", r.Month, breaks)}
	}
	return nil
}

// write prints the books and returns how many places do not agree.
func (r *closeReportCmd) write(c *call, d *desk, month time.Time) (int, error) {
	if r.Format == "csv" && !c.JSON {
		return books.WriteCloseCSV(c.ctx, d.pool, month, d.clock.Now(), c.out, nil)
	}
	report, err := books.ReadCloseReport(c.ctx, d.pool, month, d.clock.Now())
	if err != nil {
		return 0, err
	}
	write := report.WriteTable
	if c.JSON || r.Format == "json" {
		write = report.WriteJSON
	}
	return len(report.Breaks), write(c.out)
}

type replayCmd struct{ whyFlags }

// Run tries again what waited for a fault to be mended.
func (r *replayCmd) Run(c *call) error {
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	var again billing.Replay
	if _, err := d.biller.Do(c.ctx, &again, r.by()); err != nil {
		return err
	}
	return c.print(map[string]int{"customers": again.Customers, "reports": again.Reports},
		line("%d customers are read again, %d refused reports are sent again; `worker findings` lists what is left", again.Customers, again.Reports))
}

type restoredCmd struct {
	GoOn  bool   `name:"go-on" help:"Let reports go on: a person has looked into it."`
	Cause string `enum:"restored,unauthorized,clock" default:"restored" help:"With --go-on: the cause that was looked into, one of restored, unauthorized and clock."`
	whyFlags
}

// Validate refuses a person's decision without its reason.
func (r *restoredCmd) Validate() error {
	if r.GoOn && strings.TrimSpace(r.Why) == "" {
		return errors.New("--go-on needs --reason: the audit log keeps what was looked into")
	}
	return nil
}

// Run stops reports after a restore, or lets them go on. A stop that remains is exit code 3.
func (r *restoredCmd) Run(c *call) error {
	d, err := c.desk(nil)
	if err != nil {
		return err
	}
	defer d.pool.Close()
	var action billing.Action = &billing.SayRestored{}
	if r.GoOn {
		action = &billing.ResumeReports{Cause: r.Cause}
	}
	if err := d.do(c.ctx, action, r.by()); err != nil {
		return err
	}
	stops, err := d.biller.Stops(c.ctx)
	if err != nil {
		return err
	}
	type stopJSON struct {
		Cause   string    `json:"cause"`
		Since   time.Time `json:"since"`
		Message string    `json:"message"`
	}
	rows, out := [][]string{{"since", "cause", "message"}}, []stopJSON{}
	for _, s := range stops {
		rows = append(rows, []string{day(s.Since), s.Cause, s.Message})
		out = append(out, stopJSON{s.Cause, s.Since.UTC(), s.Message})
	}
	if len(stops) == 0 {
		return c.print(out, line("nothing holds up reports"))
	}
	if err := c.print(out, table(rows)); err != nil {
		return err
	}
	return findings{errors.New("reports to Stripe are stopped: a running worker compares every open window with its summary and then goes on; `worker restored --go-on --reason …` ends it by a person's word")}
}
