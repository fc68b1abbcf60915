package billing

import (
	"context"
	"fmt"
	"net/http"

	"github.com/weirhq/weir/plans"
)

// Amount is what a plan costs for each interval, for a price that is to be made.
type Amount struct {
	Amount   string // in whole currency units: "49.00"
	Interval string // month, quarter or year
}

// Step makes one object at Stripe. Steps only make: none deletes, archives or changes anything.
type Step struct {
	Kind string `json:"kind"` // meter, product or price
	Name string `json:"name"`
	Text string `json:"text"` // for people

	path   string
	params []string
	refs   map[string]string // parameters that are ids of objects made by earlier steps, by their names
}

// Steps lists what is to be made so that the plan file can be sold, in order. amounts has what the file does not say:
// the cost of a plan's own price, by lookup key. What steps cannot mend is a difference: it stays one until a person
// has done it. Without steps Stripe has everything.
func (o *Offer) Steps(amounts map[string]Amount) ([]Step, []Difference, error) {
	var steps []Step
	var left differences
	for _, s := range o.overages() {
		steps = append(steps, o.meterSteps(&left, s)...)
	}
	for _, p := range o.catalog.Plans() {
		more, err := o.planSteps(&left, p, amounts)
		if err != nil {
			return nil, nil, err
		}
		steps = append(steps, more...)
	}
	for name := range amounts {
		if _, ok := o.catalog.PlanForPrice(name); !ok || isPriceID(name) {
			return nil, nil, fmt.Errorf("no plan names the lookup key %q: prices are made for lookup keys of the plan file", name)
		}
	}
	return steps, left, nil
}

// meterSteps make a feature's meter, and the metered price on it.
func (o *Offer) meterSteps(left *differences, s overage) []Step {
	var steps []Step
	event, refs := s.feature.Meter, map[string]string{}
	m, ok := o.meter(event)
	switch {
	case ok:
		refs["recurring[meter]"] = m.ID
	default:
		before := len(*left)
		o.checkMeter(left, s)
		if (*left)[len(*left)-1].Kind == "meter_archived" {
			return nil
		}
		*left = (*left)[:before]
		steps = append(steps, Step{
			Kind: "meter", Name: event, Text: fmt.Sprintf("meter %s: sums the overage of %s", event, s.feature.Name), path: "/v1/billing/meters",
			params: []string{
				"display_name", s.feature.DisplayName, "event_name", event, "default_aggregation[formula]", "sum",
				"customer_mapping[type]", "by_id", "customer_mapping[event_payload_key]", "stripe_customer_id", "value_settings[event_payload_key]", "value",
			},
		})
		refs["recurring[meter]"] = "meter " + event
	}
	if len(s.prices) == 0 && len(o.metered[m.ID]) == 0 {
		left.wrong("overage_price_missing", event, "state the overage price in the plan file, or make a metered price on the meter in the Dashboard",
			"no plan states a price for %s, and no metered price is on meter %s", s.feature.Name, event)
	}
	for _, want := range s.prices {
		if o.sells(m, want) {
			continue
		}
		if p, taken := o.prices[overageKey(event, want, o.catalog.Currency())]; taken {
			left.wrong("price_archived", p.ID, "unarchive it if it is a metered price on the meter, else take its lookup key away",
				"price %s has the lookup key %s and cannot be sold on meter %s", p.ID, p.LookupKey, event)
			continue
		}
		id := meterProduct(event)
		steps = append(steps, o.productStep(left, id, s.feature.DisplayName+" beyond the plan")...)
		steps = append(steps, Step{
			Kind: "price", Name: overageKey(event, want, o.catalog.Currency()), path: "/v1/prices",
			Text: fmt.Sprintf("metered price on %s: %s (%s minor units each), monthly", event, want, want.UnitAmountDecimal()), refs: refs,
			params: []string{
				"currency", o.catalog.Currency(), "unit_amount_decimal", want.UnitAmountDecimal(), "billing_scheme", "per_unit", "product", id,
				"recurring[interval]", "month", "recurring[usage_type]", "metered",
				"lookup_key", overageKey(event, want, o.catalog.Currency()), "nickname", s.feature.DisplayName + " beyond the plan",
			},
		})
	}
	return dedupe(steps)
}

// sells reports whether an active metered price on the meter charges exactly this.
func (o *Offer) sells(m meter, want plans.Price) bool {
	for i := range o.metered[m.ID] {
		p := &o.metered[m.ID][i]
		if p.BillingScheme != "tiered" && !p.transforms() && p.metered() && p.Currency == o.catalog.Currency() && sameAmount(p.UnitAmountDecimal, want.UnitAmount()) {
			return true
		}
	}
	return false
}

// planSteps make a plan's own prices.
func (o *Offer) planSteps(left *differences, p plans.Plan, amounts map[string]Amount) ([]Step, error) {
	var steps []Step
	for _, name := range p.Prices() {
		cost, given := amounts[name]
		if _, there := o.prices[name]; there || isPriceID(name) || !given {
			if given {
				left.warn("price_kept", name, "name another lookup key in the plan file for another amount", "price %s is there already: a price never changes", name)
			}
			o.checkBase(left, p, name)
			continue
		}
		amount, err := plans.NewPrice(cost.Amount, 1, o.catalog.Currency())
		if err != nil {
			return nil, fmt.Errorf("the amount of %s: %w", name, err)
		}
		interval, n, err := recurrence(cost.Interval)
		if err != nil {
			return nil, fmt.Errorf("the interval of %s: %w", name, err)
		}
		steps = append(steps, o.productStep(left, planProduct(p.Name), p.DisplayName)...)
		steps = append(steps, Step{
			Kind: "price", Name: name, path: "/v1/prices", Text: fmt.Sprintf("price %s of plan %s: %s per %s", name, p.Name, amount, cost.Interval),
			params: []string{
				"currency", o.catalog.Currency(), "unit_amount_decimal", amount.UnitAmountDecimal(), "product", planProduct(p.Name),
				"recurring[interval]", interval, "recurring[interval_count]", n, "lookup_key", name,
			},
		})
	}
	return dedupe(steps), nil
}

func (o *Offer) productStep(left *differences, id, name string) []Step {
	if p, ok := o.products[id]; ok {
		if !p.Active {
			left.wrong("product_archived", id, "unarchive it in the Dashboard", "product %s is archived", id)
		}
		return nil
	}
	return []Step{{Kind: "product", Name: id, Text: fmt.Sprintf("product %s: %s", id, name), path: "/v1/products", params: []string{"id", id, "name", name}}}
}

func dedupe(steps []Step) []Step {
	seen := map[string]bool{}
	out := steps[:0]
	for _, s := range steps {
		if key := s.Kind + " " + s.Name; !seen[key] {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}

func recurrence(interval string) (unit, n string, err error) {
	switch interval {
	case "month", "year":
		return interval, "1", nil
	case "quarter":
		return "month", "3", nil
	}
	return "", "", fmt.Errorf("%q is none of month, quarter and year", interval)
}

// Push takes the steps, in order, and calls done after each with the id that Stripe gave it. It stops at the first that
// fails; a push that was broken off goes on by reading the Offer again. Each object has a name that Stripe keeps
// unique (an active meter's event name, a product's id, a price's lookup key), so that two pushes at once make none
// twice.
func (c *Client) Push(ctx context.Context, steps []Step, done func(s Step, id string)) error {
	made := map[string]string{}
	for _, s := range steps {
		form := values(s.params...)
		for param, ref := range s.refs {
			if id, ok := made[ref]; ok {
				ref = id
			}
			form.Add(param, ref)
		}
		out, _, err := call[struct {
			ID string `json:"id"`
		}](ctx, c, request{method: http.MethodPost, path: s.path, form: form})
		if err != nil {
			return fmt.Errorf("make %s %s: %w", s.Kind, s.Name, err)
		}
		made[s.Kind+" "+s.Name] = out.ID
		done(s, out.ID)
	}
	return nil
}
