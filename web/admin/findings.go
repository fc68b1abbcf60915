package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

const (
	findingsEach = 50 // of a page
	mostHeld     = 100
)

type findingsView struct {
	Kinds []kindView
	Kind  string // that the list is narrowed to
	Rows  []findingView
	Next  string
	First bool
}

type kindView struct {
	Kind, Title, Count, To string
	Here                   bool
}

type findingView struct {
	Kind, Title, Rule, Next, Message, Subject, Account, Since, Seen string
	Times                                                           int64
	Clear                                                           string // where it is cleared
}

// findings lists what waits for a person: each with its cause, the rule that applies, and what to do.
func (a *Admin) findings(w http.ResponseWriter, r *http.Request, who person) {
	q := r.URL.Query()
	kind := cleanID(q.Get("kind"))
	after, _ := strconv.ParseInt(q.Get("after"), 10, 64) // what is no number begins at the front
	var kinds []books.FindingKind
	var rows []books.FindingRow
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		if kinds, err = books.FindingKinds(ctx, a.cfg.DB); err == nil {
			rows, err = books.FindingRows(ctx, a.cfg.DB, kind, after, findingsEach+1)
		}
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := findingsView{Kind: kind, First: after == 0}
	for i := range kinds {
		k := kinds[i].Latest.Kind
		v.Kinds = append(v.Kinds, kindView{k, a.remedy(k).Title, bounded(kinds[i].Open, 10_000), "/admin/findings?kind=" + url.QueryEscape(k), k == kind})
	}
	if len(rows) > findingsEach {
		rows = rows[:findingsEach]
		v.Next = "/admin/findings?" + url.Values{"kind": {kind}, "after": {strconv.FormatInt(rows[findingsEach-1].ID, 10)}}.Encode()
	}
	for i := range rows {
		f := &rows[i]
		m := a.remedy(f.Kind)
		v.Rows = append(v.Rows, findingView{f.Kind, m.Title, m.Rule, m.Next, f.Message, f.Subject, f.Account, instant(f.Since), instant(f.SeenAt), f.Times, "/admin/findings/" + strconv.FormatInt(f.ID, 10) + "/clear"})
	}
	a.render(w, r, who, http.StatusOK, "findings.html", view{Title: "Findings", Section: "findings", Page: v})
}

type heldView struct {
	Late   []lateView
	Lates  int // of them all
	Parked []parkedView
	Stuck  []stuckView
}

type lateView struct {
	ID                                                           int64
	Account, Feature, Period, Units, Policy, State, Cause, Since string
}

type parkedView struct {
	At, Reason, Account string
	Key, Node           int64
	Upto                string
}

type stuckView struct{ What, ID, Account, Since, Failures, Error, Events string }

// held shows late usage, what could not be folded, and what cannot be read at Stripe.
func (a *Admin) held(w http.ResponseWriter, r *http.Request, who person) {
	var v heldView
	err := a.reading(r.Context(), func(ctx context.Context) error {
		parked, err := usage.ParkedRows(ctx, a.cfg.DB, mostHeld)
		if err != nil {
			return err
		}
		for _, p := range parked {
			v.Parked = append(v.Parked, parkedView{instant(p.At), p.Reason, p.Account, p.Key, p.Node, wording.Count(p.Upto)})
		}
		late, err := a.cfg.Biller.LateList(ctx)
		if err != nil {
			return err
		}
		v.Lates = len(late)
		for _, l := range late[:min(len(late), mostHeld)] {
			v.Late = append(v.Late, lateView{l.ID, l.Account, l.Feature, day(l.Starts) + " – " + day(l.Ends), wording.Count(l.Units), l.Policy, l.State, l.Cause, instant(l.Since)})
		}
		stuck, err := books.StuckReads(ctx, a.cfg.DB, mostHeld)
		for _, s := range stuck {
			v.Stuck = append(v.Stuck, stuckView{s.What, s.ID, s.Account, instant(s.Since), wording.Count(s.Failures), s.Error, wording.Count(s.Events)})
		}
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	a.render(w, r, who, http.StatusOK, "held.html", view{Title: "Held up", Section: "findings", Page: v})
}

// monthOf is the month of an instant, as addresses have it.
func monthOf(t time.Time) string { return t.UTC().Format("2006-01") }
