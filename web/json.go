package web

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/books"
)

// usageJSON is an account's usage for those who show it themselves. Counts are units; amounts are decimals in whole
// currency units, before tax, discounts and credits.
type usageJSON struct {
	Account    string        `json:"account"`
	AsOf       time.Time     `json:"as_of"`
	Plan       string        `json:"plan"`
	PlanName   string        `json:"plan_name"`
	UpgradeURL *string       `json:"upgrade_url"`
	Features   []featureJSON `json:"features"`
	Past       []pastJSON    `json:"past"`
}

type featureJSON struct {
	Feature     string    `json:"feature"`
	Name        string    `json:"name"`
	Unit        string    `json:"unit"`
	Starts      time.Time `json:"starts"`
	ResetsAt    time.Time `json:"resets_at"`
	Used        int64     `json:"used"`
	Included    *int64    `json:"included"`  // null: unlimited
	Remaining   *int64    `json:"remaining"` // of the included units
	Limit       *int64    `json:"limit"`     // the most that is admitted; null: no bound
	Overage     int64     `json:"overage"`
	Billable    int64     `json:"overage_billable"`
	Amount      *amount   `json:"overage_amount"`
	UnitAmount  *string   `json:"unit_amount"` // minor currency units per unit
	OnExceeded  string    `json:"on_exceeded"`
	OverageOpen bool      `json:"overage_open"`
	Shadow      bool      `json:"shadow"`       // whatever the terms say, nothing is refused now
	Cap         *capJSON  `json:"spending_cap"` // the customer's own
	Status      string    `json:"status"`       // ok, near, over, full
	Pace        *paceJSON `json:"pace"`         // an estimate; null: too early to tell
	Days        []dayJSON `json:"days"`
}

type amount struct {
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
}

type capJSON struct {
	Units  int64   `json:"units"`
	Amount *amount `json:"amount"`
}

type paceJSON struct {
	PerDay      int64      `json:"per_day"`
	Used        int64      `json:"used_by_end"`
	Overage     int64      `json:"overage_by_end"`
	Amount      *amount    `json:"overage_amount_by_end"`
	ExhaustedAt *time.Time `json:"included_used_up_at"`
}

type dayJSON struct {
	Day     string `json:"day"` // UTC
	Used    int64  `json:"used"`
	Overage int64  `json:"overage"`
}

type pastJSON struct {
	Feature  string        `json:"feature"`
	Plan     string        `json:"plan"`
	Starts   time.Time     `json:"starts"`
	Ends     time.Time     `json:"ends"`
	State    string        `json:"state"`
	Used     int64         `json:"used"`
	Included *int64        `json:"included"`
	Overage  int64         `json:"overage"`
	Amount   *amount       `json:"overage_amount"`
	Book     *bookJSON     `json:"book"` // null until the period is closed
	Invoices []invoiceJSON `json:"invoices"`
	Days     []dayJSON     `json:"days"`
}

type bookJSON struct {
	books.CloseNumbers
	Final bool `json:"final"`
}

type invoiceJSON struct {
	Number   string  `json:"number"`
	Status   string  `json:"status"`
	URL      *string `json:"url"`
	Units    int64   `json:"units"`
	Credited int64   `json:"credited_units"` // of units, by credit notes since
	Quantity int64   `json:"line_quantity"`
	Amount   *amount `json:"line_amount"`
}

func (b builder) json() usageJSON {
	out := usageJSON{Account: b.s.Account, AsOf: b.s.AsOf, Features: []featureJSON{}, Past: []pastJSON{}}
	for i := range b.s.Lines {
		l := &b.s.Lines[i]
		if !l.Running {
			out.Past = append(out.Past, b.pastJSON(l))
			continue
		}
		if out.Plan == "" {
			out.Plan, out.PlanName = l.Plan, l.Plan
			if p, ok := b.cat.Plan(l.Plan); ok {
				out.PlanName, out.UpgradeURL = p.DisplayName, orNull(p.UpgradeURL)
			}
		}
		out.Features = append(out.Features, b.featureJSON(l))
	}
	return out
}

func (b builder) featureJSON(l *books.StatementLine) featureJSON {
	name, u := b.names(l.Feature)
	f := featureJSON{
		Feature: l.Feature, Name: name, Unit: u.one, Starts: l.Starts, ResetsAt: l.Ends, Used: l.Used, Included: l.Included, Overage: l.Overage,
		Billable: l.Billable, Amount: b.amount(l, l.Billable), OnExceeded: l.OnExceeded, OverageOpen: l.OverageOpen, Shadow: goesOn(l), Days: daysJSON(l),
	}
	f.Status, _ = level(l)
	if l.Included != nil {
		rest := max(0, *l.Included-l.Free)
		f.Remaining = &rest
	}
	if top := ceiling(l); top >= 0 {
		f.Limit = &top
	}
	if l.UnitAmount.Valid {
		s := l.UnitAmount.Decimal.String()
		f.UnitAmount = &s
	}
	if l.SpendingCap != nil {
		f.Cap = &capJSON{*l.SpendingCap, b.amount(l, *l.SpendingCap)}
	}
	if p, ok := paceOf(l, b.s.AsOf); ok {
		f.Pace = &paceJSON{PerDay: p.PerDay, Used: p.Used, Overage: p.Overage, Amount: b.amount(l, billedAtMost(l, p.Overage))}
		if !p.Exhausted.IsZero() {
			f.Pace.ExhaustedAt = &p.Exhausted
		}
	}
	return f
}

func (b builder) pastJSON(l *books.StatementLine) pastJSON {
	p := pastJSON{
		Feature: l.Feature, Plan: l.Plan, Starts: l.Starts, Ends: l.Ends, State: l.State, Used: l.Used, Included: l.Included, Overage: l.Overage,
		Amount: b.amount(l, l.Due()), Invoices: []invoiceJSON{}, Days: daysJSON(l),
	}
	if l.Book != nil {
		p.Book = &bookJSON{l.Book.CloseNumbers, l.Book.Final}
	}
	for _, i := range l.Invoiced {
		p.Invoices = append(p.Invoices, invoiceJSON{i.Number, i.Status, orNull(webURL(i.URL)), i.Units, i.Credited, i.Quantity, minor(i.Currency, decimal.NewFromInt(i.Amount))})
	}
	return p
}

// amount is what units of a line cost; null without a price.
func (b builder) amount(l *books.StatementLine, units int64) *amount {
	c, ok := b.currency(l)
	if !ok || !l.UnitAmount.Valid || l.OnExceeded != "bill_overage" && units == 0 {
		return nil
	}
	return &amount{c.plain(line(units, l.UnitAmount.Decimal)), c.code}
}

func minor(code string, n decimal.Decimal) *amount {
	c, ok := currencyOf(code)
	if !ok {
		return nil
	}
	return &amount{c.plain(n), c.code}
}

func daysJSON(l *books.StatementLine) []dayJSON {
	out := make([]dayJSON, 0, len(l.Days))
	for _, d := range l.Days {
		out = append(out, dayJSON{d.Day.UTC().Format(time.DateOnly), d.Used, d.Overage})
	}
	return out
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// writeJSON answers with indented JSON: people read it too.
func (p *Pages) writeJSON(w http.ResponseWriter, v any) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		p.failed(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, '\n')) // the reader has gone: nobody is left to tell
}
