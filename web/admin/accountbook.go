package admin

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

type bookPage struct {
	Name, Path, Feature, Period, Label, Value, Sum string
	Final, More, Agrees                            bool
	Numbers                                        []numberView
	Number                                         string
	Rule                                           string
	Rows                                           []bookRowView
}

type bookRowView struct{ At, What, Detail, Units string }

// numberRules say what each number is.
var numberRules = map[string]string{
	"overage":      "Units that were admitted while no included unit was left, day by day as they were folded, and what corrections did to them.",
	"invoiced":     "What lines of finalized, not voided invoices bill of this period, less credit notes. Nothing else counts as invoiced: not a report that was sent, not one that Stripe has recorded.",
	"pending":      "Billable overage whose invoice is not final: what was reported, and what is in no report yet, less what an invoice bills already and what was written off.",
	"late":         "Billable overage that missed its invoice, or, negative, what was billed too much. Each row waits for a decision or for its invoice item.",
	"forgiven":     "Units that nobody will be billed for: written off by a person or a policy, or over the highest maximum that was in force.",
	"not_billable": "Overage for which nobody could be billed when it was counted, by the day on which it was booked and the cause. Negative rows became billable after all, or were refunded.",
}

// bookNumber shows the rows of one number of a closed period.
func (a *Admin) bookNumber(w http.ResponseWriter, r *http.Request, who person) {
	name, number := accountOf(r), r.PathValue("number")
	key, err := strconv.ParseInt(r.PathValue("key"), 10, 64)
	if err != nil {
		a.failed(w, r, who, usage.ErrNotFound)
		return
	}
	var b *books.Book
	err = a.reading(r.Context(), func(ctx context.Context) (err error) {
		b, err = books.ReadBook(ctx, a.cfg.DB, key, number)
		return err
	})
	if err == nil && b.Account != name {
		err = usage.ErrNotFound
	}
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := bookPage{
		Name: name, Path: accountPath(name), Feature: b.Feature, Period: period(b.Starts, b.Ends), Label: numberNames[number], Number: number,
		Value: wording.Count(b.Value), Sum: wording.Count(b.Sum), Final: b.Final, More: b.More, Agrees: b.Sum == b.Value, Rule: numberRules[number],
	}
	line := books.StatementLine{Key: key, Feature: b.Feature, Starts: b.Starts, Ends: b.Ends, Book: &books.StatementBook{CloseNumbers: b.CloseNumbers, Final: b.Final}}
	v.Numbers = viewPeriodBook(v.Path, &line).Numbers
	for _, x := range b.Rows {
		row := bookRowView{"–", x.What, x.Detail, signed(x.Units)}
		if x.At != nil {
			row.At = strings.TrimSuffix(instant(*x.At), ", 00:00:00")
		}
		v.Rows = append(v.Rows, row)
	}
	a.render(w, r, who, http.StatusOK, "book.html", view{Title: v.Label + " of " + name, Section: "accounts", Page: v})
}
