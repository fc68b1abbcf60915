package admin

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
)

// eventsEach is how many events of a story a page shows.
const eventsEach = 50

func (a *Admin) accountRoutes() {
	a.get("GET /admin/accounts/{account}", a.account)
	a.get("GET /admin/accounts/{account}/books/{key}/{number}", a.bookNumber)
	a.get("GET /admin/accounts/{account}/do/{action}", a.action)
	a.post("POST /admin/accounts/{account}/do/{action}", a.act)
	a.get("GET /admin/audit", a.auditLog)
	a.get("GET /admin/requests", a.requests)
	a.post("POST /admin/requests/{request}", a.decide)
}

// accountView is an account's page.
type accountView struct {
	Name, Path, Plan, Created string
	Until                     string // when the plan ends; empty: it does not
	Shadow                    bool
	Contact                   string
	Quantity                  int64
	Customers                 []customerView
	Features                  []featureView
	Overrides                 []overrideView
	Leases                    []nodeLease
	MoreLeases                bool
	Books                     []periodBook
	Held                      []heldLine
	Findings                  []billing.Finding
	Acts                      []actLink
	Story                     []eventView
	Kinds                     []tab
	Kind                      string
	Older, Newest             string // where the story goes on, and begins
}

type customerView struct{ ID, URL, Mode, Source, Mapped, Synced, Error, Frozen string }

type featureView struct {
	Name, Period, Plan, State, Source            string
	Included, Used, Left, Overage, Ceiling, Rule string
	Billability, Adjusted, Carried               string
	Percent                                      int64
	Level                                        string
	Ended                                        bool
}

type overrideView struct{ Feature, Included, Maximum, Cap, Reason, Actor, At string }

type nodeLease struct{ Feature, Node, Path, State, Limit, Used, Left, Kind string }

type periodBook struct {
	Feature, Period, State, Used string
	Numbers                      []numberView
}

type numberView struct {
	Name, Label, Value, To string
	Zero                   bool
}

type heldLine struct{ Feature, Period, Units, Cause, Since, To string }

type actLink struct{ To, Text string }

// account shows one account's whole story.
func (a *Admin) account(w http.ResponseWriter, r *http.Request, who person) {
	name := accountOf(r)
	kind := r.URL.Query().Get("kind")
	from, ok := cursorOf(r.URL.Query())
	if !ok || kind != "" && !slices.Contains(books.StoryKinds(), kind) {
		a.fault(w, r, who, http.StatusBadRequest, "This address can't be read", "Open the account's page again from its beginning.")
		return
	}
	var head *books.Account
	var s *books.Statement
	var story []books.StoryEvent
	var more bool
	now := a.now()
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		if head, err = books.ReadAccount(ctx, a.cfg.DB, name, now); err != nil {
			return err
		}
		if s, err = books.ReadStatement(ctx, a.cfg.DB, name, now); err != nil {
			return err
		}
		story, more, err = books.ReadStory(ctx, a.cfg.DB, name, kind, from, eventsEach, now)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := viewAccount(head, s)
	v.Kind = kind
	v.story(story, more, !from.At.IsZero())
	a.render(w, r, who, http.StatusOK, "account.html", view{Title: name, Section: "accounts", Page: v})
}

// cursorOf is the place in the story that an address names.
func cursorOf(q url.Values) (books.StoryCursor, bool) {
	at, ref := q.Get("at"), q.Get("ref")
	if at == "" {
		return books.StoryCursor{}, ref == ""
	}
	t, err := time.Parse(time.RFC3339Nano, at)
	return books.StoryCursor{At: t, Ref: ref}, err == nil && len(ref) <= 300 && validText(ref)
}

func validText(s string) bool { return strings.ToValidUTF8(s, "") == s && !strings.ContainsRune(s, 0) }

func viewAccount(h *books.Account, s *books.Statement) *accountView {
	v := &accountView{
		Name: h.Name, Path: accountPath(h.Name), Plan: orWord(h.Plan, "the default plan"), Created: instant(h.CreatedAt),
		Shadow: h.Shadow, Contact: h.Contact, Quantity: h.Quantity, Findings: h.Findings, MoreLeases: len(h.Leases) >= 200,
	}
	if h.PlanUntil != nil {
		v.Until = instant(*h.PlanUntil)
	}
	for _, c := range h.Customers {
		v.Customers = append(v.Customers, viewCustomer(&c))
	}
	for _, o := range h.Overrides {
		v.Overrides = append(v.Overrides, overrideView{o.Feature, asPlan(o.Included), asPlan(o.Maximum), asPlan(o.SpendingCap), o.Reason, o.Actor, instant(o.SetAt)})
	}
	for _, l := range h.Leases {
		v.Leases = append(v.Leases, viewLease(&l))
	}
	for _, l := range h.Held {
		v.Held = append(v.Held, heldLine{l.Feature, period(l.Starts, l.Ends), wording.Count(l.Units), l.Cause, instant(l.Since), v.Path + "/do/late?id=" + strconv.FormatInt(l.ID, 10)})
	}
	for i := range s.Lines {
		l := &s.Lines[i]
		switch {
		case l.Running:
			v.Features = append(v.Features, viewFeature(l, h.Ceilings))
		case l.Book != nil:
			v.Books = append(v.Books, viewPeriodBook(v.Path, l))
		default:
			v.Features = append(v.Features, viewFeature(l, h.Ceilings))
		}
	}
	for _, f := range forms {
		v.Acts = append(v.Acts, actLink{v.Path + "/do/" + f.name, f.title})
	}
	return v
}

func viewCustomer(c *books.AccountCustomer) customerView {
	v := customerView{ID: c.Customer, Mode: "live", Source: orWord(c.Source, "–"), Mapped: "–", Synced: "not yet", Error: c.Error, Frozen: c.Frozen}
	at := "https://dashboard.stripe.com/"
	if !c.Live {
		v.Mode, at = "test mode", at+"test/"
	}
	v.URL = at + "customers/" + url.PathEscape(c.Customer)
	if c.MappedAt != nil {
		v.Mapped = instant(*c.MappedAt)
	}
	if c.SyncedAt != nil {
		v.Synced = instant(*c.SyncedAt)
	}
	if c.Waiting {
		v.Synced += ", to be read again"
	}
	if c.Deleted {
		v.Error = strings.TrimSpace("deleted at Stripe. " + v.Error)
	}
	return v
}

func viewLease(l *books.AccountLease) nodeLease {
	v := nodeLease{
		Feature: l.Feature, Node: strconv.FormatInt(l.Node, 10), State: l.NodeState, Limit: wording.Count(l.Limit), Used: wording.Count(l.Used),
		Left: wording.Count(max(0, l.Limit-l.Used)), Kind: "loose: can be called back",
	}
	if l.Tight {
		v.Kind = "tight: nothing to give back"
	}
	switch {
	case l.Node == 0:
		v.Node = "the database (strict calls)"
	case l.Node == -1:
		v.Node = "retired nodes"
	default:
		v.Path = "/admin/nodes/" + v.Node
		v.Node = strings.TrimSpace(l.NodeName + " " + v.Node)
	}
	return v
}

func viewFeature(l *books.StatementLine, ceilings map[int64]int64) featureView {
	v := featureView{
		Name: l.Feature, Period: period(l.Starts, l.Ends), Plan: l.Plan, State: l.State, Source: l.Source, Used: wording.Count(l.Used), Overage: wording.Count(l.Overage),
		Included: unlimited(l.Included), Left: "unlimited", Ceiling: "–", Billability: billability(l), Ended: !l.Running, Level: "ok",
	}
	if !l.Confirmed && l.Source == "subscription" {
		v.Source += ", not confirmed by Stripe yet"
	}
	if l.Included != nil {
		v.Left = wording.Count(max(0, *l.Included-l.Free))
		if *l.Included > 0 {
			v.Percent = min(l.Used*100 / *l.Included, 999)
		}
		switch {
		case l.Overage > 0:
			v.Level = "over"
		case l.Used >= *l.Included:
			v.Level = "full"
		case v.Percent >= nearPercent:
			v.Level = "near"
		}
	}
	if c, ok := ceilings[l.Key]; ok && l.Key != 0 {
		v.Ceiling = wording.Count(c)
		if c >= 1<<61 {
			v.Ceiling = "unlimited"
		}
	}
	v.Rule = "refused past what is included"
	if l.OnExceeded == "bill_overage" {
		v.Rule = "billed past what is included, up to " + unlimited(l.Maximum)
		if l.SpendingCap != nil {
			v.Rule += ", the customer's own cap is " + wording.Count(*l.SpendingCap)
		}
	}
	if !l.InPlan {
		v.Rule = "not in the plan any more"
	}
	if l.Adjusted != 0 {
		v.Adjusted = signed(l.Adjusted)
	}
	if l.Carried != 0 {
		v.Carried = wording.Count(l.Carried)
	}
	return v
}

const nearPercent = 80

func billability(l *books.StatementLine) string {
	switch {
	case l.OnExceeded != "bill_overage":
		return "the plan bills no overage"
	case l.Billability == "yes":
		return "billable"
	case l.Billability == "awaiting":
		return "waits for a confirmation or for a fault to be mended"
	}
	return "not billable"
}

// numberNames are the five numbers and their sum, as people read them.
var numberNames = map[string]string{
	"overage": "Overage", "invoiced": "Invoiced", "pending": "Pending", "late": "Late", "forgiven": "Forgiven", "not_billable": "Not billable",
}

func viewPeriodBook(path string, l *books.StatementLine) periodBook {
	v := periodBook{Feature: l.Feature, Period: period(l.Starts, l.Ends), State: l.State, Used: wording.Count(l.Used)}
	b := l.Book
	values := []int64{b.Overage, b.Invoiced, b.Pending, b.Late, b.Forgiven, b.NotBillable}
	for i, name := range books.BookNumbers() {
		v.Numbers = append(v.Numbers, numberView{
			name, numberNames[name], wording.Count(values[i]), path + "/books/" + strconv.FormatInt(l.Key, 10) + "/" + name, values[i] == 0,
		})
	}
	return v
}

func period(from, to time.Time) string { return instantShort(from) + " – " + instantShort(to) }

func instantShort(t time.Time) string {
	t = t.UTC()
	if t.Hour() == 0 && t.Minute() == 0 && t.Second() == 0 {
		return day(t)
	}
	return t.Format("2 Jan 2006, 15:04")
}

func unlimited(n *int64) string {
	if n == nil {
		return "unlimited"
	}
	return wording.Count(*n)
}

func asPlan(n *int64) string {
	if n == nil {
		return "as the plan"
	}
	return wording.Count(*n)
}

func signed(n int64) string {
	if n > 0 {
		return "+" + wording.Count(n)
	}
	return wording.Count(n)
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}
