package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/usage"
)

const (
	maxChangeBytes = 64 << 10        // of what River's page sends; it takes at most 1,000 jobs at once
	jobsNamed      = 5               // jobs that the subject of a change names
	maxJobName     = 100             // bytes of the name of a kind of jobs, or of a change, that are kept
	noteTime       = 5 * time.Second // for what is written about a change
	noJobReason    = "no reason was given: the page of jobs asks for none"
)

// jobChange is what somebody changes on River's page.
type jobChange struct {
	action, subject string
	jobs            []int64
	arguments       map[string]any
}

// jobNumber is a job's id as River's page sends it: a number, or one in quotes.
type jobNumber int64

// UnmarshalJSON reads it.
func (n *jobNumber) UnmarshalJSON(b []byte) error {
	i, err := strconv.ParseInt(strings.Trim(string(b), `"`), 10, 64)
	*n = jobNumber(i)
	return err
}

// readJobChange reads what a call to River's page asks for.
func readJobChange(path string, body []byte) (jobChange, error) {
	what := strings.TrimPrefix(path, JobsPath+"/api/")
	c := jobChange{action: "change jobs", subject: what, arguments: map[string]any{}}
	if verb, ok := strings.CutPrefix(what, "jobs/"); ok {
		var in struct {
			Jobs []jobNumber `json:"ids"`
		}
		if err := json.Unmarshal(body, &in); err != nil {
			return c, fmt.Errorf("read which jobs are changed: %w", err)
		}
		if len(in.Jobs) == 0 {
			return c, errors.New("read which jobs are changed: none are named")
		}
		for _, n := range in.Jobs {
			c.jobs = append(c.jobs, int64(n))
		}
		c.action, c.subject = verb+" jobs", namedJobs(c.jobs)
		return c, nil
	}
	if rest, ok := strings.CutPrefix(what, "queues/"); ok {
		name, verb, _ := strings.Cut(rest, "/")
		c.action, c.subject = strings.TrimSpace(verb+" queue"), name
		if verb == "" {
			c.action = "change queue"
		}
	}
	if json.Valid(body) {
		c.arguments["change"] = json.RawMessage(body)
	}
	return c, nil
}

// namedJobs names the first of some jobs.
func namedJobs(jobs []int64) string {
	var names []string
	for _, id := range jobs[:min(len(jobs), jobsNamed)] {
		names = append(names, strconv.FormatInt(id, 10))
	}
	text := "job " + strings.Join(names, ", ")
	if len(jobs) > jobsNamed {
		text += fmt.Sprintf(" and %d more", len(jobs)-jobsNamed)
	}
	return text
}

// changeJobs passes a change on to River's page. Who asked for what, and of which jobs, is in the audit log before it
// is done, and how it ended after; what can't be written there is not done.
func (a *Admin) changeJobs(w http.ResponseWriter, r *http.Request, who person) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxChangeBytes))
	var c jobChange
	if err == nil {
		c, err = readJobChange(r.URL.EscapedPath(), body)
	}
	if err != nil {
		problem.New(http.StatusBadRequest, problem.InvalidRequest, "Invalid request", "Which jobs are to be changed can't be read. Nothing was changed.").Write(w)
		return
	}
	row, err := a.noteJobs(r.Context(), c, who)
	if err != nil {
		a.log.Warn("a change of jobs can't be written into the audit log", "by", who.Name, "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "5")
		problem.New(http.StatusServiceUnavailable, problem.Internal, "Unavailable", "The audit log can't be written now. Nothing was changed. Try again in a few seconds.").Write(w)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	said := &heard{ResponseWriter: w, status: http.StatusOK}
	a.cfg.Jobs.ServeHTTP(said, r)
	result, message := said.result()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), noteTime)
	defer cancel()
	if err := usage.EndAudit(ctx, a.cfg.DB, row, result, message, "", a.now()); err != nil {
		a.log.Error("how a change of jobs ended is not in the audit log", "row", row, "by", who.Name, "path", r.URL.Path, "answer", said.status, "error", err)
	}
}

// noteJobs writes the row of a change that is about to be made.
func (a *Admin) noteJobs(ctx context.Context, c jobChange, who person) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	kinds := map[int64]string{}
	if len(c.jobs) > 0 && a.cfg.JobKinds != nil {
		var err error
		if kinds, err = a.cfg.JobKinds(ctx, c.jobs); err != nil {
			return 0, err
		}
	}
	if len(c.jobs) > 0 {
		all := make([]string, 0, len(c.jobs))
		for _, id := range c.jobs {
			all = append(all, strings.TrimSpace(strconv.FormatInt(id, 10)+" "+begins(kinds[id], maxJobName)))
		}
		c.arguments["jobs"] = all
	}
	by := usage.By{Actor: who.Name, Way: usage.WayAdmin, Reason: noJobReason}
	if who.via == byToken {
		by.Way = usage.WayAPI
	}
	subject := c.subject
	if plain, err := url.PathUnescape(subject); err == nil {
		subject = plain
	}
	const most = 500 // bytes; the database takes 512
	subject = strings.ReplaceAll(begins(subject, most), "\x00", "?")
	return usage.BeginAudit(ctx, a.cfg.DB, by, begins(c.action, maxJobName), subject, c.arguments, a.now())
}

// begins is how a text begins, in at most so many bytes.
func begins(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// heard listens to an answer on its way.
type heard struct {
	http.ResponseWriter
	status int
}

// WriteHeader passes the status on.
func (h *heard) WriteHeader(status int) {
	h.status = status
	h.ResponseWriter.WriteHeader(status)
}

// result is what an answer says of the change.
func (h *heard) result() (result, message string) {
	switch {
	case h.status < http.StatusMultipleChoices:
		return usage.ResultDone, ""
	case h.status < http.StatusInternalServerError:
		return usage.ResultRefused, fmt.Sprintf("it was answered with status %d", h.status)
	}
	return usage.ResultFailed, fmt.Sprintf("it was answered with status %d", h.status)
}
