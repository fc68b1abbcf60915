package plans

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Plan is one named set of conditions, every default filled in.
// A Plan is a copy: changing it changes no catalog. Its quotas are read with Quota and Quotas.
type Plan struct {
	Name        string
	DisplayName string // for people; the name when the file gives none
	UpgradeURL  string // the plan's own, else the file's; empty when neither is set

	Rate     Rate // the rate limit of Allow, when HasRate
	HasRate  bool // false: the plan has no rate limit
	Interval Interval

	ForgiveOnUpgrade   bool          // on_upgrade: forgive. An upgrade moves overage to the new allowance
	FreshAfterEarlyEnd bool          // early_end: fresh. A cut period opens a new, full allowance
	NotBillable        NotBillable   // what happens past included while nobody can be billed
	Late               Late          // what becomes of usage that missed its invoice
	PastDueGrace       time.Duration // how long a past_due subscription keeps the plan; 0: not at all
	Shadow             bool          // decide and record, refuse nothing

	prices []string
	quotas []Quota // in the order of the file
}

// Prices returns the Stripe price ids and lookup keys that select the plan, in the file's order.
func (p Plan) Prices() []string { return slices.Clone(p.prices) }

// Quota returns the plan's terms for a feature; ok is false when the plan lacks the feature.
func (p Plan) Quota(feature string) (q Quota, ok bool) {
	for i := range p.quotas {
		if p.quotas[i].Feature == feature {
			return p.quotas[i].clone(), true
		}
	}
	return Quota{}, false
}

// Quotas returns the plan's quotas in the order of the file.
func (p Plan) Quotas() []Quota {
	out := make([]Quota, len(p.quotas))
	for i := range p.quotas {
		out[i] = p.quotas[i].clone()
	}
	return out
}

// BillsOverage reports whether any quota of the plan passes its included units for money.
func (p Plan) BillsOverage() bool {
	return slices.ContainsFunc(p.quotas, func(q Quota) bool { return q.BillOverage })
}

// Quota is what a plan grants of one feature in each period, every default filled in.
type Quota struct {
	Feature     string
	Included    Amount
	BillOverage bool   // on_exceeded: bill_overage. False also when Included is unlimited
	Max         Amount // overage admitted past Included; 0 units unless BillOverage
	Price       Price  // of overage; its zero value means: read it from Stripe
	WarnAt      []int  // percent of Included, ascending; empty: no warnings

	Strict                  bool // enforce: strict. Every call is a transaction
	PerQuantity             bool // per: quantity. See ForQuantity
	ContinueWithoutDatabase bool // a spent lease goes on while the database is away
}

// ForQuantity returns the quota of a subscription whose base item has this quantity: Included and
// Max multiplied by it. A quota that is not PerQuantity accepts 1 only, anything else is a
// conflict; so is a product past the limits that a plan file has to keep.
func (q Quota) ForQuantity(quantity int64) (Quota, error) {
	if !q.PerQuantity && quantity != 1 {
		return Quota{}, fmt.Errorf("quota %s for quantity %d: the plan grants per subscription; "+
			"set per: quantity in the plan file, or the quantity to 1 at Stripe", q.Feature, quantity)
	}
	out := q.clone()
	var err error
	if out.Included, err = q.Included.Times(quantity); err != nil {
		return Quota{}, fmt.Errorf("quota %s for quantity %d: included: %w", q.Feature, quantity, err)
	}
	if out.Max, err = q.Max.Times(quantity); err != nil {
		return Quota{}, fmt.Errorf("quota %s for quantity %d: max: %w", q.Feature, quantity, err)
	}
	if reason := out.tooLarge(); reason != "" {
		return Quota{}, fmt.Errorf("quota %s for quantity %d: %s", q.Feature, quantity, reason)
	}
	return out, nil
}

// Ceiling is what may be admitted on a fresh key of a billable account: Included + Max, both at
// most what a plan file may say. A sum past int64, of a quota made by hand, is cut to the largest.
func (q Quota) Ceiling() Amount {
	if q.Included.unlimited || q.Max.unlimited {
		return Unlimited()
	}
	if q.Included.units > math.MaxInt64-q.Max.units {
		return Units(math.MaxInt64)
	}
	return Units(q.Included.units + q.Max.units)
}

// tooLarge says which limit the amounts break, or "".
func (q Quota) tooLarge() string {
	included, finite := q.Included.Units()
	if finite && included > maxIncluded {
		return fmt.Sprintf("%d included units are more than the largest count, %d (2^62)", included, maxIncluded)
	}
	if !q.BillOverage || !finite {
		return ""
	}
	limit, _ := q.Max.Units() // an unlimited max is bounded where overage is reported
	if included > maxBillable || limit > maxBillable-included {
		return fmt.Sprintf("included and max together are more than %d, the most that Stripe can bill exactly", maxBillable)
	}
	return ""
}

func (q Quota) clone() Quota {
	q.WarnAt = slices.Clone(q.WarnAt)
	return q
}

// Feature is one thing that is counted.
type Feature struct {
	Name        string
	Meter       string // event_name of its Stripe meter; empty when overage is never billed
	DisplayName string // for people; the name when the file gives none
	Unit        string // what one unit is called: "event"; empty when the file gives none
	Units       string // what several are called: "events"; empty when the file gives none, and they follow from Unit
}

// Rate is a limit of calls per window. Per node it is shared by the live nodes unless Each.
type Rate struct {
	Limit     int64         // calls per window, at least 1
	Window    time.Duration // whole seconds, 1 s to 24 h
	Algorithm Algorithm
	Burst     int64 // token bucket only: its size, at least 1; else 0
	Each      bool  // per_node: each. Every node applies the whole limit
}

// Algorithm names how a rate limit counts.
type Algorithm string

// The algorithms of a rate limit.
const (
	FixedWindow   Algorithm = "fixed_window"
	SlidingWindow Algorithm = "sliding_window"
	TokenBucket   Algorithm = "token_bucket"
)

// Late names the policy for usage that missed its invoice (billing rules, 8).
type Late string

// The policies for late usage.
const (
	LateHold        Late = "hold"         // an item for a person
	LateInvoiceItem Late = "invoice_item" // an invoice item of its own
	LateForgive     Late = "forgive"      // written off, visibly
)

// NotBillable names what happens past the included units while an account is not billable.
type NotBillable string

// The policies for accounts that are not billable (billing rules, 4).
const (
	// NotBillableByCause stops at included, except for the operator's own faults and for a renewal
	// that is not confirmed yet: those go on and are recorded.
	NotBillableByCause NotBillable = "by_cause"
	NotBillableBlock   NotBillable = "block" // stop at included, whatever the cause
	NotBillableAllow   NotBillable = "allow" // go on and record, whatever the cause
)

// Interval is the length of an allowance, cut from the subscription's anchor. A subscription
// whose own period is shorter grants one allowance per period of its own.
type Interval string

// The intervals of an allowance.
const (
	Monthly   Interval = "month"
	Quarterly Interval = "quarter"
	Yearly    Interval = "year"
)
