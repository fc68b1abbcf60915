package admin

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
)

const (
	booksEach  = 100              // rows of a page
	mostBreaks = 30               // that are listed; the command line prints all
	booksFresh = 30 * time.Second // how long a month's sums are shown again, so that paging adds them up once
	booksTime  = 25 * time.Second // of sums, within the server's own limit of an answer
	csvTime    = 5 * time.Minute  // of a download, which is written portion by portion
)

// bookshelf keeps the sums that were read last, and lets one person at a time read a whole month.
type bookshelf struct {
	db   *pgxpool.Pool
	now  func() time.Time // business time
	wall func() time.Time

	turn   chan struct{} // held while a month is read
	mu     sync.Mutex    // guards what follows
	sums   *books.MonthBooks
	readAt time.Time
}

func newBookshelf(db *pgxpool.Pool, now, wall func() time.Time) *bookshelf {
	return &bookshelf{db: db, now: now, wall: wall, turn: make(chan struct{}, 1)}
}

func (s *bookshelf) known(month string) *books.MonthBooks {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sums == nil || s.sums.Month != month || s.wall().Sub(s.readAt) >= booksFresh {
		return nil
	}
	return s.sums
}

// take waits for the turn to read a month, for at most booksTime; give ends it.
func (s *bookshelf) take(ctx context.Context) (give func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, booksTime)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read returns a month's sums, at most booksFresh old.
func (s *bookshelf) read(ctx context.Context, month time.Time) (*books.MonthBooks, error) {
	ctx, cancel := context.WithTimeout(ctx, booksTime)
	defer cancel()
	give, err := s.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	if sums := s.known(monthOf(month)); sums != nil {
		return sums, nil
	}
	at := s.wall()
	sums, err := books.ReadMonth(ctx, s.db, month, mostBreaks, s.now())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums, s.readAt = sums, at
	return sums, nil
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
	Periods, NotClosed         int64
	First                      bool // the page begins with the month's first row
	Next                       string
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
	if csv {
		a.bookCSV(w, r, who, month)
		return
	}
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64) // what is no number is the beginning
	sums, err := a.books.read(r.Context(), month)
	var rows []books.CloseRow
	var breaks []books.CloseBreak
	if err == nil {
		err = a.reading(r.Context(), func(ctx context.Context) (err error) {
			rows, breaks, err = books.MonthRows(ctx, a.cfg.DB, month, after, booksEach+1, a.now())
			return err
		})
	}
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := bookOf(sums, rows, breaks)
	v.First = after == 0
	v.Name = month.Format("January 2006")
	v.Before, v.After = monthOf(month.AddDate(0, -1, 0)), monthOf(month.AddDate(0, 1, 0))
	a.render(w, r, who, http.StatusOK, "books.html", view{Title: "Books of " + v.Name, Section: "books", Page: v})
}

// download is a CSV that is being written: its head goes out with the first bytes, and each portion has its own time.
type download struct {
	http.ResponseWriter
	name  string
	begun bool
}

func (d *download) Write(p []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.Header().Set("Content-Type", "text/csv; charset=utf-8")
		d.Header().Set("Content-Disposition", `attachment; filename="`+d.name+`"`)
	}
	return d.ResponseWriter.Write(p)
}

func (d *download) flush() error {
	c := http.NewResponseController(d.ResponseWriter)
	if err := c.SetWriteDeadline(time.Now().Add(booksTime)); err != nil { // the server's own is of a whole answer
		return err
	}
	return c.Flush()
}

// bookCSV writes a month's books while they are read. What fails on the way breaks the answer off, so that nobody takes
// a part for the whole.
func (a *Admin) bookCSV(w http.ResponseWriter, r *http.Request, who person, month time.Time) {
	ctx, cancel := context.WithTimeout(r.Context(), csvTime)
	defer cancel()
	d := &download{ResponseWriter: w, name: "weir-close-report-" + monthOf(month) + ".csv"}
	give, err := a.books.take(ctx)
	if err == nil {
		defer give()
		_, err = books.WriteCloseCSV(ctx, a.cfg.DB, month, a.now(), d, d.flush)
	}
	switch {
	case err == nil:
	case !d.begun:
		a.failed(w, r, who, err)
	default:
		a.log.Warn("a download of the books was broken off", "month", monthOf(month), "error", err)
		panic(http.ErrAbortHandler)
	}
}

// bookOf shows rows of a month, of which the last says that there are more, under its sums. What breaks is on top: what
// the sums found, and what the rows beneath those that are shown say.
func bookOf(m *books.MonthBooks, rows []books.CloseRow, breaks []books.CloseBreak) bookView {
	v := bookView{Month: m.Month, Total: numbers(&m.Total), Periods: m.Periods, NotClosed: m.NotClosed, AllBreaks: m.AllBreaks, Accruals: accrualsOf(m.Accruals)}
	if len(rows) > booksEach {
		rows = rows[:booksEach]
		v.Next = "/admin/books/" + m.Month + "?after=" + strconv.FormatInt(rows[booksEach-1].Key, 10)
	}
	shown := map[int64]bool{}
	for i := range rows {
		shown[rows[i].Key] = false
	}
	all := m.Breaks
	for _, x := range breaks {
		if _, here := shown[x.Key]; !here {
			continue // of the row that is not shown
		}
		shown[x.Key] = true
		if !slices.ContainsFunc(m.Breaks, func(y books.CloseBreak) bool { return y.Kind == x.Kind && y.Key == x.Key }) {
			all = append(slices.Clip(all), x)
			v.AllBreaks++
		}
	}
	for _, x := range all[:min(len(all), 2*mostBreaks)] {
		v.Breaks = append(v.Breaks, breakView{x.Kind, x.Account, x.Message})
	}
	v.MoreBreaks = v.AllBreaks - len(v.Breaks)
	for i := range rows {
		x := &rows[i]
		v.Rows = append(v.Rows, bookRow{x.Account, x.Feature, instant(x.Starts), instant(x.Ends), x.State, rowNumbers(x), shown[x.Key]})
	}
	return v
}

func numbers(n *books.CloseNumbers) []string {
	return []string{wording.Count(n.Overage), wording.Count(n.Invoiced), wording.Count(n.Pending), wording.Count(n.Late), wording.Count(n.Forgiven), wording.Count(n.NotBillable)}
}

func rowNumbers(x *books.CloseRow) []bookNumber {
	values := numbers(&x.CloseNumbers)
	all := make([]bookNumber, len(values))
	for i, name := range books.BookNumbers() {
		all[i] = bookNumber{column(i), values[i], accountPath(x.Account) + "/books/" + strconv.FormatInt(x.Key, 10) + "/" + name}
	}
	return all
}

// column names the columns of numbers.
func column(i int) string {
	return [...]string{"Overage", "Invoiced", "Pending", "Late", "Forgiven", "Not billable"}[i]
}

func accrualsOf(all []books.CloseAccrual) []accrualView {
	out := make([]accrualView, len(all))
	for i := range all {
		out[i] = accrualView{all[i].Feature, wording.Count(all[i].Units), wording.Count(all[i].Overage)}
	}
	return out
}
