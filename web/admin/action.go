package admin

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/usage"
)

const (
	maxReason = 500              // characters of a reason
	actTime   = 20 * time.Second // of an action, within the server's own limit of an answer
)

// field is one input of an action's form.
type field struct {
	Name, Label, Help string
	Value             string
	Options           []option // of a choice; else it is a line of text
	Error             string
	Numeric           bool
}

type option struct {
	Value, Text string
	Chosen      bool
}

// Shown is the value as people read it.
func (f field) Shown() string {
	for _, o := range f.Options {
		if o.Value == f.Value {
			return o.Text
		}
	}
	if f.Value == "" {
		return "–"
	}
	return f.Value
}

// actView is the page of one action: its form, or what it would do.
type actView struct {
	Name, Path, Self, Title, Text string
	Fields                        []field
	Reason, ReasonError           string
	Form                          string // it acts once
	Error                         string // why it was refused
	Preview                       []string
	Confirm                       bool // the preview is shown
	Second                        bool // another person decides
	Danger                        bool
	FormKey                       string
	Section, Said                 string // where it belongs, and where it is told afterwards
	About                         string // what is to be acted upon
	Back                          string // what Path is called; empty: Name
}

// action shows an action's empty form; what the address says of its fields is filled in.
func (a *Admin) action(w http.ResponseWriter, r *http.Request, who person) {
	f, ok := formOf(r.PathValue("action"))
	if !ok {
		a.failed(w, r, who, usage.ErrNotFound)
		return
	}
	v, err := a.actPage(r.Context(), f, accountOf(r), r.URL.Query(), false)
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	a.showAct(w, r, who, http.StatusOK, v)
}

// act previews an action, or carries it out. Input that is wrong shows the form again with what was typed; nothing is
// stored. What is sent twice acts once.
func (a *Admin) act(w http.ResponseWriter, r *http.Request, who person) {
	f, ok := formOf(r.PathValue("action"))
	if !ok {
		a.failed(w, r, who, usage.ErrNotFound)
		return
	}
	account := accountOf(r)
	in := r.PostForm
	v, err := a.actPage(r.Context(), f, account, in, true)
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	action, fine := f.read(account, v.Fields, in)
	a.acting(w, r, who, v, action, fine)
}

// acting goes on with an action that was sent: it shows what was wrong with its fields, previews it, or does it.
func (a *Admin) acting(w http.ResponseWriter, r *http.Request, who person, v *actView, action billing.Action, fine bool) {
	in := r.PostForm
	v.Reason = strings.TrimSpace(in.Get("reason"))
	v.ReasonError = reasonFault(v.Reason)
	if in.Get("step") == "change" {
		v.ReasonError = ""
		a.showAct(w, r, who, http.StatusOK, v)
		return
	}
	if !fine || v.ReasonError != "" {
		a.showAct(w, r, who, http.StatusUnprocessableEntity, v)
		return
	}
	by := usage.By{Actor: who.Name, Way: usage.WayAdmin, Reason: v.Reason, Form: in.Get("form")}
	if who.via == byToken {
		by.Way = usage.WayAPI
	} else if by.Form == "" {
		by.Form = v.Form
	}
	v.Second = a.cfg.SecondPerson && billing.MovesMoney(action)
	if v.Second && who.via != byProxy {
		a.fault(w, r, who, http.StatusForbidden, "This takes two people", "Sign in through the proxy: a name that is given with the token is only a claim, and nobody could tell two people apart.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTime)
	defer cancel()
	if in.Get("step") == "do" {
		a.carryOut(ctx, w, r, who, v, action, by)
		return
	}
	var err error
	v.Preview, err = a.cfg.Biller.Preview(ctx, action, by)
	if err != nil {
		a.refused(w, r, who, v, err)
		return
	}
	v.Confirm = true
	a.showAct(w, r, who, http.StatusOK, v)
}

func (a *Admin) carryOut(ctx context.Context, w http.ResponseWriter, r *http.Request, who person, v *actView, action billing.Action, by usage.By) {
	said := v.Title + ": done. " + v.Said
	var err error
	if v.Second {
		_, err = a.cfg.Biller.Request(ctx, action, by)
		said = v.Title + ": asked for. Another person decides about it on the page of requests."
	} else {
		_, err = a.cfg.Biller.Do(ctx, action, by)
	}
	switch {
	case errors.Is(err, usage.ErrRepeated):
		a.done(w, r, v.Path, v.Title+": this form was sent before and acts once. Nothing was done again.")
	case err != nil && !billing.Refused(err) && r.Context().Err() == nil:
		a.log.Warn("an action of the admin failed", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "5")
		a.fault(w, r, who, http.StatusServiceUnavailable, "It could not be done now",
			"The audit log says what was in the way, if the database took it. Send the same form again in a few seconds, by reloading this page: what failed may be repeated, what was done is not done twice.")
	case err != nil:
		a.refused(w, r, who, v, err)
	default:
		a.done(w, r, v.Path, said)
	}
}

// refused shows the form again with why the rules don't allow it. Other errors are not told.
func (a *Admin) refused(w http.ResponseWriter, r *http.Request, who person, v *actView, err error) {
	if !billing.Refused(err) {
		a.failed(w, r, who, err)
		return
	}
	v.Error, v.Confirm = err.Error(), false
	a.showAct(w, r, who, http.StatusUnprocessableEntity, v)
}

func (a *Admin) showAct(w http.ResponseWriter, r *http.Request, who person, status int, v *actView) {
	v.FormKey = a.guard.formKey(who)
	if status == http.StatusUnprocessableEntity || v.Form == "" {
		v.Form = newFormID() // the one before may have been used up
	}
	a.render(w, r, who, status, "action.html", view{Title: v.Title + " – " + v.Name, Section: v.Section, Page: v})
}

// actPage makes an action's form for an account, with values from the address or the form that was sent.
func (a *Admin) actPage(ctx context.Context, f form, account string, in url.Values, sent bool) (*actView, error) {
	var head *books.Account
	var s *books.Statement
	err := a.reading(ctx, func(ctx context.Context) (err error) {
		if head, err = books.ReadAccount(ctx, a.cfg.DB, account, a.now()); err == nil {
			s, err = books.ReadStatement(ctx, a.cfg.DB, account, a.now())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	path := accountPath(account)
	v := &actView{
		Name: account, Path: path, Self: path + "/do/" + f.name, Title: f.title, Text: f.text, Danger: f.danger,
		Second: a.cfg.SecondPerson && f.money, Fields: f.fields(&facts{head, s, in}), Form: in.Get("form"), Section: "accounts", Said: "It is in the story below.",
	}
	for i := range v.Fields {
		x := &v.Fields[i]
		if _, ok := in[x.Name]; ok || sent {
			x.Value = in.Get(x.Name)
		}
		if len(x.Value) > maxField || !validText(x.Value) {
			x.Value = ""
		}
		for j := range x.Options {
			x.Options[j].Chosen = x.Options[j].Value == x.Value
		}
	}
	return v, nil
}

const maxField = 300 // bytes of a value

// reasonFault says what is wrong with a reason.
func reasonFault(s string) string {
	switch {
	case s == "":
		return "Say why: the audit log keeps it."
	case len([]rune(s)) > maxReason || len(s) > usage.MaxReasonBytes:
		return "Say it in at most 500 characters."
	case !validText(s):
		return "Use plain text."
	}
	return ""
}

// newFormID is of one form that was shown.
func newFormID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}
