package admin_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
)

// send makes a call as River's page does.
func (v *visitor) send(method, path, body string) answer {
	v.Helper()
	r, err := http.NewRequestWithContext(v.Context(), method, v.url+path, strings.NewReader(body))
	require.NoError(v, err)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	res, err := v.http.Do(r)
	require.NoError(v, err)
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	require.NoError(v, err)
	return answer{res.StatusCode, res.Header, string(b)}
}

// What is changed on River's page is in the audit log: who, what, and of which jobs.
func TestAChangeOfJobsIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	var status int
	var got []string
	w := newWorld(t, func(c *admin.Config) {
		c.JobKinds = func(context.Context, []int64) (map[int64]string, error) {
			return map[int64]string{7: "report", 9: "fold", 99: strings.Repeat("é", 200)}, nil
		}
		c.Jobs = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = append(got, r.URL.Path+" "+string(b))
			rw.WriteHeader(status)
		})
	})
	v := w.signedIn("Ann")
	for _, c := range []struct {
		method, path, body string
		status             int
		action, subject    string
		arguments          string
		result             string
	}{
		{"POST", "/admin/jobs/api/jobs/retry", `{"ids":["7",9]}`, 200, "retry jobs", "job 7, 9", `{"jobs":["7 report","9 fold"]}`, usage.ResultDone},
		{"POST", "/admin/jobs/api/jobs/cancel", `{"ids":["8"]}`, 404, "cancel jobs", "job 8", `{"jobs":["8"]}`, usage.ResultRefused},
		{"POST", "/admin/jobs/api/jobs/delete", `{"IDS":[1,2,3,4,5,6,7]}`, 500, "delete jobs", "job 1, 2, 3, 4, 5 and 2 more", `{"jobs":["1","2","3","4","5","6","7 report"]}`, usage.ResultFailed},
		{"PUT", "/admin/jobs/api/queues/a%20queue/pause", "", 204, "pause queue", "a queue", `{}`, usage.ResultDone},
		{"PATCH", "/admin/jobs/api/queues/fold", `{"concurrency":null}`, 200, "change queue", "fold", `{"change":{"concurrency":null}}`, usage.ResultDone},
		{"POST", "/admin/jobs/api/jobs/" + strings.Repeat("retry", 200), `{"ids":[99]}`, 404, strings.Repeat("retry", 20), "job 99", `{"jobs":["99 ` + strings.Repeat("é", 50) + `"]}`, usage.ResultRefused},
		{"DELETE", "/admin/jobs/api/something/new", "", 200, "change jobs", "something/new", `{}`, usage.ResultDone},
	} {
		status = c.status
		before := len(w.log())
		require.Equal(t, c.status, v.send(c.method, c.path, c.body).status)
		require.True(t, strings.HasSuffix(got[len(got)-1], " "+c.body), "River's page gets what was sent: %s", got[len(got)-1])
		log := w.log()
		require.Len(t, log, before+1)
		e := log[0]
		require.Equal(t, []string{"Ann", usage.WayAdmin, c.action, c.subject, c.result}, []string{e.Actor, e.Way, e.Action, e.Subject, e.Result})
		require.JSONEq(t, c.arguments, string(e.Arguments))
		require.NotEmpty(t, e.Reason)
	}
	require.Contains(t, v.page("/admin/audit"), "retry jobs")

	// Who reads changes nothing, and what can't be read is not done.
	before, calls := len(w.log()), len(got)
	status = 200
	require.Equal(t, 200, v.send("GET", "/admin/jobs/api/jobs", "").status)
	require.Len(t, got, calls+1)
	many, err := json.Marshal(map[string]string{"ids": strings.Repeat("7", 70_000)})
	require.NoError(t, err)
	for _, body := range []string{"", "{}", `{"ids":["x"]}`, `{"ids":7}`, string(many)} {
		require.Equal(t, http.StatusBadRequest, v.send("POST", "/admin/jobs/api/jobs/cancel", body).status)
	}
	require.Equal(t, http.StatusUnauthorized, w.browser().send("POST", "/admin/jobs/api/jobs/cancel", `{"ids":[7]}`).status)
	require.Len(t, got, calls+1)
	require.Len(t, w.log(), before)
}

// A change that can't be written into the audit log is not made.
func TestAChangeOfJobsThatCantBeWrittenDownIsNotMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *admin.Config) {
		c.Jobs = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was made") })
	})
	v := w.signedIn("Ann")
	w.exec("ALTER TABLE weir.audit RENAME TO audit_away")
	require.Equal(t, http.StatusServiceUnavailable, v.send("POST", "/admin/jobs/api/jobs/cancel", `{"ids":[7]}`).status)
}
