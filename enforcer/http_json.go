package enforcer

import (
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/edge/problem"
)

// AppendJSON appends what MarshalJSON writes, in printable ASCII, without its cost.
func (d Decision) AppendJSON(b []byte) []byte {
	b = append(b, `{"allowed":`...)
	b = strconv.AppendBool(b, d.Allowed)
	b = append(b, `,"reason":`...)
	b = problem.AppendString(b, string(d.Reason))
	if t := d.Terms; t != nil {
		if t.Plan != "" {
			b = append(b, `,"plan":`...)
			b = problem.AppendString(b, t.Plan)
		}
		if t.Feature != "" {
			b = append(b, `,"feature":`...)
			b = problem.AppendString(b, t.Feature)
		}
	}
	b = append(b, `,"limit":`...)
	b = d.appendLimit(b, d.Limit)
	b = append(b, `,"used":`...)
	b = strconv.AppendInt(b, d.Used, 10)
	b = append(b, `,"remaining":`...)
	b = d.appendLimit(b, d.Remaining)
	b = append(b, `,"overage":`...)
	b = strconv.AppendInt(b, d.Overage, 10)
	if d.Terms != nil && !d.Terms.ResetsAt.IsZero() {
		b = append(b, `,"resets_at":"`...)
		b = d.Terms.ResetsAt.UTC().AppendFormat(b, time.RFC3339)
		b = append(b, '"')
	}
	if s := d.RetryAfter.Seconds(); s != 0 {
		b = append(b, `,"retry_after":`...)
		b = strconv.AppendFloat(b, s, 'f', -1, 64)
	}
	return append(b, '}')
}

func (d *Decision) appendLimit(b []byte, n int64) []byte {
	if d.Unlimited {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, n, 10)
}

// Features names every feature that a plan of the published catalog knows, in the order of the plan file. It is nil
// before Start, and empty where plans have rates alone.
func (e *Enforcer) Features() []string {
	c := e.catalog.Load()
	if c == nil {
		return nil
	}
	all := c.Features()
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = f.Name
	}
	return names
}

// Standing tells what this node knows of an account's quota from memory: it asks nobody and counts nothing. known is
// false for an account or a feature that it has not met in the running period. The decision is allowed.
func (e *Enforcer) Standing(account, feature string) (d Decision, known bool) {
	a, ok := e.accounts.Load(account)
	i := e.features.Load().index(feature)
	if !ok || i < 0 {
		return Decision{}, false
	}
	s := a.at(i)
	if s == nil {
		return Decision{}, false
	}
	c := s.cur.Load()
	if c == nil || e.clock.now() >= c.end.Load() {
		return Decision{}, false
	}
	return c.view.Load().decide(c.total()), true
}
