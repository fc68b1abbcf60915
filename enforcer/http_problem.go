package enforcer

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/ratelimit"
)

// problem describes a refusal. Its members are those of the contract; used, limit, remaining and overage are told
// where they are known, limit and remaining as null when unlimited.
func (a Answers) problem(d Decision) *problem.Body {
	status := a.Status(d)
	switch d.Reason {
	case QuotaExceeded:
		p := problem.New(status, string(d.Reason), "Quota exceeded", a.quotaMessage(&d))
		describe(p, &d)
		return p
	case NotInPlan:
		p := problem.New(status, string(d.Reason), "Not in the plan", notInPlanMessage(&d))
		if d.Terms != nil {
			text(p, "plan", d.Terms.Plan)
			text(p, "feature", d.Terms.Feature)
			text(p, "upgrade_url", d.Terms.UpgradeURL)
		}
		return p
	case RateLimited:
		seconds := ratelimit.RetryAfterSeconds(d.RetryAfter)
		p := problem.New(status, string(d.Reason), "Rate limit exceeded",
			fmt.Sprintf("More calls than the limit of %d%s allows. Try again in %s.", d.Limit, per(a.window(&d)), inSeconds(seconds)))
		if d.Terms != nil {
			text(p, "plan", d.Terms.Plan)
		}
		p.Int("limit", d.Limit)
		p.Int("remaining", d.Remaining)
		p.Int("retry_after", int64(seconds))
		return p
	default:
		seconds := ratelimit.RetryAfterSeconds(d.RetryAfter)
		p := problem.New(status, string(Unavailable), "Temporarily unavailable",
			fmt.Sprintf("It can't be told now whether this call is within its limits. Nothing was counted. Try again in %s.", inSeconds(seconds)))
		if d.Terms != nil {
			describe(p, &d)
		}
		p.Int("retry_after", int64(seconds))
		return p
	}
}

// describe adds the standing of a quota.
func describe(p *problem.Body, d *Decision) {
	if d.Terms != nil {
		text(p, "plan", d.Terms.Plan)
		text(p, "feature", d.Terms.Feature)
	}
	if d.Unlimited {
		p.Null("limit")
	} else {
		p.Int("limit", d.Limit)
	}
	p.Int("used", d.Used)
	if d.Unlimited {
		p.Null("remaining")
	} else {
		p.Int("remaining", d.Remaining)
	}
	p.Int("overage", d.Overage)
	if d.Terms != nil {
		if !d.Terms.ResetsAt.IsZero() {
			p.Time("resets_at", d.Terms.ResetsAt)
		}
		text(p, "upgrade_url", d.Terms.UpgradeURL)
	}
}

func (a Answers) quotaMessage(d *Decision) string {
	feature := d.feature()
	var m string
	switch {
	case d.Unlimited:
		m = fmt.Sprintf("There is no limit on %s, but this call takes more units than a period can count.", feature)
	case d.Terms != nil && d.Terms.BillsAbove && d.Remaining == 0:
		m = fmt.Sprintf("The %d %s of this period and all that may be billed beyond them are used.", d.Limit, feature)
	case d.Remaining > 0:
		m = fmt.Sprintf("Only %d %s are left in this period, fewer than this call needs.", d.Remaining, feature)
	default:
		m = fmt.Sprintf("The %d %s of this period are used.", d.Limit, feature)
	}
	if d.Terms != nil && !d.Terms.ResetsAt.IsZero() {
		m += " The next period begins at " + d.Terms.ResetsAt.UTC().Format(time.RFC3339) + "."
	}
	return m
}

func notInPlanMessage(d *Decision) string {
	if d.Terms == nil || d.Terms.Plan == "" {
		return "The plan does not include " + d.feature() + "."
	}
	return "The plan " + d.Terms.Plan + " does not include " + d.feature() + "."
}

// per says what a limit is counted over; nothing where that is not known.
func per(window time.Duration) string {
	switch window {
	case 0:
		return ""
	case time.Second:
		return " a second"
	case time.Minute:
		return " a minute"
	case time.Hour:
		return " an hour"
	case 24 * time.Hour:
		return " a day"
	default:
		return " in " + inSeconds(int(window/time.Second))
	}
}

func inSeconds(n int) string {
	if n == 1 {
		return "1 second"
	}
	return strconv.Itoa(n) + " seconds"
}

// text adds a member unless it is empty.
func text(p *problem.Body, name, value string) {
	if value != "" {
		p.Text(name, value)
	}
}
