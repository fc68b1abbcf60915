package billing

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/plans"
)

// Difference is one place where Stripe is not what the plan file says.
type Difference struct {
	Warning bool   `json:"warning"` // legal, but perhaps not meant
	Kind    string `json:"kind"`
	Subject string `json:"subject"` // the meter, price or plan
	Message string `json:"message"`
	Next    string `json:"next"` // what to do
}

// Differences compares; what is missing is a difference too.
func (o *Offer) Differences() []Difference {
	var d differences
	for _, s := range o.overages() {
		o.checkMeter(&d, s)
	}
	for _, p := range o.catalog.Plans() {
		for _, name := range p.Prices() {
			o.checkBase(&d, p, name)
		}
	}
	return d
}

type differences []Difference

func (d *differences) wrong(kind, subject, next, format string, args ...any) {
	*d = append(*d, Difference{false, kind, subject, fmt.Sprintf(format, args...), next})
}

func (d *differences) warn(kind, subject, next, format string, args ...any) {
	*d = append(*d, Difference{true, kind, subject, fmt.Sprintf(format, args...), next})
}

const (
	nextPush = "run `worker plans push`"
	nextKey  = "use a key of the mode that the plan file is meant for, or the ids of this mode"
)

func modeName(live bool) string {
	if live {
		return "live mode"
	}
	return "test mode"
}

// checkMeter compares a feature's meter and the metered prices on it.
func (o *Offer) checkMeter(d *differences, s overage) {
	event := s.feature.Meter
	m, ok := o.meter(event)
	if !ok {
		if slices.ContainsFunc(o.meters, func(m meter) bool { return m.EventName == event }) {
			d.wrong("meter_archived", event, "reactivate it in the Dashboard", "meter %s of feature %s is archived: it accepts no usage", event, s.feature.Name)
			return
		}
		d.wrong("meter_missing", event, nextPush, "there is no meter with the event name %s, which feature %s names", event, s.feature.Name)
		return
	}
	if m.Livemode != o.live {
		d.wrong("mode", event, nextKey, "meter %s is of %s, the key of %s", event, modeName(m.Livemode), modeName(o.live))
	}
	if f := m.DefaultAggregation.Formula; f != "sum" {
		d.wrong("meter_aggregation", event, "make another meter with another event name and name it in the plan file: a meter's aggregation never changes",
			"meter %s aggregates by %s: only sum adds reports up", event, f)
	}
	if m.EventTimeWindow != "" {
		d.wrong("meter_window", event, "make another meter without a window: a meter's window never changes", "meter %s keeps one report per %s: the others would be lost", event, m.EventTimeWindow)
	}
	o.checkOverage(d, s, m)
}

// checkOverage compares the metered prices on a meter with what the file charges.
func (o *Offer) checkOverage(d *differences, s overage, m meter) {
	event, all := s.feature.Meter, o.metered[m.ID]
	for _, plan := range s.noPrice {
		d.warn("file_price", plan, "state the price in the file, so that a change at Stripe is seen", "plan %s states no overage price for %s: the price at Stripe decides", plan, s.feature.Name)
	}
	for _, plan := range s.noMax {
		d.warn("file_max", plan, "state max, so that a fault in a customer's program costs at most that", "plan %s has no maximum of overage for %s", plan, s.feature.Name)
	}
	if len(all) == 0 {
		d.wrong("overage_price_missing", event, nextPush, "no active metered price is on meter %s: nothing that is reported would be charged", event)
		return
	}
	fits := map[string]bool{}
	var bad differences
	for i := range all {
		if why := o.unfit(&bad, s, &all[i]); why {
			continue
		}
		fits[amountKey(&all[i])] = true
	}
	for _, want := range s.prices {
		if !fits[want.UnitAmountDecimal()+" "+o.catalog.Currency()] {
			d.wrong("overage_price_missing", event, nextPush+", then move subscriptions to the new price", "no active metered price on meter %s charges %s (%s minor units each)", event, want, want.UnitAmountDecimal())
		}
	}
	*d = append(*d, bad...)
	if len(fits) > 1 && len(s.prices) == 0 {
		d.warn("overage_price_many", event, "archive those that are not sold any more", "several active metered prices with different amounts are on meter %s", event)
	}
}

func amountKey(p *offered) string {
	v, err := decimal.NewFromString(p.UnitAmountDecimal)
	if err != nil {
		return ""
	}
	return v.String() + " " + p.Currency
}

// unfit reports whether nothing could be reported on a metered price, and says why. billing's own sync refuses the same.
func (o *Offer) unfit(d *differences, s overage, p *offered) bool {
	const next = "make another price with `worker plans push`, move subscriptions to it, and archive this one: a price's amounts never change"
	before := len(*d)
	if p.Livemode != o.live {
		d.wrong("mode", p.ID, nextKey, "price %s is of %s, the key of %s", p.ID, modeName(p.Livemode), modeName(o.live))
	}
	switch {
	case p.BillingScheme == "tiered" && freeFirst(p.Tiers):
		d.wrong("overage_price_free_tier", p.ID, next, "price %s charges nothing in its first tier, and only what is beyond the plan is reported: the free units would be given twice", p.ID)
	case p.BillingScheme == "tiered":
		d.wrong("overage_price_tiers", p.ID, next, "price %s has tiers that the plan file does not state", p.ID)
	case p.transforms():
		d.wrong("overage_price_transform", p.ID, next, "price %s divides quantities before it charges them (transform_quantity)", p.ID)
	case !p.metered():
		d.wrong("overage_price_licensed", p.ID, next, "price %s is not metered", p.ID)
	case len(s.prices) > 0 && p.Currency != o.catalog.Currency():
		d.wrong("overage_price_currency", p.ID, next, "price %s is in %s, the plan file in %s", p.ID, p.Currency, o.catalog.Currency())
	case len(s.prices) > 0 && !slices.ContainsFunc(s.prices, func(w plans.Price) bool { return sameAmount(p.UnitAmountDecimal, w.UnitAmount()) }):
		d.wrong("overage_price_amount", p.ID, next, "price %s charges %s minor units each, the plan file says %s: subscriptions on it are not reported", p.ID, p.UnitAmountDecimal, statedAmounts(s.prices))
	}
	return len(*d) > before
}

func statedAmounts(all []plans.Price) string {
	out := make([]string, len(all))
	for i, p := range all {
		out[i] = p.UnitAmountDecimal()
	}
	return strings.Join(out, " or ")
}

func freeFirst(tiers []tier) bool {
	if len(tiers) == 0 {
		return false
	}
	zero := func(s string) bool {
		v, err := decimal.NewFromString(s)
		return s == "" || err == nil && v.IsZero()
	}
	return zero(tiers[0].Amount) && zero(tiers[0].Flat)
}

// checkBase compares a price that selects a plan.
func (o *Offer) checkBase(d *differences, plan plans.Plan, name string) {
	if said, ok := o.errors[name]; ok {
		if strings.Contains(said, "a similar object exists in") {
			d.wrong("mode", name, nextKey, "price %s of plan %s is not of %s, the key's: %s", name, plan.Name, modeName(o.live), said)
			return
		}
		d.wrong("price_missing", name, "correct the id in the plan file", "plan %s names price %s, which does not exist", plan.Name, name)
		return
	}
	p, ok := o.prices[name]
	if !ok {
		d.wrong("price_missing", name, "run `worker plans push --price "+name+"=AMOUNT/month`, or give an existing price this lookup key", "plan %s names the lookup key %s, which no price has", plan.Name, name)
		return
	}
	if p.Livemode != o.live {
		d.wrong("mode", name, nextKey, "price %s is of %s, the key of %s", name, modeName(p.Livemode), modeName(o.live))
	}
	if !p.Active {
		d.wrong("price_archived", name, "unarchive it, or name another price: existing subscriptions keep it, new ones cannot", "price %s of plan %s is archived", name, plan.Name)
	}
	if p.Recurring == nil {
		d.wrong("price_once", name, "name a recurring price", "price %s of plan %s is charged once: no subscription can have it", name, plan.Name)
	}
	if p.metered() {
		d.wrong("price_metered", name, "name the plan's flat price: the metered one is found by its meter", "price %s, which selects plan %s, is metered", name, plan.Name)
	}
	if pr, ok := o.products[string(p.Product)]; ok && !pr.Active {
		d.wrong("product_archived", name, "unarchive it in the Dashboard", "product %s of price %s is archived", pr.ID, name)
	}
}
