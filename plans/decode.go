package plans

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"
)

// decoder turns the JSON form back into a catalog; words that it does not know are problems.
type decoder struct{ problems }

func (d *decoder) catalog(in jsonCatalog) *Catalog {
	c := &Catalog{
		currency: in.Currency, defaultPlan: in.DefaultPlan, quotaStatus: in.QuotaStatus, upgradeURL: in.UpgradeURL,
	}
	if in.Anonymous != nil {
		c.anonymous, c.hasAnonymous = d.rate("anonymous", *in.Anonymous), true
	}
	for _, name := range byPosition(in.Features, func(f jsonFeature) int { return f.Position }) {
		f := in.Features[name]
		c.features = append(c.features, Feature{Name: name, Meter: f.Meter, DisplayName: f.DisplayName, Unit: f.Unit, Units: f.Units})
	}
	for _, name := range byPosition(in.Plans, func(p jsonPlan) int { return p.Position }) {
		c.plans = append(c.plans, d.plan(in.Currency, name, in.Plans[name]))
	}
	return c
}

// byPosition returns the keys in the order of the file.
func byPosition[T any](m map[string]T, position func(T) int) []string {
	return slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(position(m[a]), position(m[b])), cmp.Compare(a, b))
	})
}

func (d *decoder) rate(path string, in jsonRate) Rate {
	d.word(join(path, "algorithm"), string(in.Algorithm), string(FixedWindow), string(SlidingWindow), string(TokenBucket))
	return Rate{
		Limit: in.Limit, Window: d.seconds(join(path, "window_seconds"), in.WindowSeconds, maxWindow),
		Algorithm: in.Algorithm, Burst: in.Burst, Each: d.choice(join(path, "per_node"), in.PerNode, "each", "divide"),
	}
}

func (d *decoder) plan(currency, name string, in jsonPlan) Plan {
	path := join("plans", name)
	out := Plan{
		Name: name, DisplayName: in.DisplayName, UpgradeURL: in.UpgradeURL, Interval: in.Interval,
		ForgiveOnUpgrade:   d.choice(join(path, "on_upgrade"), in.OnUpgrade, "forgive", "keep"),
		FreshAfterEarlyEnd: d.choice(join(path, "early_end"), in.EarlyEnd, "fresh", "carry"),
		NotBillable:        in.WhenNotBillable, Late: in.Late, Shadow: in.Shadow,
		PastDueGrace: d.seconds(join(path, "past_due_grace_seconds"), in.PastDueGraceSeconds, maxGrace),
		prices:       orNil(in.Prices),
	}
	d.word(join(path, "interval"), string(in.Interval), string(Monthly), string(Quarterly), string(Yearly))
	d.word(join(path, "when_not_billable"), string(in.WhenNotBillable),
		string(NotBillableByCause), string(NotBillableBlock), string(NotBillableAllow))
	d.word(join(path, "late"), string(in.Late), string(LateHold), string(LateInvoiceItem), string(LateForgive))
	if in.Rate != nil {
		out.Rate, out.HasRate = d.rate(join(path, "rate"), *in.Rate), true
	}
	for _, feature := range byPosition(in.Quota, func(q jsonQuota) int { return q.Position }) {
		at := join(join(path, "quota"), feature)
		out.quotas = append(out.quotas, d.quota(at, currency, feature, in.Quota[feature]))
	}
	return out
}

func (d *decoder) quota(path, currency, feature string, in jsonQuota) Quota {
	out := Quota{
		Feature: feature, Included: in.Included, Max: in.Max, WarnAt: orNil(in.WarnAt),
		BillOverage:             d.choice(join(path, "on_exceeded"), in.OnExceeded, "bill_overage", "block"),
		Strict:                  d.choice(join(path, "enforce"), in.Enforce, "strict", "leases"),
		PerQuantity:             d.choice(join(path, "per"), in.Per, "quantity", "subscription"),
		ContinueWithoutDatabase: d.choice(join(path, "when_database_away"), in.WhenDatabaseAway, "continue", "unavailable"),
	}
	if !out.BillOverage && in.Max != Units(0) {
		d.add(Problem{Path: join(path, "max"), Message: "is set, but the quota blocks at its included units"})
	}
	if out.BillOverage && in.Included.IsUnlimited() {
		d.add(Problem{Path: join(path, "on_exceeded"), Message: "bills overage of an unlimited quota"})
	}
	if in.Price == "" && in.PricePer == 0 {
		return out
	}
	price, err := NewPrice(in.Price, in.PricePer, currency)
	if err != nil {
		d.add(Problem{Path: join(path, "price"), Message: err.Error()})
	}
	if err == nil && price.UnitAmountDecimal() != in.UnitAmountDecimal {
		d.add(Problem{Path: join(path, "unit_amount_decimal"), Message: quote(in.UnitAmountDecimal) + " is not the price of one unit, " +
			price.UnitAmountDecimal()})
	}
	out.Price = price
	return out
}

// orNil makes an empty list what the file's reader gives for one.
func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// choice reads one of two words.
func (d *decoder) choice(path, s, yes, no string) bool {
	d.word(path, s, yes, no)
	return s == yes
}

func (d *decoder) word(path, s string, known ...string) {
	if !slices.Contains(known, s) {
		d.add(Problem{Path: path, Message: "unknown word " + quote(s), Suggestion: didYouMean(s, known)})
	}
}

// seconds reads a number of seconds that must not pass most.
func (d *decoder) seconds(path string, n int64, most time.Duration) time.Duration {
	if n < 0 || n > int64(most/time.Second) {
		d.add(Problem{Path: path, Message: strconv.FormatInt(n, 10) + " seconds are out of range"})
		return 0
	}
	return time.Duration(n) * time.Second
}
