package web

import (
	"fmt"
	"strconv"
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/plans"
)

// page is what the usage page's template shows: text that is ready, and shapes.
type page struct {
	Account    string
	Plan       string
	UpgradeURL string
	Period     string
	AsOf       string
	AsOfISO    string
	Currency   string // upper-case; empty when nothing costs money
	Features   []featureView
	Past       []pastView
	Announce   string // what a screen reader is told when it changes
	Empty      bool

	// Of a page that is loaded, not of its live parts.
	Self   string // path of the page
	Assets assetNames
}

// featureView is one feature in the running period.
type featureView struct {
	ID       string // for the document: safe whatever the feature is called
	Name     string
	Level    string // ok, near, full, over: how it is coloured
	Status   string // the same in words
	Used     string
	Of       string // "of 1,000,000 events included"
	Percent  string
	Bar      bar
	BarText  string
	Facts    []fact
	Rule     string // what happens at 100 %
	Pace     string
	Notes    []string
	Chart    chart
	ChartFor string
	Cap      *capForm
}

type fact struct{ Name, Value, More string }

// capForm is the customer's own spending cap and the form that sets it.
type capForm struct {
	ID      string // of its feature, in the document
	Action  string
	Feature string
	Key     string // the form's key
	Value   string // as typed
	Now     string // what is set
	Set     bool
	Symbol  string
	Code    string
	Price   string
	GoesOn  bool // calls are not refused at the cap
	Error   string
	Saved   bool
}

// pastView is one feature in an ended period.
type pastView struct {
	Period   string
	Feature  string
	Used     string
	Included string
	Overage  string
	Amount   string
	State    string
	Invoices []invoiceView
	Notes    []string
}

type invoiceView struct{ Text, URL, Name string }

// builder makes views of one statement.
type builder struct {
	s   *books.Statement
	cat *plans.Catalog
}

func (b builder) page() page {
	p := page{Account: b.s.Account, AsOf: instant(b.s.AsOf), AsOfISO: b.s.AsOf.Format(time.RFC3339)}
	money := false
	for i := range b.s.Lines {
		l := &b.s.Lines[i]
		if !l.Running {
			p.Past = append(p.Past, b.past(l))
			continue
		}
		if p.Plan == "" {
			p.Plan, p.UpgradeURL = l.Plan, b.cat.UpgradeURL()
			if plan, ok := b.cat.Plan(l.Plan); ok {
				p.Plan, p.UpgradeURL = plan.DisplayName, plan.UpgradeURL
			}
			p.Period = span(l.Starts, l.Ends)
		}
		f := b.feature(l, i)
		p.Features = append(p.Features, f)
		p.Announce += fmt.Sprintf("%s: %s. ", f.Name, f.Status)
		money = money || l.OnExceeded == "bill_overage"
	}
	if c, ok := b.currency(nil); ok && (money || len(p.Past) > 0) {
		p.Currency = upper(c.code)
	}
	p.Empty = len(p.Features) == 0
	return p
}

// currency is the one of a line's metered item, else the plan file's.
func (b builder) currency(l *books.StatementLine) (currency, bool) {
	if l != nil && l.Currency != "" {
		return currencyOf(l.Currency)
	}
	for i := range b.s.Lines {
		if l == nil && b.s.Lines[i].Currency != "" {
			return currencyOf(b.s.Lines[i].Currency)
		}
	}
	return currencyOf(b.cat.Currency())
}

func (b builder) names(feature string) (name string, u unit) {
	f, ok := b.cat.Feature(feature)
	if !ok {
		return feature, unit{"unit", "units"}
	}
	return f.DisplayName, unitOf(f)
}

func (b builder) feature(l *books.StatementLine, i int) featureView {
	name, u := b.names(l.Feature)
	v := featureView{ID: "f" + strconv.Itoa(i), Name: name, Used: wording.Count(l.Used), Bar: barOf(l), Chart: chartOf(l, b.s.AsOf)}
	v.Level, v.Status = level(l)
	v.ChartFor = fmt.Sprintf("%s by day, %s", name, span(l.Starts, l.Ends))
	v.Facts = b.facts(l, u)
	v.Rule = b.rule(l, u)
	v.Pace = b.pace(l, u)
	v.Cap = b.cap(l)
	if v.Cap != nil {
		v.Cap.ID = v.ID
	}
	switch {
	case l.Included == nil:
		v.Of, v.BarText = u.many+", without a limit", wording.Count(l.Used)+" "+u.many+" used, without a limit"
	default:
		v.Of = "of " + u.of(*l.Included) + " included"
		v.Percent = percent(l.Used, *l.Included)
		v.BarText = fmt.Sprintf("%s of %s used, %s", wording.Count(l.Used), u.of(*l.Included), v.Percent)
		if v.Percent == "" {
			v.BarText = u.of(l.Used) + " used, none included"
		}
	}
	if l.Carried > 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("%s of the included ones were used in the period before, which ended early.", u.of(l.Carried)))
	}
	if l.Adjusted != 0 {
		v.Notes = append(v.Notes, fmt.Sprintf("Corrections of %s are contained in these numbers.", signed(l.Adjusted, u)))
	}
	if l.Source == "subscription" && !l.Confirmed && l.Key != 0 {
		v.Notes = append(v.Notes, "The renewal that began this period is being confirmed.")
	}
	return v
}

// level judges a line: its colour, and the same in words.
func level(l *books.StatementLine) (class, words string) {
	if !l.InPlan {
		return "full", "No longer in your plan"
	}
	if l.Included == nil {
		return "ok", "No limit"
	}
	if top := ceiling(l); top >= 0 && l.Used >= top {
		switch {
		case top == 0:
			return "full", "Not included"
		case l.OverageOpen && capped(l):
			return "full", "Spending cap reached"
		case l.Overage > 0:
			return "full", "Maximum reached"
		}
		return "full", "All used"
	}
	switch {
	case goesOn(l) && *l.Included == 0 && l.Used == 0:
		return "ok", "None included"
	case l.Overage > 0 && (l.OnExceeded == "bill_overage" || !goesOn(l)):
		return "over", "In overage"
	case *l.Included == l.Free:
		return "over", "All included units used"
	}
	for _, at := range l.WarnAt {
		if at < 100 && reaches(l.Used, *l.Included, int64(at)) {
			return "near", percent(l.Used, *l.Included) + " used"
		}
	}
	return "ok", "Within your plan"
}

func (b builder) facts(l *books.StatementLine, u unit) []fact {
	out := []fact{{Name: "Used", Value: wording.Count(l.Used), More: u.many}}
	if l.Included == nil {
		out = append(out, fact{"Included", "Unlimited", ""}, fact{"Remaining", "Unlimited", ""})
	} else {
		out = append(out, fact{"Included", wording.Count(*l.Included), u.many}, fact{"Remaining", wording.Count(max(0, *l.Included-l.Free)), "included " + u.many})
	}
	over := fact{Name: "Overage", Value: wording.Count(l.Overage), More: u.many}
	if l.OnExceeded == "bill_overage" || l.Overage > 0 {
		if c, ok := b.currency(l); ok && l.UnitAmount.Valid {
			over.Value, over.More = c.text(line(l.Billable, l.UnitAmount.Decimal)), u.of(l.Overage)
			if l.Billable != l.Overage {
				over.More += ", " + wording.Count(l.Billable) + " billed"
				if l.Billability == "awaiting" {
					over.More += " so far"
				}
			}
		}
	} else {
		over = fact{"Overage", "None", "your plan bills none"}
	}
	return append(out, over, fact{"Resets", day(l.Ends), clockTime(l.Ends)})
}

// rule says what happens at 100 %.
func (b builder) rule(l *books.StatementLine, u unit) string {
	if !l.InPlan {
		return "Your plan no longer contains this: further calls are refused."
	}
	if l.Included == nil {
		return "There is no limit: nothing is refused, and nothing is billed by use."
	}
	refused, so := "further calls are refused until "+day(l.Ends)+", "+clockTime(l.Ends)+".", "so "
	if goesOn(l) {
		refused, so = "calls go on at present, and are not billed.", "but "
	}
	start := fmt.Sprintf("When all %s are used, ", u.of(*l.Included))
	switch {
	case *l.Included == 0:
		start = "None are included: "
	case l.Free >= *l.Included:
		start = fmt.Sprintf("All %s are used: ", u.of(*l.Included))
	}
	if l.OnExceeded != "bill_overage" {
		return start + refused
	}
	switch {
	case !l.OverageOpen && goesOn(l):
		return start + "overage is not open for your subscription, but calls go on at present." // what comes of it, a confirmation says
	case !l.OverageOpen:
		return start + "overage is not open for your subscription at present, so " + refused
	}
	rule := start + "each further one is billed"
	if c, ok := b.currency(l); ok && l.UnitAmount.Valid {
		rule = start + "use goes on and is billed at " + c.price(l.UnitAmount.Decimal, u)
		if capped(l) {
			if *l.SpendingCap == 0 {
				return start + "your spending cap of " + c.text(decimal.Zero) + " applies, " + so + refused
			}
			return rule + fmt.Sprintf(", up to your spending cap of %s (%s). Then ", c.text(line(*l.SpendingCap, l.UnitAmount.Decimal)), u.of(*l.SpendingCap)) + refused
		}
	}
	if most := overageBound(l); most >= 0 {
		return rule + fmt.Sprintf(", up to %s more. Then ", wording.Count(most)) + refused
	}
	return rule + "."
}

func (b builder) pace(l *books.StatementLine, u unit) string {
	p, ok := paceOf(l, b.s.AsOf)
	if !ok {
		return "There is too little use yet to tell where this period leads."
	}
	basis := fmt.Sprintf("At the pace of the last %d days (about %s a day), ", p.Days, u.of(about(p.PerDay)))
	if p.Days == 1 {
		basis = fmt.Sprintf("At the pace so far (about %s a day), ", u.of(about(p.PerDay)))
	}
	end := "by the end of the period"
	if l.Included == nil {
		return basis + fmt.Sprintf("you will have used about %s %s.", u.of(about(p.Used)), end)
	}
	if p.Overage > 0 && l.OverageOpen {
		used := max(about(p.Used), l.Used) // what is said adds up
		if p.Used == ceiling(l) {
			used = p.Used // a bound is no estimate
		}
		over := max(used-*l.Included, l.Overage)
		text := basis + fmt.Sprintf("you will have used about %s %s, %s more than included", u.of(used), end, wording.Count(over))
		if c, ok := b.currency(l); ok && l.UnitAmount.Valid {
			text += ": about " + c.whole(line(billedAtMost(l, over), l.UnitAmount.Decimal)) + " of overage"
		}
		return text + "."
	}
	switch {
	case l.Free >= *l.Included:
		return basis + "the included ones were used up before the period's end."
	case !p.Exhausted.IsZero():
		return basis + "the included ones will be used up on " + day(p.Exhausted) + "."
	}
	return basis + fmt.Sprintf("you will have used about %s %s, within what is included.", u.of(about(p.Used)), end)
}

// cap is the form of a feature whose overage costs money.
func (b builder) cap(l *books.StatementLine) *capForm {
	c, ok := b.currency(l)
	if !ok || l.OnExceeded != "bill_overage" || !l.InPlan || l.Included == nil || !l.UnitAmount.Valid || !l.UnitAmount.Decimal.IsPositive() || l.Key == 0 {
		return nil
	}
	_, u := b.names(l.Feature)
	f := &capForm{Feature: l.Feature, Symbol: symbol(c.code), Code: upper(c.code), Price: c.price(l.UnitAmount.Decimal, u), GoesOn: goesOn(l)}
	if l.SpendingCap != nil {
		f.Set = true
		amount := line(*l.SpendingCap, l.UnitAmount.Decimal)
		f.Now, f.Value = fmt.Sprintf("%s (%s)", c.text(amount), u.of(*l.SpendingCap)), c.plain(amount)
	}
	return f
}

func (b builder) past(l *books.StatementLine) pastView {
	name, u := b.names(l.Feature)
	v := pastView{Period: span(l.Starts, l.Ends), Feature: name, Used: wording.Count(l.Used), Included: "unlimited", Overage: wording.Count(l.Overage), State: pastState(l)}
	if l.Included != nil {
		v.Included = wording.Count(*l.Included)
	}
	c, hasCurrency := b.currency(l)
	if hasCurrency && l.UnitAmount.Valid && (l.Overage > 0 || l.OnExceeded == "bill_overage") {
		v.Amount = c.text(line(l.Due(), l.UnitAmount.Decimal))
	}
	for _, i := range l.Invoiced {
		v.Invoices = append(v.Invoices, invoiceOf(i, u))
	}
	if l.Book == nil {
		return v
	}
	price := func(units int64) string {
		if !hasCurrency || !l.UnitAmount.Valid {
			return ""
		}
		return " (" + c.text(line(units, l.UnitAmount.Decimal)) + ")"
	}
	for _, n := range []struct {
		units int64
		text  string
	}{
		{l.Book.Pending, "%s pending%s: on its way to your next invoice."},
		{l.Book.Late, "%s late%s: counted, and not on the invoice of this period."},
		{-l.Book.Late, "%s billed too much%s: a credit note will settle it."},
		{l.Book.Forgiven, "%s forgiven%s: you pay nothing for them."},
		{l.Book.NotBillable, "%s not billed%s."},
	} {
		if n.units > 0 {
			v.Notes = append(v.Notes, fmt.Sprintf(n.text, u.of(n.units), price(n.units)))
		}
	}
	return v
}

func invoiceOf(i books.StatementInvoice, u unit) invoiceView {
	v := invoiceView{Name: "Invoice", URL: webURL(i.URL)}
	if i.Number != "" {
		v.Name = "Invoice " + i.Number
	}
	v.Text = u.of(i.Units)
	if c, ok := currencyOf(i.Currency); ok {
		v.Text = u.of(i.Quantity) + ", " + c.text(decimal.NewFromInt(i.Amount))
		if i.Units != i.Quantity {
			v.Text = u.of(i.Units) + " of this period in a line of " + v.Text
		}
	}
	if i.Credited > 0 {
		v.Text += ", less " + u.of(i.Credited) + " by credit note"
	}
	return v
}

func pastState(l *books.StatementLine) string {
	switch {
	case l.Book != nil && l.Book.Final && l.Overage == 0:
		return "Closed, nothing to bill"
	case l.Book != nil && l.Book.Final && l.Book.Invoiced == 0:
		return "Closed, on no invoice"
	case l.Book != nil && l.Book.Final:
		return "Invoiced"
	case l.Book != nil && l.Overage == 0:
		return "Closed"
	case l.Book != nil:
		return "Closed, invoice pending"
	}
	return "Closing: last units are still coming in"
}
