package plans

import "slices"

// defaultThresholds are the percentages at which a customer is warned.
func defaultThresholds() []int { return []int{80, 100} }

// resolve fills in every default and reports what only the file can show: keys that are there but
// can have no effect, and keys that are missing but matter.
func (r *reader) resolve(d *draftFile) *Catalog {
	c := &d.catalog
	for i := range c.features {
		if c.features[i].DisplayName == "" {
			c.features[i].DisplayName = c.features[i].Name
		}
	}
	for i := range d.plans {
		c.plans = append(c.plans, r.resolvePlan(c, d, &d.plans[i]))
	}
	c.index()
	return c
}

func (r *reader) resolvePlan(c *Catalog, d *draftFile, p *draftPlan) Plan {
	out := p.Plan
	if out.DisplayName == "" {
		out.DisplayName = out.Name
	}
	if out.UpgradeURL == "" {
		out.UpgradeURL = c.upgradeURL
	}
	out.Shadow = d.shadow
	if p.shadow != nil {
		out.Shadow = *p.shadow
	}
	for i := range p.quotas {
		out.quotas = append(out.quotas, r.resolveQuota(c, p, &p.quotas[i]))
	}
	if out.Name == c.defaultPlan && p.settings.onExceeded == "bill_overage" {
		at := join(p.path, "on_exceeded") // also where no quota bills yet
		r.report(at, r.places[at], defaultPlanBills, suggestDefaultPlan)
	}
	if len(out.prices) == 0 && out.Name != c.defaultPlan {
		r.warn(p.path, "has no prices: no subscription selects this plan", "add prices, or give it to accounts by an override")
	}
	return out
}

func (r *reader) resolveQuota(c *Catalog, p *draftPlan, q *draftQuota) Quota {
	s := q.settings.or(p.settings)
	bills := s.onExceeded == "bill_overage"
	out := Quota{
		Feature:                 q.feature,
		Included:                q.included,
		BillOverage:             bills && !q.included.IsUnlimited(),
		WarnAt:                  s.warnAt,
		Strict:                  s.enforce == "strict",
		PerQuantity:             s.per == "quantity",
		ContinueWithoutDatabase: s.away == "continue" || s.away == "" && (bills || q.included.IsUnlimited()),
	}
	if !s.warnSet {
		out.WarnAt = defaultThresholds()
	}
	onExceeded := []string{join(q.path, "on_exceeded"), join(p.path, "on_exceeded")}
	if q.overage != nil && !out.BillOverage && !r.has(append(onExceeded, q.path, join(q.path, "included"))...) {
		r.reportOverageWithoutEffect(q)
	}
	if out.BillOverage {
		r.resolveOverage(c, q, &out)
	}
	return out
}

func (r *reader) reportOverageWithoutEffect(q *draftQuota) {
	at := join(q.path, "overage")
	if q.included.IsUnlimited() {
		r.report(at, r.places[at], "overage of an unlimited quota: nothing is ever over", "delete overage, or write a number for included")
		return
	}
	if q.overage.max != nil {
		at = join(at, "max")
	}
	r.report(at, r.places[at], "has no effect: the quota blocks at its included units",
		"write on_exceeded: bill_overage, or delete overage")
}

func (r *reader) resolveOverage(c *Catalog, q *draftQuota, out *Quota) {
	at := join(q.path, "overage")
	where := at
	if !r.placed(at) {
		where = q.path
	}
	out.Max = Unlimited()
	if q.overage != nil && q.overage.max != nil {
		out.Max = *q.overage.max
	} else if !r.has(join(at, "max")) {
		r.warn(where, "has no max: overage is unlimited", "write max: unlimited when that is meant, or a number of units")
	}
	if q.overage == nil || q.overage.price == "" {
		if !r.has(join(at, "price")) {
			r.warn(where, "has no price: it is read from the Stripe price", `write price: "0.40" and per: 1000 to have it checked`)
		}
		return
	}
	if _, known := CurrencyExponent(c.currency); !known || r.has(join(at, "per")) {
		return // reported there
	}
	price, err := NewPrice(q.overage.price, q.overage.per, c.currency)
	if err != nil {
		path := join(at, "price")
		r.report(path, r.places[path], err.Error(), "choose a per such as 1, 1_000 or 1_000_000 that divides the price")
		return
	}
	out.Price = price
	if price.UnitAmount().IsZero() {
		r.warn(join(at, "price"), "is zero: overage is admitted and costs nothing", "")
	}
}

func (r *reader) warn(path, message, suggestion string) {
	at := r.places[path]
	r.warnings.add(Problem{Line: at.line, Column: at.column, Path: path, Message: message, Suggestion: suggestion})
}

// or returns s with what it leaves out taken from the plan's settings.
func (s settings) or(plan settings) settings {
	if s.onExceeded == "" {
		s.onExceeded = plan.onExceeded
	}
	if s.enforce == "" {
		s.enforce = plan.enforce
	}
	if s.per == "" {
		s.per = plan.per
	}
	if s.away == "" {
		s.away = plan.away
	}
	if !s.warnSet {
		s.warnAt, s.warnSet = slices.Clone(plan.warnAt), plan.warnSet
	}
	return s
}
