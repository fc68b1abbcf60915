package admin

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/billing"
)

const (
	booksEach  = 100              // rows of a page
	mostBreaks = 30               // that are listed; the command line prints all
	booksFresh = 30 * time.Second // how long a report is shown again, so that paging reads it once
	booksTime  = 25 * time.Second // within the server's own limit of an answer
)

// bookshelf keeps the report that was read last: the books of a month are long, and its pages show one reading.
type bookshelf struct {
	biller *billing.Biller
	wall   func() time.Time

	turn   chan struct{} // held while one is read
	mu     sync.Mutex    // guards what follows
	report *billing.CloseReport
	month  string
	readAt time.Time
}

func newBookshelf(b *billing.Biller, wall func() time.Time) *bookshelf {
	return &bookshelf{biller: b, wall: wall, turn: make(chan struct{}, 1)}
}

func (s *bookshelf) known(month string) *billing.CloseReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.month != month || s.wall().Sub(s.readAt) >= booksFresh {
		return nil
	}
	return s.report
}

// read returns a month's report, at most booksFresh old. One is read at a time.
func (s *bookshelf) read(ctx context.Context, month time.Time) (*billing.CloseReport, error) {
	ctx, cancel := context.WithTimeout(ctx, booksTime)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	name := monthOf(month)
	if r := s.known(name); r != nil {
		return r, nil
	}
	at := s.wall()
	r, err := s.biller.CloseReport(ctx, month)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.report, s.month, s.readAt = r, name, at
	return r, nil
}

func (a *Admin) bookRoutes() {
	a.get("GET /admin/books", func(w http.ResponseWriter, r *http.Request, _ person) {
		month := r.URL.Query().Get("month")
		if _, err := time.Parse("2006-01", month); err != nil {
			month = monthOf(a.now())
		}
		http.Redirect(w, r, "/admin/books/"+month, http.StatusSeeOther)
	})
	a.get("GET /admin/books/{month}", a.book)
}

type bookView struct {
	Month, Name, Before, After string
	Rows                       []bookRow
	Total                      []string // in the order of the columns
	Breaks                     []breakView
	AllBreaks, MoreBreaks      int
	Accruals                   []accrualView
	Periods, From, To          int
	Next, Previous             string
}

type bookRow struct {
	Account, Feature, Starts, Ends, State string
	Numbers                               []bookNumber
	Broken                                bool
}

// bookNumber is one of the numbers of the identity, with the page of the rows that it follows from.
type bookNumber struct{ Name, Value, To string }

type breakView struct{ Kind, Account, Message string }

// accrualView is what all accounts used of a feature in the calendar month.
type accrualView struct{ Feature, Units, Overage string }

// book shows the books of the periods that ended in a month, or writes them as CSV.
func (a *Admin) book(w http.ResponseWriter, r *http.Request, who person) {
	name, csv := strings.CutSuffix(r.PathValue("month"), ".csv")
	month, err := time.Parse("2006-01", name)
	if err != nil || month.Year() < 2000 || month.Year() > 9000 {
		a.fault(w, r, who, http.StatusNotFound, "There is no such month", "Write year and month, such as 2026-01.")
		return
	}
	report, err := a.books.read(r.Context(), month)
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	if csv {
		var b bytes.Buffer
		if err := report.WriteCSV(&b); err != nil {
			a.failed(w, r, who, err)
			return
		}
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		w.Header().Set("Content-Disposition", `attachment; filename="weir-close-report-`+name+`.csv"`)
		_, _ = w.Write(b.Bytes()) // the reader has gone: nobody is left to tell
		return
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("page")) // what is no number is the first
	v := bookOf(report, page)
	v.Month, v.Name = name, month.Format("January 2006")
	v.Before, v.After = monthOf(month.AddDate(0, -1, 0)), monthOf(month.AddDate(0, 1, 0))
	a.render(w, r, who, http.StatusOK, "books.html", view{Title: "Books of " + v.Name, Section: "books", Page: v})
}

// bookOf shows one page of a report. What breaks is on each of them.
func bookOf(r *billing.CloseReport, page int) bookView {
	last := max(0, (len(r.Rows)-1)/booksEach)
	page = min(max(page, 0), last)
	v := bookView{Total: numbers(&r.Total), Periods: len(r.Rows)}
	broken := map[int64]bool{}
	for i, x := range r.Breaks {
		broken[x.Key] = true
		if i < mostBreaks {
			v.Breaks = append(v.Breaks, breakView{x.Kind, x.Account, x.Message})
		}
	}
	v.AllBreaks, v.MoreBreaks = len(r.Breaks), len(r.Breaks)-len(v.Breaks)
	from, to := page*booksEach, min(len(r.Rows), (page+1)*booksEach)
	v.From, v.To = from+1, to
	for i := from; i < to; i++ {
		x := &r.Rows[i]
		v.Rows = append(v.Rows, bookRow{x.Account, x.Feature, instant(x.Starts), instant(x.Ends), x.State, rowNumbers(x), broken[x.Key]})
	}
	at := func(p int) string {
		return "/admin/books/" + url.PathEscape(r.Month) + "?page=" + strconv.Itoa(p)
	}
	if page > 0 {
		v.Previous = at(page - 1)
	}
	if page < last {
		v.Next = at(page + 1)
	}
	v.Accruals = accrualsOf(r.Accruals)
	return v
}

func numbers(n *billing.CloseNumbers) []string {
	return []string{count(n.Overage), count(n.Invoiced), count(n.Pending), count(n.Late), count(n.Forgiven), count(n.NotBillable)}
}

func rowNumbers(x *billing.CloseRow) []bookNumber {
	values := numbers(&x.CloseNumbers)
	all := make([]bookNumber, len(values))
	for i, name := range billing.BookNumbers() {
		all[i] = bookNumber{column(i), values[i], accountPath(x.Account) + "/books/" + strconv.FormatInt(x.Key, 10) + "/" + name}
	}
	return all
}

// column names the columns of numbers.
func column(i int) string {
	return [...]string{"Overage", "Invoiced", "Pending", "Late", "Forgiven", "Not billable"}[i]
}

func accrualsOf(all []billing.CloseAccrual) []accrualView {
	type sum struct{ units, overage int64 }
	sums := map[string]*sum{}
	var order []string
	for i := range all {
		x := &all[i]
		s, ok := sums[x.Feature]
		if !ok {
			s = &sum{}
			sums[x.Feature] = s
			order = append(order, x.Feature)
		}
		s.units += x.Units
		s.overage += x.Overage
	}
	var out []accrualView
	for _, f := range order {
		out = append(out, accrualView{f, count(sums[f].units), count(sums[f].overage)})
	}
	return out
}
