package admin

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
)

// facts are what forms are made of.
type facts struct {
	head *books.Account
	s    *books.Statement
	in   url.Values
}

// form is an action on an account: its page, and how its fields are read.
type form struct {
	name, title, text string
	money, danger     bool
	fields            func(*facts) []field
	// read makes the action; what is wrong stands in the fields.
	read func(account string, fields []field, in url.Values) (billing.Action, bool)
}

// forms are all actions on an account, in the order of its page.
var forms = []form{
	{
		name: "override", title: "Override the terms", money: true,
		text:   "Replaces what was negotiated with this account for a feature. It counts at once, for the period under way and later ones; what was counted is not priced again. An empty field: as the plan says.",
		fields: overrideFields, read: readOverride,
	},
	{
		name: "cap", title: "Set the spending cap", money: true,
		text:   "The customer's own bound of overage in a period, in units. Reached, further calls are refused; what was used stays due. An empty field: no cap.",
		fields: capFields, read: readCap,
	},
	{
		name: "adjust", title: "Refund or add usage", money: true,
		text:   "Corrects what was counted in a period. A refund takes overage first, then included units. Overage that moves is reported before the invoice is final, and late or credited after it.",
		fields: adjustFields, read: readAdjust,
	},
	{
		name: "settle", title: "Settle now", text: "Reports all overage that is counted now to Stripe, before a subscription is changed or canceled.",
		fields: none, read: func(account string, _ []field, _ url.Values) (billing.Action, bool) {
			return &billing.Settle{Account: account}, true
		},
	},
	{
		name: "resync", title: "Read the subscription again", text: "Reads the customer's subscriptions at Stripe now; plan and period follow from them.",
		fields: none, read: func(account string, _ []field, _ url.Values) (billing.Action, bool) {
			return &billing.Resync{Account: account}, true
		},
	},
	{
		name: "replay", title: "Replay what waits", text: "Tries again what waited for a cause to be mended: stored webhooks and subscriptions that could not be understood, and reports that Stripe refused.",
		fields: none, read: func(account string, _ []field, _ url.Values) (billing.Action, bool) {
			return &billing.Replay{Account: account}, true
		},
	},
	{
		name: "late", title: "Decide late usage", money: true, danger: true,
		text:   "Usage that missed its invoice, or was billed too much: put it on an invoice, credit it, or write it off.",
		fields: lateFields, read: readLate,
	},
	{
		name: "shadow", title: "Shadow mode", text: "In shadow mode calls are decided and counted, and none is refused.",
		fields: shadowFields, read: func(account string, fields []field, _ url.Values) (billing.Action, bool) {
			return &billing.SetShadow{Account: account, On: fields[0].Value == "on"}, chosen(&fields[0])
		},
	},
	{
		name: "map", title: "Map to a customer", danger: true,
		text:   "Maps the account to a customer at Stripe; whom either was mapped to before loses it. What was reported stays with its customer. An empty field unmaps the account: nobody can be billed for it then.",
		fields: mapFields, read: readMap,
	},
	{
		name: "contact", title: "Set the contact", text: "Where warnings about this account go by mail. An empty field: nowhere.",
		fields: func(f *facts) []field {
			return []field{{Name: "email", Label: "Address", Value: f.head.Contact}}
		},
		read: func(account string, fields []field, _ url.Values) (billing.Action, bool) {
			return &billing.SetContact{Account: account, Email: strings.TrimSpace(fields[0].Value)}, true
		},
	},
}

func formOf(name string) (form, bool) {
	i := slices.IndexFunc(forms, func(f form) bool { return f.name == name })
	if i < 0 {
		return form{}, false
	}
	return forms[i], true
}

func none(*facts) []field { return nil }

// features is the choice of a feature; with override the values that hold for it now are filled in.
func (f *facts) feature() field {
	x := field{Name: "feature", Label: "Feature"}
	for i := range f.s.Lines {
		name := f.s.Lines[i].Feature
		if !slices.ContainsFunc(x.Options, func(o option) bool { return o.Value == name }) {
			x.Options = append(x.Options, option{Value: name, Text: name})
		}
	}
	if len(x.Options) > 0 {
		x.Value = x.Options[0].Value
	}
	if asked := f.in.Get("feature"); asked != "" {
		x.Value = asked
	}
	return x
}

func overrideFields(f *facts) []field {
	feature := f.feature()
	out := []field{
		feature,
		{Name: "included", Label: "Included units in a period", Help: "empty: as the plan says", Numeric: true},
		{Name: "maximum", Label: "Most overage units in a period", Help: "empty: as the plan says", Numeric: true},
		{Name: "cap", Label: "The customer's own spending cap, units", Help: "empty: none", Numeric: true},
	}
	for _, o := range f.head.Overrides {
		if o.Feature == feature.Value {
			out[1].Value, out[2].Value, out[3].Value = number(o.Included), number(o.Maximum), number(o.SpendingCap)
		}
	}
	return out
}

func readOverride(account string, fields []field, _ url.Values) (billing.Action, bool) {
	a := &billing.SetOverride{Account: account, Feature: fields[0].Value}
	ok := chosen(&fields[0])
	for i, to := range []**int64{&a.Included, &a.Maximum, &a.SpendingCap} {
		ok = units(&fields[i+1], to) && ok
	}
	return a, ok
}

func capFields(f *facts) []field {
	feature := f.feature()
	out := []field{feature, {Name: "units", Label: "Most overage units in a period", Help: "empty: no cap", Numeric: true}}
	for _, o := range f.head.Overrides {
		if o.Feature == feature.Value {
			out[1].Value = number(o.SpendingCap)
		}
	}
	return out
}

func readCap(account string, fields []field, _ url.Values) (billing.Action, bool) {
	a := &billing.SetSpendingCap{Account: account, Feature: fields[0].Value}
	ok := chosen(&fields[0])
	return a, units(&fields[1], &a.Units) && ok
}

func adjustFields(f *facts) []field {
	periods := field{Name: "at", Label: "Period"}
	for i := range f.s.Lines {
		l := &f.s.Lines[i]
		// An instant of its own, also for the one under way: by the time the form is sent another may be.
		at := l.Starts.UTC().Format(time.RFC3339Nano)
		if l.Key == 0 || slices.ContainsFunc(periods.Options, func(o option) bool { return o.Value == at }) {
			continue
		}
		text := period(l.Starts, l.Ends) + ", " + l.State
		if l.Running {
			text = "under way: " + text
		}
		periods.Options = append(periods.Options, option{Value: at, Text: text})
	}
	if len(periods.Options) > 0 {
		periods.Value = periods.Options[0].Value
	}
	return []field{
		f.feature(), periods,
		{Name: "way", Label: "What to do", Value: "refund", Options: []option{{Value: "refund", Text: "Refund units"}, {Value: "add", Text: "Add units"}}},
		{Name: "units", Label: "Units", Numeric: true},
	}
}

func readAdjust(account string, fields []field, _ url.Values) (billing.Action, bool) {
	a := &billing.Adjust{Account: account, Feature: fields[0].Value}
	ok := chosen(&fields[0])
	ok = chosen(&fields[1]) && ok
	ok = chosen(&fields[2]) && ok
	var n *int64
	ok = units(&fields[3], &n) && ok
	if ok && (n == nil || *n == 0) {
		fields[3].Error, ok = "Enter how many units, 1 or more.", false
	}
	if !ok {
		return nil, false
	}
	a.Units = *n
	if fields[2].Value == "refund" {
		a.Units = -a.Units
	}
	at, err := time.Parse(time.RFC3339Nano, fields[1].Value)
	if err != nil {
		fields[1].Error = "Choose a period."
		return nil, false
	}
	a.At = at
	return a, true
}

func lateFields(f *facts) []field {
	rows := field{Name: "id", Label: "Late usage"}
	for _, l := range f.head.Held {
		id := strconv.FormatInt(l.ID, 10)
		rows.Options = append(rows.Options, option{Value: id, Text: "number " + id + ": " + wording.Count(l.Units) + " units of " + l.Feature + ", " + period(l.Starts, l.Ends)})
	}
	if len(rows.Options) > 0 {
		rows.Value = rows.Options[0].Value
	} else {
		rows.Error = "Nothing is held for this account."
	}
	return []field{rows, {Name: "policy", Label: "Decision", Value: "invoice_item", Options: []option{
		{Value: "invoice_item", Text: "Put it on an invoice"}, {Value: "forgive", Text: "Write it off"}, {Value: "credit_note", Text: "Credit what was billed too much"},
	}}}
}

func readLate(_ string, fields []field, _ url.Values) (billing.Action, bool) {
	ok := chosen(&fields[0])
	ok = chosen(&fields[1]) && ok
	id, err := strconv.ParseInt(fields[0].Value, 10, 64)
	return &billing.ReleaseLate{ID: id, Policy: fields[1].Value}, ok && err == nil
}

func shadowFields(f *facts) []field {
	x := field{Name: "shadow", Label: "Shadow mode", Value: "on", Options: []option{{Value: "on", Text: "On: nothing is refused"}, {Value: "off", Text: "Off: refused as the plan says"}}}
	if f.head.Shadow {
		x.Value = "off"
	}
	return []field{x}
}

func mapFields(f *facts) []field {
	x := field{Name: "customer", Label: "Customer at Stripe", Help: "cus_…; empty: nobody"}
	if len(f.head.Customers) > 0 {
		x.Value = f.head.Customers[0].Customer
	}
	return []field{x}
}

func readMap(account string, fields []field, _ url.Values) (billing.Action, bool) {
	customer := strings.TrimSpace(fields[0].Value)
	if customer == "" {
		return &billing.UnmapCustomer{Account: account}, true
	}
	if !strings.HasPrefix(customer, "cus_") && !strings.HasPrefix(customer, "acct_") {
		fields[0].Error = "A customer's id begins with cus_."
		return nil, false
	}
	return &billing.MapCustomer{Account: account, Customer: customer}, true
}

// chosen reports whether one of a field's options is its value.
func chosen(f *field) bool {
	if slices.ContainsFunc(f.Options, func(o option) bool { return o.Value == f.Value }) {
		return true
	}
	if f.Error == "" {
		f.Error = "Choose one of these."
	}
	return false
}

// units reads a number of units: digits, perhaps in groups; nothing at all is nil.
func units(f *field, to **int64) bool {
	s := strings.NewReplacer(",", "", "_", "", " ", "", "\u202f", "", "\u00a0", "").Replace(strings.TrimSpace(f.Value))
	if s == "" {
		return true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > 1<<53 {
		f.Error = "Enter whole units, 0 to 9,007,199,254,740,992, without a sign."
		return false
	}
	*to = &n
	return true
}

func number(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
