package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/plans"
)

type plansCheckCmd struct {
	planFile
	stripeFlags
	NoStripe bool `name:"no-stripe" help:"Look at the file alone, and ask Stripe nothing."`
}

// Run compares the plan file with Stripe. A difference that keeps overage from being billed is exit code 3.
func (p *plansCheckCmd) Run(c *call) error {
	catalog, err := p.load(c)
	if err != nil {
		return err
	}
	if p.NoStripe {
		return c.print([]billing.Difference{}, line("the plan file is valid; it was not compared with Stripe"))
	}
	_, offer, err := p.offer(c, catalog)
	if errors.Is(err, billing.ErrNoStripe) {
		return usageError{fmt.Errorf("%w, or say --no-stripe to look at the file alone, which is valid", billing.ErrNoStripe)}
	}
	if err != nil {
		return err
	}
	all := offer.Differences()
	if all == nil {
		all = []billing.Difference{}
	}
	people := differenceTable(all)
	if len(all) == 0 {
		people = line("Stripe has what the plan file says")
	}
	if err := c.print(all, people); err != nil {
		return err
	}
	return disagreement(all)
}

// disagreement is the error of differences that are more than warnings.
func disagreement(all []billing.Difference) error {
	all = slices.DeleteFunc(slices.Clone(all), func(d billing.Difference) bool { return d.Warning })
	if len(all) == 0 {
		return nil
	}
	return findings{fmt.Errorf("Stripe and the plan file differ in %d places", len(all))}
}

func differenceTable(all []billing.Difference) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, d := range all {
			level := "error"
			if d.Warning {
				level = "warning"
			}
			if _, err := fmt.Fprintf(w, "%-7s  %s\n         %s: %s\n", level, plain(d.Message), d.Kind, plain(d.Next)); err != nil {
				return err
			}
		}
		return nil
	}
}

// offer reads what is at Stripe.
func (s *stripeFlags) offer(c *call, catalog *plans.Catalog) (*billing.Client, *billing.Offer, error) {
	if err := s.read(c.env); err != nil {
		return nil, nil, err
	}
	client, err := s.client()
	if err != nil {
		return nil, nil, err
	}
	if client == nil {
		return nil, nil, usageError{billing.ErrNoStripe}
	}
	offer, err := client.Offer(c.ctx, catalog)
	if err != nil {
		return nil, nil, fmt.Errorf("read what is at Stripe: %w", err)
	}
	return client, offer, nil
}

type plansPushCmd struct {
	planFile
	stripeFlags
	Price map[string]string `placeholder:"KEY=AMOUNT/INTERVAL" mapsep:"none" help:"What a plan's own price is to cost, which the file does not say: --price pro_monthly=49.00/month. Intervals: month, quarter, year."`
	Yes   bool              `help:"Do it. Without, only what would be made is printed."`
	Live  bool              `help:"Mean it with a live key."`
	whyFlags
}

type pushJSON struct {
	Made  map[string]string    `json:"made"`  // id at Stripe, by kind and name
	Steps []billing.Step       `json:"steps"` // what is, or was, to be made
	Left  []billing.Difference `json:"left"`  // what only a person can mend
}

// Run makes what is missing. What is left to a person, or to --yes, is exit code 3.
func (p *plansPushCmd) Run(c *call) error {
	catalog, err := p.load(c)
	if err != nil {
		return err
	}
	amounts, err := p.amounts()
	if err != nil {
		return err
	}
	client, offer, err := p.offer(c, catalog)
	if err != nil {
		return err
	}
	steps, left, err := offer.Steps(amounts)
	if err != nil {
		return usageError{err}
	}
	if p.Yes && client.Live() && !p.Live {
		return usageError{errors.New("the Stripe key is a live one: look at what would be made without --yes, then say --yes --live")}
	}
	out := pushJSON{Made: map[string]string{}, Steps: slices.Concat([]billing.Step{}, steps), Left: slices.Concat([]billing.Difference{}, left)}
	if !c.JSON {
		mode := "test mode"
		if client.Live() {
			mode = "live mode"
		}
		if err := printSteps(c.out, steps, mode); err != nil {
			return err
		}
	}
	if p.Yes {
		err = p.push(c, &billing.PushPlans{Client: client, Steps: steps, Made: func(s billing.Step, id string) {
			out.Made[s.Kind+" "+s.Name] = id
			if !c.JSON {
				_, _ = fmt.Fprintf(c.out, "made %s %s: %s\n", s.Kind, s.Name, id)
			}
		}})
	}
	if err := errors.Join(err, c.print(out, differenceTable(left))); err != nil {
		return err
	}
	if len(steps) > 0 && !p.Yes {
		return findings{errors.New("nothing was made: run it again with --yes")}
	}
	return disagreement(left)
}

// push makes it, and writes it into the audit log of the database, where one is named and migrated: a plan file may be
// pushed before there is one.
func (p *plansPushCmd) push(c *call, action *billing.PushPlans) error {
	if c.DatabaseURL == "" {
		_, _ = fmt.Fprintln(c.errs, "no database is named (DATABASE_URL): this is written into no audit log")
		return action.Client.Push(c.ctx, action.Steps, action.Made)
	}
	d, err := c.desk(nil)
	if errors.Is(err, schema.ErrNotMigrated) {
		_, _ = fmt.Fprintln(c.errs, "the database is not migrated yet: this is written into no audit log")
		return action.Client.Push(c.ctx, action.Steps, action.Made)
	}
	if err != nil {
		return err
	}
	defer d.pool.Close()
	_, err = d.biller.Do(c.ctx, action, p.by())
	return err
}

func printSteps(w io.Writer, steps []billing.Step, mode string) error {
	if len(steps) == 0 {
		return line("nothing is to be made at Stripe (%s)", mode)(w)
	}
	if err := line("to be made at Stripe (%s), and nothing else touched:", mode)(w); err != nil {
		return err
	}
	for _, s := range steps {
		if err := line("  + %s", plain(s.Text))(w); err != nil {
			return err
		}
	}
	return nil
}

// amounts reads the --price flags.
func (p *plansPushCmd) amounts() (map[string]billing.Amount, error) {
	out := map[string]billing.Amount{}
	for key, text := range p.Price {
		amount, interval, ok := strings.Cut(text, "/")
		if !ok {
			return nil, usageError{fmt.Errorf("--price %s=%s: write the amount and the interval, such as %s=49.00/month", key, text, key)}
		}
		out[key] = billing.Amount{Amount: amount, Interval: interval}
	}
	return out, nil
}
