package enforcer

import (
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// viewOf makes the view of a loaded key.
func viewOf(k *usage.Key, catalog *plans.Catalog) *view {
	t := &Terms{
		Plan: k.Plan, Feature: k.Feature, StartsAt: k.Starts.UTC(), ResetsAt: k.Ends.UTC(),
		BillsAbove: k.BillsOverage(), Unlimited: k.Included == nil, Maximum: -1, Shadow: k.Shadow,
	}
	if k.Included != nil {
		t.Included = *k.Included
	}
	if k.Maximum != nil {
		t.Maximum = *k.Maximum
	}
	if catalog != nil {
		t.UpgradeURL = catalog.UpgradeURL()
		if p, ok := catalog.Plan(k.Plan); ok {
			t.Shadow = t.Shadow || p.Shadow
			if p.UpgradeURL != "" {
				t.UpgradeURL = p.UpgradeURL
			}
		}
	}
	return &view{
		terms: t, limit: t.Included, unlimited: t.Unlimited, inPlan: k.InPlan, strict: k.Enforce == "strict", proceed: k.WhenAway == "continue", ceiling: k.Ceiling,
		others: k.Others, folded: k.Folded, free: k.Free, overage: k.Overage, adjusted: k.Adjusted,
	}
}

// with returns the view with newer figures. Answers may arrive in another order than they were read: what other
// nodes stored never falls, so the larger one stands.
func (v *view) with(f usage.Figures) *view {
	n := *v
	n.others = max(v.others, f.Others)
	n.folded, n.free, n.overage, n.adjusted = f.Folded, f.Free, f.Overage, f.Adjusted
	return &n
}
