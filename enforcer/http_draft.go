package enforcer

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/ratelimit"
)

// draftFields sets RateLimit-Policy and RateLimit as draft-ietf-httpapi-ratelimit-headers-10 defines them: lists of
// items, a policy's name with its quota q and window w in seconds, and a name with the remaining r and the seconds t
// until it is whole again (RFC 9651 for the syntax).
func (a Answers) draftFields(h http.Header, rate, quota *Decision) {
	var policies, standings []string
	if hasRate(rate) {
		policy := `"rate";q=` + strconv.FormatInt(rate.Limit, 10)
		if w := a.window(rate); w > 0 {
			policy += ";w=" + strconv.FormatInt(int64(w/time.Second), 10)
		}
		standing := `"rate";r=` + strconv.FormatInt(rate.Remaining, 10)
		if !rate.Allowed {
			standing += ";t=" + strconv.Itoa(ratelimit.RetryAfterSeconds(rate.RetryAfter))
		}
		policies, standings = append(policies, policy), append(standings, standing)
	}
	if hasQuota(quota) {
		name := fieldString("quota-" + quota.Terms.Feature)
		policies = append(policies, name+";q="+strconv.FormatInt(quota.Limit, 10))
		standing := name + ";r=" + strconv.FormatInt(quota.Remaining, 10)
		if !quota.Terms.ResetsAt.IsZero() {
			standing += ";t=" + strconv.FormatInt(a.untilReset(quota.Terms), 10)
		}
		standings = append(standings, standing)
	}
	if len(policies) > 0 {
		h[headerDraftPolicy] = []string{strings.Join(policies, ", ")}
		h[headerDraft] = []string{strings.Join(standings, ", ")}
	}
}

// window is the one of the plan's rate limit, or of anonymous callers'.
func (a Answers) window(rate *Decision) time.Duration {
	if a.catalog == nil || rate.Terms == nil {
		return 0
	}
	var r plans.Rate
	if rate.Terms.Plan == "" {
		r, _ = a.catalog.Anonymous()
	} else if p, ok := a.catalog.Plan(rate.Terms.Plan); ok && p.HasRate {
		r = p.Rate
	}
	return r.Window
}

// fieldString is a structured-field string: printable ASCII in quotes. Other characters become "?".
func fieldString(s string) string {
	b := make([]byte, 0, len(s)+2)
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r > '~':
			b = append(b, '?')
		default:
			b = append(b, byte(r))
		}
	}
	return string(append(b, '"'))
}
