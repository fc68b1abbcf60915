package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

const auditEach = 100 // rows of a page

type auditView struct {
	Rows          []auditRow
	Actor, Action string
	Older         string
	Second        bool
	Waiting       int
}

type auditRow struct {
	ID, At, Actor, Way, Action, Subject, Arguments, Reason, Result, Message, Level string
	Account, Path, Decides                                                         string
}

func viewEntry(e *usage.Entry) auditRow {
	x := auditRow{
		ID: strconv.FormatInt(e.ID, 10), At: instant(e.At), Actor: e.Actor, Way: ways[e.Way], Action: e.Action, Subject: e.Subject, Arguments: arguments(e.Arguments, e.Subject),
		Reason: e.Reason, Result: orWord(e.Result, "begun"), Message: e.Message, Level: "ok", Account: e.Account,
	}
	switch e.Result {
	case usage.ResultRefused, usage.ResultFailed:
		x.Level = "full"
	case usage.ResultDone:
	default:
		x.Level = "near"
	}
	if e.Account != "" {
		x.Path = accountPath(e.Account)
	}
	if e.Decides != 0 {
		x.Decides = strconv.FormatInt(e.Decides, 10)
	}
	return x
}

var ways = map[string]string{usage.WayAdmin: "admin", usage.WayCLI: "command line", usage.WayAPI: "API", usage.WayPage: "usage page"}

// arguments writes what an action was given, for people, but for what its subject says already.
func arguments(body json.RawMessage, subject string) string {
	var all map[string]any
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return string(body)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != nil && name != "account" && (subject == "" || fmt.Sprint(all[name]) != subject) {
			parts = append(parts, strings.ReplaceAll(name, "_", " ")+" "+fmt.Sprint(all[name]))
		}
	}
	return strings.Join(parts, ", ")
}

// auditLog shows who changed what, the newest first.
func (a *Admin) auditLog(w http.ResponseWriter, r *http.Request, who person) {
	q := r.URL.Query()
	v := auditView{Actor: q.Get("actor"), Action: q.Get("action"), Second: a.cfg.SecondPerson}
	before, err := strconv.ParseInt(orWord(q.Get("before"), "0"), 10, 64)
	if err != nil || !validText(v.Actor) || !validText(v.Action) {
		a.fault(w, r, who, http.StatusBadRequest, "This address can't be read", "Open the audit log again from its beginning.")
		return
	}
	var all, open []usage.Entry
	err = a.reading(r.Context(), func(ctx context.Context) (err error) {
		all, err = usage.AuditLog(ctx, a.cfg.DB, usage.AuditFilter{Actor: v.Actor, Action: v.Action, Before: before, Most: auditEach + 1})
		if err == nil {
			open, err = a.cfg.Biller.Requests(ctx)
		}
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v.Waiting = len(open)
	if len(all) > auditEach {
		all = all[:auditEach]
		v.Older = "/admin/audit?" + url.Values{"actor": {v.Actor}, "action": {v.Action}, "before": {strconv.FormatInt(all[auditEach-1].ID, 10)}}.Encode()
	}
	for i := range all {
		v.Rows = append(v.Rows, viewEntry(&all[i]))
	}
	a.render(w, r, who, http.StatusOK, "audit.html", view{Title: "Audit log", Section: "audit", Page: v})
}

type requestsView struct {
	Rows    []requestView
	Error   string
	FormKey string
}

type requestView struct {
	auditRow
	Until       string
	Own         bool
	Form, Typed string
}

// requests shows what waits for a second person.
func (a *Admin) requests(w http.ResponseWriter, r *http.Request, who person) {
	a.showRequests(w, r, who, http.StatusOK, "", "", "")
}

func (a *Admin) showRequests(w http.ResponseWriter, r *http.Request, who person, status int, fault, id, reason string) {
	var open []usage.Entry
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		open, err = a.cfg.Biller.Requests(ctx)
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := requestsView{Error: fault, FormKey: a.guard.formKey(who)}
	for i := range open {
		x := requestView{auditRow: viewEntry(&open[i]), Until: instant(open[i].At.Add(billing.RequestLife)), Form: newFormID()}
		x.Own = strings.EqualFold(strings.TrimSpace(open[i].Actor), who.Name)
		if x.ID == id {
			x.Typed = reason
		}
		v.Rows = append(v.Rows, x)
	}
	a.render(w, r, who, status, "requests.html", view{Title: "Requests", Section: "audit", Page: v})
}

// decide approves or declines another person's request.
func (a *Admin) decide(w http.ResponseWriter, r *http.Request, who person) {
	id, err := strconv.ParseInt(r.PathValue("request"), 10, 64)
	what := r.PostForm.Get("step")
	if err != nil || what != "approve" && what != "decline" {
		a.failed(w, r, who, usage.ErrNotFound)
		return
	}
	if !a.cfg.SecondPerson || who.via != byProxy {
		a.fault(w, r, who, http.StatusForbidden, "Nothing can be decided this way",
			"Requests are decided by people whom the trusted proxy names, where the worker asks for a second person: a name that is given with the token is only a claim.")
		return
	}
	reason := strings.TrimSpace(r.PostForm.Get("reason"))
	if fault := reasonFault(reason); fault != "" {
		a.showRequests(w, r, who, http.StatusUnprocessableEntity, fault, r.PathValue("request"), reason)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	err = a.cfg.Biller.Decide(ctx, id, what == "approve", usage.By{Actor: who.Name, Way: usage.WayAdmin, Reason: reason, Form: r.PostForm.Get("form")})
	switch {
	case err == nil && what == "approve":
		a.done(w, r, "/admin/requests", "Request "+r.PathValue("request")+" is approved and done.")
	case err == nil:
		a.done(w, r, "/admin/requests", "Request "+r.PathValue("request")+" is declined.")
	case errors.Is(err, billing.ErrDecided), billing.Refused(err):
		a.showRequests(w, r, who, http.StatusUnprocessableEntity, err.Error(), r.PathValue("request"), reason)
	default:
		a.failed(w, r, who, err)
	}
}
