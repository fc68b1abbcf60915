package plans

import (
	"fmt"
	"time"
)

const (
	defaultGrace = 7 * 24 * time.Hour

	statusPaymentRequired = 402
	statusForbidden       = 403
)

// settings are the keys that a plan sets for all its quotas and a quota may override.
type settings struct {
	onExceeded string
	enforce    string
	per        string
	away       string
	warnAt     []int
	warnSet    bool
}

type draftPlan struct {
	Plan
	path     string
	settings settings
	quotas   []draftQuota
	shadow   *bool
}

type draftQuota struct {
	path     string
	feature  string
	included Amount
	settings settings
	overage  *draftOverage
}

type draftOverage struct {
	price string
	per   int64
	max   *Amount
}

func (r *reader) plan(path string, f field) draftPlan {
	out := draftPlan{path: path, Plan: Plan{
		Name: f.key, Interval: Monthly, Late: LateHold, NotBillable: NotBillableByCause, PastDueGrace: defaultGrace,
	}}
	keys := []key{
		{"display_name", func(path string, n *node) { out.DisplayName = r.required(path, n, "a name for people") }},
		{"prices", func(path string, n *node) { out.prices = r.prices(path, n) }},
		{"rate", func(path string, n *node) { out.Rate, out.HasRate = r.rate(path, n), true }},
		{"quota", func(path string, n *node) {
			r.entries(path, n, "a mapping of features", func(f field, path string) {
				out.quotas = append(out.quotas, r.quota(path, f))
			})
		}},
		{"interval", func(path string, n *node) {
			out.Interval = Interval(r.word(path, n, string(Monthly), string(Quarterly), string(Yearly)))
		}},
		{"on_upgrade", func(path string, n *node) { out.ForgiveOnUpgrade = r.word(path, n, "keep", "forgive") == "forgive" }},
		{"early_end", func(path string, n *node) { out.FreshAfterEarlyEnd = r.word(path, n, "carry", "fresh") == "fresh" }},
		{"when_not_billable", func(path string, n *node) {
			out.NotBillable = NotBillable(r.word(path, n, string(NotBillableByCause), string(NotBillableBlock), string(NotBillableAllow)))
		}},
		{"late", func(path string, n *node) {
			out.Late = Late(r.word(path, n, string(LateHold), string(LateInvoiceItem), string(LateForgive)))
		}},
		{"past_due_grace", func(path string, n *node) { out.PastDueGrace = r.duration(path, n) }},
		{"shadow", func(path string, n *node) { v := r.flag(path, n); out.shadow = &v }},
		{"upgrade_url", func(path string, n *node) { out.UpgradeURL = r.required(path, n, "a URL") }},
	}
	r.mapping(path, f.value, append(keys, r.settingKeys(&out.settings)...))
	return out
}

func (r *reader) settingKeys(s *settings) []key {
	return []key{
		{"on_exceeded", func(path string, n *node) { s.onExceeded = r.word(path, n, "block", "bill_overage") }},
		{"warn_at", func(path string, n *node) { s.warnAt, s.warnSet = r.thresholds(path, n), true }},
		{"enforce", func(path string, n *node) { s.enforce = r.word(path, n, "leases", "strict") }},
		{"per", func(path string, n *node) { s.per = r.word(path, n, "subscription", "quantity") }},
		{"when_database_away", func(path string, n *node) { s.away = r.word(path, n, "unavailable", "continue") }},
	}
}

func (r *reader) quota(path string, f field) draftQuota {
	out := draftQuota{path: path, feature: f.key}
	if f.value.kind != kindMapping {
		out.included, _ = r.amount(path, f.value)
		return out
	}
	included := false
	keys := []key{
		{"included", func(path string, n *node) { out.included, _ = r.amount(path, n); included = true }},
		{"overage", func(path string, n *node) { out.overage = r.overage(path, n) }},
	}
	r.mapping(path, f.value, append(keys, r.settingKeys(&out.settings)...))
	if !included {
		r.report(path, f.at, "has no included", "write included: 0 when nothing is included, or unlimited")
	}
	return out
}

func (r *reader) overage(path string, n *node) *draftOverage {
	out := &draftOverage{per: 1}
	r.mapping(path, n, []key{
		{"price", func(path string, n *node) { out.price = r.price(path, n) }},
		{"per", func(path string, n *node) {
			v, ok := r.count(path, n)
			if ok && (v < 1 || v > maxPer) {
				r.report(path, n.at, fmt.Sprintf("%d is not between 1 and %d", v, maxPer), "write how many units the price buys, such as 1000")
			}
			out.per = v
		}},
		{"max", func(path string, n *node) {
			if v, ok := r.amount(path, n); ok {
				out.max = &v
			}
		}},
	})
	if out.price == "" && r.placed(join(path, "per")) && !r.placed(join(path, "price")) {
		r.report(join(path, "per"), r.places[join(path, "per")], "per without a price", `write price: "0.40", or delete per`)
	}
	return out
}

func (r *reader) placed(path string) bool {
	_, ok := r.places[path]
	return ok
}

// price reads a decimal string. Without quotes YAML makes it a float, which no money may pass through.
func (r *reader) price(path string, n *node) string {
	s, ok := r.scalar(path, n, `a price in quotes such as "0.40"`)
	switch {
	case !ok:
		return ""
	case !n.quoted:
		message, suggestion := quote(s)+" is not a price", `write a decimal in quotes, such as "0.40"`
		if isDecimal(s) {
			message, suggestion = s+" is a number, and money is text", "write "+quote(s)+", with the quotes"
		}
		r.report(path, n.at, message, suggestion)
		return ""
	case !isDecimal(s):
		r.report(path, n.at, quote(s)+" is not a price", `write digits with at most 9 before and 12 after the point, such as "0.40"`)
		return ""
	}
	return s
}

func (r *reader) prices(path string, n *node) []string {
	if n.kind != kindList {
		r.report(path, n.at, "is "+n.kind.String()+", not a list of Stripe price ids or lookup keys", "write [pro_monthly]")
		return nil
	}
	var out []string
	for i, item := range n.items {
		at := index(path, i)
		r.places[at] = item.at
		out = append(out, r.text(at, item, "a Stripe price id or lookup key"))
	}
	return out
}

func (r *reader) thresholds(path string, n *node) []int {
	if n.kind != kindList {
		r.report(path, n.at, "is "+n.kind.String()+", not a list of percentages", "write [80, 100], or [] for no warnings")
		return nil
	}
	var out []int
	for i, item := range n.items {
		at := index(path, i)
		r.places[at] = item.at
		v, _ := r.count(at, item)
		out = append(out, int(min(v, maxThreshold+1)))
	}
	return out
}
