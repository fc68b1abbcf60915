package admin_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// reap takes the world's node for dead.
func (w *world) reap() {
	w.Helper()
	n, err := usage.ReadNode(w.Context(), w.db, w.node.ID, w.sim.Now(), 1)
	require.NoError(w, err)
	reaped, err := usage.Reap(w.Context(), w.db, w.node.ID, n.Heartbeat)
	require.NoError(w, err)
	require.True(w, reaped)
}

// plantFinding opens a finding about an account.
func (w *world) plantFinding(account string) (id int64) {
	w.Helper()
	err := w.db.QueryRow(w.Context(), `INSERT INTO weir.findings (kind, subject, account_id, message, since, seen_at)
		SELECT 'report_outcome', a.account, a.id, 'an answer <b>was</b> lost', '2026-01-02Z', '2026-01-02Z' FROM weir.accounts a WHERE a.account = $1 RETURNING id`, account).Scan(&id)
	require.NoError(w, err)
	return id
}

// refuses checks that an action's form is taken from its own page alone.
func (v *visitor) refuses(w *world, path string, in url.Values) {
	v.Helper()
	before := len(w.log())
	require.Equal(v, http.StatusForbidden, v.post(path, in, "Sec-Fetch-Site", "cross-site").status)
	require.Equal(v, http.StatusForbidden, v.post(path, in, "Origin", "https://evil.example").status)
	without := url.Values{"form": in["form"], "reason": in["reason"], "step": {"do"}}
	require.Equal(v, http.StatusForbidden, v.post(path, without).status)
	require.Equal(v, http.StatusUnauthorized, w.browser().post(path, in).status)
	require.Equal(v, http.StatusUnauthorized, w.browser().get(path).status)
	in.Set("reason", " ")
	a := v.post(path, in)
	require.Equal(v, http.StatusUnprocessableEntity, a.status)
	require.Contains(v, a.body, "Say why")
	in.Set("reason", "looked into it")
	require.Len(v, w.log(), before, "nothing was done")
}

func TestAFindingIsCleared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use("acme", 10)
	id := w.plantFinding("acme")
	v := w.signedIn("Ann")
	path := fmt.Sprintf("/admin/findings/%d/clear", id)
	require.Contains(t, v.page("/admin/findings"), `href="`+path+`"`)
	in := v.fill(path, "step", "do")
	v.refuses(w, path, in)
	in.Set("step", "preview")
	a := v.post(path, in)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, "report_outcome is cleared; what is found again opens again")
	require.Contains(t, a.body, "an answer &lt;b&gt;was&lt;/b&gt; lost")
	require.NotContains(t, a.body, "Customer:", "nothing of the account changes")
	require.Contains(t, v.page("/admin/findings"), path, "a preview changes nothing")
	in.Set("step", "do")
	for range 2 {
		a = v.post(path, in)
		require.Equal(t, http.StatusSeeOther, a.status, a.body)
	}
	require.NotContains(t, v.page("/admin/findings"), path)
	require.Len(t, w.log(), 1, "sent twice, it acts once")
	e := w.log()[0]
	require.Equal(t, []string{"Ann", usage.WayAdmin, "clear finding", fmt.Sprintf("finding %d", id), "looked into it", usage.ResultDone, "acme"},
		[]string{e.Actor, e.Way, e.Action, e.Subject, e.Reason, e.Result, e.Account})
	require.NotContains(t, string(e.Arguments)+e.Message, "acme", "the log knows accounts by number")
	require.Contains(t, v.page("/admin/accounts/acme?kind=action"), "Clear finding: done")
	require.Equal(t, http.StatusNotFound, v.get(path).status, "it is not open any more")
	require.Equal(t, http.StatusNotFound, v.get("/admin/findings/x/clear").status)

	// A form that was opened before another person cleared it.
	id = w.plantFinding("acme")
	path = fmt.Sprintf("/admin/findings/%d/clear", id)
	late := v.fill(path, "step", "do")
	require.Equal(t, http.StatusSeeOther, v.post(path, v.fill(path, "step", "do")).status)
	a = v.post(path, late)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, a.body, "Refused, nothing was changed")
	require.Equal(t, usage.ResultRefused, w.log()[0].Result)
}

func TestANodeIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.use("acme", 10)
	v := w.signedIn("Ann")
	node := fmt.Sprintf("/admin/nodes/%d", w.node.ID)
	path := node + "/give-up"
	require.NotContains(t, v.page(node), path, "a live one can't be")
	in := v.fill(path, "step", "preview")
	a := v.post(path, in)
	require.Equal(t, http.StatusUnprocessableEntity, a.status)
	require.Contains(t, a.body, "is live: only a reaped node can be given up")
	w.reap()
	require.Contains(t, v.page(node), `href="`+path+`"`)
	in = v.fill(path, "step", "do")
	v.refuses(w, path, in)
	in.Set("step", "preview")
	a = v.post(path, in)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, "what its journal may still hold does not")
	require.Contains(t, v.page(node), "reaped", "a preview changes nothing")
	in.Set("step", "do")
	for range 2 {
		a = v.post(path, in)
		require.Equal(t, http.StatusSeeOther, a.status, a.body)
		require.Equal(t, node, a.header.Get("Location"))
	}
	require.Contains(t, v.page(node), "given_up")
	require.NotContains(t, v.page(node), path)
	require.Len(t, w.log(), 1, "sent twice, it acts once")
	e := w.log()[0]
	require.Equal(t, []string{"Ann", usage.WayAdmin, "give up node", fmt.Sprintf("node %d", w.node.ID), "looked into it", usage.ResultDone},
		[]string{e.Actor, e.Way, e.Action, e.Subject, e.Reason, e.Result})
	require.Equal(t, http.StatusNotFound, v.get("/admin/nodes/987654/give-up").status)
}

func TestTheLogSaysASubjectOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := usage.BeginAudit(t.Context(), w.db, usage.By{Actor: "ann", Way: usage.WayCLI, Reason: "the first one"}, "publish plans", "d83a841c", map[string]any{"hash": "d83a841c", "now": false}, w.sim.Now())
	require.NoError(t, err)
	page := w.signedIn("Ann").page("/admin/audit")
	require.Equal(t, 1, strings.Count(page, "d83a841c"))
	require.Contains(t, page, "now false")
}
