package plans

import (
	"fmt"
	"time"
)

func (k *checker) plans() {
	c := k.c
	switch {
	case len(c.plans) == 0:
		k.report("plans", "there is no plan", "write at least the default plan")
	case len(c.plans) > maxPlans:
		k.report("plans", fmt.Sprintf("%d plans are more than %d", len(c.plans), maxPlans), "")
	}
	names := make([]string, len(c.features))
	for i, f := range c.features {
		names[i] = f.Name
	}
	for i := range c.plans {
		k.plan(i, names)
	}
}

func (k *checker) plan(i int, features []string) {
	p := k.c.plans[i]
	path := join("plans", p.Name)
	k.name(path, "plan", p.Name)
	k.displayName(path, p.Name, p.DisplayName)
	if p.UpgradeURL != k.c.upgradeURL { // else the file's, which is looked at once
		k.url(join(path, "upgrade_url"), p.UpgradeURL)
	}
	k.prices(i, join(path, "prices"))
	if p.HasRate {
		k.rate(join(path, "rate"), p.Rate)
	}
	if p.PastDueGrace < 0 || p.PastDueGrace > maxGrace || p.PastDueGrace%time.Second != 0 {
		k.report(join(path, "past_due_grace"), durationText(p.PastDueGrace)+" is not a grace: whole seconds, 0s to 90d", "write 7d")
	}
	for _, q := range p.quotas {
		k.quota(path, q, features)
	}
}

func (k *checker) prices(i int, path string) {
	p := k.c.plans[i]
	if len(p.prices) > maxPrices {
		k.report(path, fmt.Sprintf("%d prices are more than %d", len(p.prices), maxPrices), "")
	}
	seen := make(map[string]bool, len(p.prices))
	for j, id := range p.prices {
		at := index(path, j)
		if k.has(at) {
			continue
		}
		if id == "" {
			k.report(at, "is empty", "write a Stripe price id or lookup key")
			continue
		}
		k.token(at, "price", id, maxPriceIDBytes)
		if seen[id] {
			k.report(at, quote(id)+" is listed twice", "delete one of them")
			continue
		}
		seen[id] = true
		if other := k.c.priceAt[id]; other != i {
			k.report(at, fmt.Sprintf("%s already selects the plan %s", quote(id), quote(k.c.plans[other].Name)),
				"a price selects one plan: delete one of them")
		}
	}
}

func (k *checker) rate(path string, r Rate) {
	if k.has(path) {
		return
	}
	limit, window, burst := join(path, "limit"), join(path, "window"), join(path, "burst")
	if r.Limit < 1 || r.Limit > maxRateLimit {
		message := fmt.Sprintf("%d is not between 1 and %d", r.Limit, maxRateLimit)
		if !k.written(limit) {
			message = "is missing"
		}
		k.report(limit, message, "write the calls per window; leave the whole rate out for no rate limit")
	}
	if r.Window < minWindow || r.Window > maxWindow || r.Window%time.Second != 0 {
		message := durationText(r.Window) + " is not a window: whole seconds, 1s to 24h"
		if !k.written(window) {
			message = "is missing"
		}
		k.report(window, message, "write 1s, 1m, 1h or 24h")
	}
	switch {
	case k.has(join(path, "algorithm")):
	case r.Algorithm == TokenBucket && !k.has(limit) && (r.Burst < 1 || r.Burst > maxRateLimit):
		k.report(burst, fmt.Sprintf("%d is not between 1 and %d", r.Burst, maxRateLimit), "write how many calls may come at once")
	case r.Algorithm != TokenBucket && (r.Burst != 0 || k.places != nil && k.written(burst)):
		k.report(burst, "has no effect with "+string(r.Algorithm), "write algorithm: token_bucket, or delete burst")
	}
}

// written reports whether the file has the key; of a catalog without places nothing is missing.
func (k *checker) written(path string) bool {
	if k.places == nil {
		return true
	}
	_, ok := k.places[path]
	return ok
}

func (k *checker) quota(plan string, q Quota, features []string) {
	path := join(join(plan, "quota"), q.Feature)
	f, ok := k.c.Feature(q.Feature)
	if !ok && k.has("features") {
		return // they could not be read
	}
	if !ok {
		at := k.places[path] // also when its value has a problem: they are two mistakes
		k.add(Problem{
			Line: at.line, Column: at.column, Path: path,
			Message: "unknown feature " + quote(q.Feature), Suggestion: k.suggestFeature(q.Feature, features),
		})
		return
	}
	if q.BillOverage && f.Meter == "" && !k.has(join(join("features", q.Feature), "meter")) {
		k.report(path, fmt.Sprintf("bills overage, but the feature %s has no meter", quote(q.Feature)),
			"write the event_name of a Stripe meter as "+join(join("features", q.Feature), "meter")+", or on_exceeded: block")
	}
	if reason := q.tooLarge(); reason != "" {
		k.report(k.largest(path, q), reason, "write a smaller number, or unlimited")
	}
	k.thresholds(plan, path, q.WarnAt)
}

// largest is where the amount is written that breaks a limit.
func (k *checker) largest(path string, q Quota) string {
	included, limit := join(path, "included"), join(join(path, "overage"), "max")
	switch {
	case q.BillOverage && q.Included.units <= maxBillable && k.written(limit):
		return limit
	case k.written(included):
		return included
	}
	return path // the short form
}

func (k *checker) suggestFeature(name string, features []string) string {
	if len(features) == 0 {
		return "declare it under features"
	}
	return k.suggest(name, features)
}

// thresholds are checked where they are written: in the quota, else in the plan.
func (k *checker) thresholds(plan, quota string, at []int) {
	path := join(quota, "warn_at")
	if k.places != nil && !k.written(path) {
		path = join(plan, "warn_at")
	}
	if k.has(path) {
		return
	}
	if len(at) > maxThresholds {
		k.report(path, fmt.Sprintf("%d thresholds are more than %d", len(at), maxThresholds), "keep the ones that matter")
		return
	}
	for i, percent := range at {
		entry := index(path, i)
		if k.has(entry) {
			return
		}
		if percent < 1 || percent > maxThreshold {
			k.report(entry, fmt.Sprintf("the threshold is not between 1 and %d percent", maxThreshold), "write [80, 100]")
			return
		}
		if i > 0 && percent <= at[i-1] {
			k.report(entry, fmt.Sprintf("%d comes after %d: thresholds ascend", percent, at[i-1]), "sort them, each once")
			return
		}
	}
}

// priceWarnings finds meters whose overage has two stated prices: a subscription that moves
// between them swaps its metered price, and Stripe's classic billing drops the usage so far.
func (c *Catalog) priceWarnings(places map[string]place) []Problem {
	type stated struct {
		plan  string
		price Price
	}
	first := make(map[string]stated)
	var out []Problem
	for _, p := range c.plans {
		for _, q := range p.quotas {
			if !q.BillOverage || q.Price.FromStripe() {
				continue
			}
			before, seen := first[q.Feature]
			if !seen {
				first[q.Feature] = stated{p.Name, q.Price}
				continue
			}
			if before.price.Equal(q.Price) {
				continue
			}
			path := join(join(join(join("plans", p.Name), "quota"), q.Feature), "overage")
			out = append(out, Problem{
				Line: places[path].line, Column: places[path].column, Path: path,
				Message:    fmt.Sprintf("costs %s, in %s it is %s", q.Price, quote(before.plan), before.price),
				Suggestion: "use one price per meter: changing a subscription's metered price can lose its usage at Stripe",
			})
		}
	}
	return out
}
