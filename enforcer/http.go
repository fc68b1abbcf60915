package enforcer

import (
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/ratelimit"
)

// Names of headers, in the form that http.Header keeps them in.
const (
	headerRateLimit      = "Ratelimit-Limit"
	headerRateRemaining  = "Ratelimit-Remaining"
	headerQuotaLimit     = "Quota-Limit"
	headerQuotaRemaining = "Quota-Remaining"
	headerQuotaReset     = "Quota-Reset"
	headerRetryAfter     = "Retry-After"
	headerDraft          = "Ratelimit"
	headerDraftPolicy    = "Ratelimit-Policy"
)

// Answers writes decisions as HTTP. Middleware and sidecar answer with it, and a handler that calls the Enforcer by
// itself can. Take a fresh one for each request: it holds the moment and the published catalog. Make it with
// Enforcer.Answers.
type Answers struct {
	now     int64 // business time
	catalog *plans.Catalog
	draft   bool
}

// Answers returns the writer of answers as of now. draft adds the fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers.
func (e *Enforcer) Answers(draft bool) Answers {
	return Answers{now: e.clock.now(), catalog: e.catalog.Load(), draft: draft}
}

// Headers sets the headers that every answer carries: RateLimit-Limit and RateLimit-Remaining of the decision about
// the rate, Quota-Limit, Quota-Remaining and Quota-Reset (whole seconds until the period ends) of the one about the
// quota. A zero Decision, and a limit that does not exist, set nothing.
func (a Answers) Headers(h http.Header, rate, quota Decision) {
	var f fields
	if hasRate(&rate) {
		f.add(headerRateLimit, rate.Limit)
		f.add(headerRateRemaining, rate.Remaining)
	}
	if quota.Terms != nil {
		if hasQuota(&quota) {
			f.add(headerQuotaLimit, quota.Limit)
			f.add(headerQuotaRemaining, quota.Remaining)
		}
		if !quota.Terms.ResetsAt.IsZero() {
			f.add(headerQuotaReset, a.untilReset(quota.Terms))
		}
	}
	f.set(h)
	if a.draft {
		a.draftFields(h, &rate, &quota)
	}
}

// fields gathers headers whose values are numbers, so that all of them cost two allocations.
type fields struct {
	n     int
	names [5]string
	ends  [5]int
	len   int
	text  [5 * len("-9223372036854775808")]byte
}

func (f *fields) add(name string, value int64) {
	f.len = len(strconv.AppendInt(f.text[:f.len], value, 10))
	f.names[f.n], f.ends[f.n] = name, f.len
	f.n++
}

func (f *fields) set(h http.Header) {
	text, values, at := string(f.text[:f.len]), make([]string, f.n), 0
	for i := range f.n {
		values[i], at = text[at:f.ends[i]], f.ends[i]
		h[f.names[i]] = values[i : i+1 : i+1]
	}
}

func hasRate(d *Decision) bool {
	return !d.Unlimited && (d.Reason == OK || d.Reason == RateLimited)
}

// hasQuota reports whether the decision has a limit to tell: nothing is known of one that a plan lacks.
func hasQuota(d *Decision) bool {
	return d.Terms != nil && !d.Unlimited && d.Reason != NotInPlan
}

// untilReset is the time to the period's end in whole seconds, rounded up: who waits as told is not too early.
func (a Answers) untilReset(t *Terms) int64 {
	left := t.ResetsAt.UnixNano() - a.now
	return max(0, (left+int64(time.Second)-1)/int64(time.Second))
}

// Status is the HTTP status of a decision: 200; 429 for a rate limit; for a quota, and for a feature that the plan
// lacks, 402 or the 403 that the plan file says; 503 where none could be made.
func (a Answers) Status(d Decision) int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.Reason == RateLimited:
		return http.StatusTooManyRequests
	case d.Reason == QuotaExceeded, d.Reason == NotInPlan:
		if a.catalog != nil && a.catalog.QuotaStatus() == http.StatusForbidden {
			return http.StatusForbidden
		}
		return http.StatusPaymentRequired
	default:
		return http.StatusServiceUnavailable
	}
}

// Refuse answers a request with a refusal: its status, Retry-After where waiting helps (whole seconds, at least 1),
// and a body of application/problem+json. Headers are not part of it.
func (a Answers) Refuse(w http.ResponseWriter, d Decision) {
	SetRetryAfter(w.Header(), d)
	a.problem(d).Write(w)
}

// Problem is the body that Refuse writes, a JSON object in printable ASCII on one line.
func (a Answers) Problem(d Decision) []byte { return a.problem(d).Bytes() }

// SetRetryAfter sets the header Retry-After of a refusal where waiting helps: whole seconds, at least 1.
func SetRetryAfter(h http.Header, d Decision) {
	if !d.Allowed && (d.Reason == RateLimited || d.Reason == Unavailable || d.Reason == "") {
		h[headerRetryAfter] = []string{strconv.Itoa(ratelimit.RetryAfterSeconds(d.RetryAfter))}
	}
}
