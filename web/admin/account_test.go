package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
)

const underWay = "the period under way" // which fill looks up

var (
	formID  = regexp.MustCompile(`name="form" value="([^"]+)"`)
	running = regexp.MustCompile(`<option value="([^"]+)"[^>]*>under way`)
)

// fill opens an action's form and returns what it carries, with more values.
func (v *visitor) fill(path string, pairs ...string) url.Values {
	v.Helper()
	body := v.page(path)
	m := formID.FindStringSubmatch(body)
	require.NotNil(v, m, "no form on %s", path)
	in := url.Values{"key": {formKey.FindStringSubmatch(body)[1]}, "form": {m[1]}, "reason": {"they called about it"}}
	for i := 0; i < len(pairs); i += 2 {
		in.Set(pairs[i], pairs[i+1])
	}
	if in.Get("at") == underWay {
		m := running.FindStringSubmatch(body)
		require.NotNil(v, m, "no period under way on %s", path)
		in.Set("at", m[1])
	}
	return in
}

// log is the audit log, the newest first.
func (w *world) log() []usage.Entry {
	w.Helper()
	all, err := usage.AuditLog(w.Context(), w.db, usage.AuditFilter{Most: 500})
	require.NoError(w, err)
	return all
}

func TestEachActionOfAnAccount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	customer, _ := w.over("acme", 500)
	w.hour()
	v := w.signedIn("Ann")
	for _, c := range []struct {
		action, name string
		in           []string
		foresees     string
		is           func() bool
	}{
		{"override", "override", []string{"feature", "events", "included", "2,000"}, "included 1,000 → 2,000", func() bool {
			return strings.Contains(v.page("/admin/accounts/acme"), "2,000")
		}},
		{"cap", "spending cap", []string{"feature", "events", "units", "700"}, "spending cap none → 700", nil},
		{"adjust", "adjust", []string{"feature", "events", "at", underWay, "way", "refund", "units", "100"}, "overage 500 → 400", nil},
		{"settle", "settle", nil, "events: 400 units are billable", nil},
		{"resync", "resync", nil, customer, nil},
		{"replay", "replay", nil, "0 refused reports", nil},
		{"shadow", "shadow", []string{"shadow", "on"}, "Shadow mode: off → on", func() bool {
			return strings.Contains(v.page("/admin/accounts/acme"), "Shadow mode</span>")
		}},
		{"contact", "contact", []string{"email", "ops@example.com"}, "ops@example.com", nil},
		{"map", "unmap", []string{"customer", ""}, "Customer: " + customer + " → nobody", nil},
		{"map", "map", []string{"customer", customer}, "Customer: nobody → " + customer, nil},
	} {
		before := len(w.log())
		path := "/admin/accounts/acme/do/" + c.action
		in := v.fill(path, c.in...)
		in.Set("step", "preview")
		a := v.post(path, in)
		require.Equal(t, http.StatusOK, a.status, "%s: %s", c.action, a.body)
		require.Contains(t, a.body, c.foresees, c.action)
		require.Len(t, w.log(), before, "a preview of %s stores nothing", c.action)
		in.Set("step", "do")
		for range 2 { // sent twice, it acts once
			a = v.post(path, in)
			require.Equal(t, http.StatusSeeOther, a.status, "%s: %s", c.action, a.body)
			require.Equal(t, "/admin/accounts/acme", a.header.Get("Location"))
		}
		log := w.log()
		require.Len(t, log, before+1, c.action)
		e := log[0]
		require.Equal(t, []string{"Ann", usage.WayAdmin, c.name, "they called about it", usage.ResultDone, "acme"},
			[]string{e.Actor, e.Way, e.Action, e.Reason, e.Result, e.Account}, e.Message)
		if c.is != nil {
			require.True(t, c.is(), c.action)
		}
	}
	page := v.page("/admin/accounts/acme?kind=action")
	for _, s := range []string{"Override: done", "Adjust: done", "Unmap: done", "Ann by admin: they called about it"} {
		require.Contains(t, page, s)
	}
	require.Contains(t, v.page("/admin/audit?actor=Ann&action=adjust"), "units -100")
	require.Contains(t, v.page("/admin/accounts/acme?kind=plan"), "mapped")
}

// An action that failed is repeated by sending its form again. One that was done is not.
func TestAFailedActionIsRepeatedByTheSameForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	w.over("acme", 500)
	v := w.signedIn("Ann")
	in := v.fill("/admin/accounts/acme/do/resync", "step", "do")
	fault := w.sim.Faults().Inject(stripesim.Match{Method: "GET"}, stripesim.Unavailable(http.StatusInternalServerError))
	for range 2 {
		w.exec("UPDATE weir.customers SET claimed_until = '-infinity'") // its back-off
		a := v.post("/admin/accounts/acme/do/resync", in)
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
		require.Contains(t, a.body, "Send the same form again")
	}
	fault.Remove()
	w.exec("UPDATE weir.customers SET claimed_until = '-infinity'")
	for range 3 {
		a := v.post("/admin/accounts/acme/do/resync", in)
		require.Equal(t, http.StatusSeeOther, a.status, a.body)
	}
	require.Contains(t, v.page("/admin/accounts/acme"), "acts once")
	var results []string
	for _, e := range w.log() {
		results = append(results, e.Action+" "+e.Result)
	}
	require.Equal(t, []string{"resync done", "resync failed", "resync failed"}, results)
}

func TestWrongInputShowsTheFormAgainAndStoresNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use("acme", 10)
	v := w.signedIn("Ann")
	for _, c := range []struct {
		action string
		in     []string
		shows  []string
	}{
		{"override", []string{"feature", "events", "included", "-5"}, []string{"without a sign", `value="-5"`}},
		{"override", []string{"feature", "events", "included", "many"}, []string{"Enter whole units", `value="many"`}},
		{"cap", []string{"feature", "nothing", "units", "5"}, []string{"Choose one of these"}},
		{"adjust", []string{"feature", "events", "at", underWay, "way", "refund", "units", ""}, []string{"Enter how many units"}},
		{"adjust", []string{"feature", "events", "at", underWay, "way", "refund", "units", "5", "reason", "  "}, []string{"Say why"}},
		{"adjust", []string{"feature", "events", "at", underWay, "way", "refund", "units", "5", "reason", strings.Repeat("x", 501)}, []string{"at most 500"}},
		{"map", []string{"customer", "acme"}, []string{"begins with cus_", `value="acme"`}},
		{"late", []string{"id", "77", "policy", "forgive"}, []string{"Nothing is held"}},
		{"contact", []string{"email", "nobody"}, []string{"one bare address", `value="nobody"`}},
	} {
		path := "/admin/accounts/acme/do/" + c.action
		in := v.fill(path, c.in...)
		in.Set("step", "do")
		a := v.post(path, in)
		require.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %s", c.action, a.body)
		for _, s := range c.shows {
			require.Contains(t, a.body, s, c.action)
		}
	}
	require.Empty(t, w.log())

	// What the rules refuse is written down, and the form comes again with another id.
	path := "/admin/accounts/acme/do/adjust"
	in := v.fill(path, "feature", "events", "at", underWay, "way", "refund", "units", "11", "step", "do")
	a := v.post(path, in)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, a.body, "more units than are counted")
	require.NotContains(t, a.body, in.Get("form"))
	require.Equal(t, usage.ResultRefused, w.log()[0].Result)
	require.Equal(t, http.StatusNotFound, v.get("/admin/accounts/acme/do/nothing").status)
	require.Equal(t, http.StatusNotFound, v.get("/admin/accounts/unknown").status)
}

func TestPostsOfOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use("acme", 10)
	v := w.signedIn("Ann")
	path := "/admin/accounts/acme/do/adjust"
	in := v.fill(path, "feature", "events", "at", underWay, "way", "refund", "units", "1", "step", "do")
	require.Equal(t, http.StatusForbidden, v.post(path, in, "Sec-Fetch-Site", "cross-site").status)
	require.Equal(t, http.StatusForbidden, v.post(path, in, "Origin", "https://evil.example").status)
	without := url.Values{}
	for k, x := range in {
		without[k] = x
	}
	without.Del("key")
	require.Equal(t, http.StatusForbidden, v.post(path, without).status)
	require.Equal(t, http.StatusUnauthorized, w.browser().post(path, in).status)
	require.Equal(t, http.StatusUnauthorized, w.browser().get("/admin/accounts/acme").status)
	require.Equal(t, http.StatusForbidden, v.post("/admin/requests/1", url.Values{"step": {"approve"}}).status)
	require.Empty(t, w.log())
	require.Equal(t, http.StatusSeeOther, v.post(path, in).status, "its own page's form is taken")
}

func TestHostileNamesAndReasonsAreText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := `..</a><script>alert(1)</script>"'&?#%`
	w.use(name, 10)
	v := w.signedIn("Ann")
	path := admin.AccountPath(name)
	in := v.fill(path+"/do/adjust", "feature", "events", "at", underWay, "way", "add", "units", "7", "reason", `</li><img src=x onerror=alert(2)>`, "step", "do")
	a := v.post(path+"/do/adjust", in)
	require.Equal(t, http.StatusSeeOther, a.status, a.body)
	require.Equal(t, path, a.header.Get("Location"))
	for _, at := range []string{path, path + "?kind=action", path + "?kind=adjustment", path + "/do/override", "/admin/audit"} {
		body := v.page(at)
		require.NotContains(t, body, "<script>alert", at)
		require.NotContains(t, body, "<img src=x", at)
	}
	require.Contains(t, v.page(path), "&lt;script&gt;")
	require.Contains(t, v.page("/admin/audit"), "&lt;img src=x onerror=alert(2)&gt;")
	require.Equal(t, http.StatusBadRequest, v.get(path+"?at=yesterday").status)
	require.Equal(t, http.StatusBadRequest, v.get(path+"?kind=nothing").status)
}

// twoPeople is an admin behind a proxy that names who is signed in.
func twoPeople(c *admin.Config) {
	c.UserHeader, c.TrustedProxies, c.SecondPerson = "X-User", []string{"127.0.0.1"}, true
}

func TestMoneyWaitsForASecondPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, twoPeople)
	w.use("acme", 100)
	w.fold()
	ann, bob := w.browser("X-User", "ann"), w.browser("X-User", "bob")
	ask := func(units string) string {
		path := "/admin/accounts/acme/do/adjust"
		a := ann.post(path, ann.fill(path, "feature", "events", "at", underWay, "way", "refund", "units", units, "step", "do"))
		require.Equal(t, http.StatusSeeOther, a.status, a.body)
		require.Equal(t, usage.ResultWaiting, w.log()[0].Result)
		return fmt.Sprint(w.log()[0].ID)
	}
	used := func() int64 {
		all, err := usage.Totals(t.Context(), w.db, "acme", time.Time{})
		require.NoError(t, err)
		return all[0].Used + all[0].Adjusted
	}
	id := ask("30")
	require.EqualValues(t, 100, used(), "nothing is done yet")
	require.Contains(t, ann.page("/admin/requests"), "It is your own")
	decide := func(v *visitor, id, step string) answer {
		return v.post("/admin/requests/"+id, url.Values{"key": {v.key("/admin/audit")}, "form": {"a form of " + id + v.headers[3] + step}, "reason": {"looked into it"}, "step": {step}})
	}
	a := decide(ann, id, "approve")
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, a.body, "is your own")
	require.Contains(t, bob.page("/admin/requests"), "units -30")
	require.Equal(t, http.StatusUnprocessableEntity, bob.post("/admin/requests/"+id, url.Values{"key": {bob.key("/admin/audit")}, "step": {"approve"}}).status, "a reason is asked for")
	require.Equal(t, http.StatusSeeOther, decide(bob, id, "approve").status)
	require.EqualValues(t, 70, used())
	e := w.log()[0]
	require.Equal(t, []string{"bob", "adjust", usage.ResultDone, id}, []string{e.Actor, e.Action, e.Result, fmt.Sprint(e.Decides)})

	id = ask("5")
	require.Equal(t, http.StatusSeeOther, decide(bob, id, "decline").status)
	require.Equal(t, http.StatusUnprocessableEntity, decide(bob, id, "approve").status, "it is decided")
	id = ask("6")
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(billing.RequestLife)))
	a = decide(bob, id, "approve")
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, a.body, "7 days")
	require.NotContains(t, bob.page("/admin/requests"), "request "+id)
	require.EqualValues(t, 70, used())

	// What moves no money waits for nobody; a token's name is only a claim.
	path := "/admin/accounts/acme/do/shadow"
	require.Equal(t, http.StatusSeeOther, ann.post(path, ann.fill(path, "shadow", "on", "step", "do")).status)
	require.Equal(t, usage.ResultDone, w.log()[0].Result)
	session := w.signedIn("carol")
	path = "/admin/accounts/acme/do/cap"
	require.Equal(t, http.StatusForbidden, session.post(path, session.fill(path, "feature", "events", "units", "5", "step", "do")).status)
	require.Equal(t, http.StatusForbidden, session.post("/admin/requests/"+id, url.Values{"key": {session.key("/admin/audit")}, "reason": {"r"}, "step": {"approve"}}).status)
	_, err := admin.New(admin.Config{DB: w.db, Biller: w.b, Clock: w.sim, Logger: w.cfg.Logger, Token: "t", SecondPerson: true})
	require.ErrorContains(t, err, "only claims")
}

func TestARequestIsDecidedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use("acme", 100)
	by := func(name string) usage.By {
		return usage.By{Actor: name, Way: usage.WayAdmin, Reason: "why"}
	}
	for round := range 5 {
		id, err := w.b.Request(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: -1}, by("ann"))
		require.NoError(t, err)
		var all sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			all.Go(func() { errs[i] = w.b.Decide(t.Context(), id, i%4 != 0, by(fmt.Sprintf("person %d", i))) })
		}
		all.Wait()
		done := 0
		for _, err := range errs {
			if err == nil {
				done++
				continue
			}
			require.ErrorIs(t, err, billing.ErrDecided)
		}
		require.Equal(t, 1, done, "round %d", round)
	}
	var adjustments, approvals int64
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM weir.adjustments), (SELECT count(*) FROM weir.audit WHERE decides IS NOT NULL AND result = 'done')").Scan(&adjustments, &approvals))
	require.Equal(t, approvals, adjustments)
}
