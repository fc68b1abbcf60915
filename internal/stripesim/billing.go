package stripesim

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"
)

// billUsage adds an item's metered lines for the usage up to a time: one per
// price that was in effect. In a trial they cost nothing.
func (s *Server) billUsage(inv *invoice, it *item, until time.Time, free bool) {
	segments := it.earlier
	it.earlier = nil
	if it.price.metered() {
		segments = append(segments, segment{price: it.price, from: it.usageFrom, to: until})
	}
	for _, seg := range segments {
		p := &part{
			kind: partSubscription, item: it, price: seg.price, meter: seg.price.recurring.meter, from: seg.from, to: seg.to, free: free,
		}
		if it.swapped {
			// The price changed within the period: what comes in during the
			// grace period shows on no invoice.
			s.measure(p, until)
			p.frozen = true
		}
		inv.add(p)
	}
}

// billLicensed adds an item's fee for its current period.
func billLicensed(inv *invoice, it *item, free bool) {
	if it.price.metered() {
		return
	}
	inv.add(&part{
		kind: partSubscription, item: it, price: it.price, from: it.start, to: it.end, quantity: it.quantity, free: free, frozen: true,
	})
}

// measure reads a metered part's quantity from the meter. A total below zero
// bills as zero, on each line by itself.
func (s *Server) measure(p *part, at time.Time) {
	if p.frozen || p.item == nil || p.kind != partSubscription || p.fixed != nil {
		return
	}
	p.quantity = 0
	if p.meter != nil {
		customer := p.item.sub.customer.id
		p.quantity = max(0, s.usage(p.meter, customer, p.from, p.to, seenAt(at, s.cfg.InvoiceLag)))
	}
}

// charge is what one line of a part costs.
type charge struct {
	quantity, amount int64
	unit             decimal.Decimal
	label            string
}

// charges prices a quantity. Graduated tiers give one charge each, all else a
// single one. Amounts round half away from zero, once per line.
func charges(p *price, quantity int64) []charge {
	q := decimal.NewFromInt(quantity)
	switch p.tiersMode {
	case "graduated":
		return graduated(p.tiers, quantity)
	case "volume":
		for _, t := range p.tiers {
			if t.upTo == 0 || quantity <= t.upTo {
				amount := q.Mul(t.unitAmount)
				if quantity > 0 {
					amount = amount.Add(t.flat)
				}
				return []charge{{quantity: quantity, amount: amount.Round(0).IntPart(), unit: t.unitAmount}}
			}
		}
	}
	if p.divideBy > 0 {
		q = transformed(quantity, p.divideBy, p.round)
	}
	return []charge{{quantity: quantity, amount: q.Mul(p.unitAmount).Round(0).IntPart(), unit: p.unitAmount}}
}

// transformed divides the period's total, not single events.
func transformed(quantity, by int64, round string) decimal.Decimal {
	packages := quantity / by
	if round == "up" && quantity%by > 0 {
		packages++
	}
	return decimal.NewFromInt(packages)
}

func graduated(tiers []tier, quantity int64) []charge {
	var out []charge
	var below int64
	for i, t := range tiers {
		in := quantity - below
		if t.upTo > 0 {
			in = min(in, t.upTo-below)
		}
		if in <= 0 && i > 0 {
			break
		}
		in = max(in, 0)
		amount := decimal.NewFromInt(in).Mul(t.unitAmount)
		if in > 0 {
			amount = amount.Add(t.flat)
		}
		label := fmt.Sprintf("Tier %d", i+1)
		out = append(out, charge{quantity: in, amount: amount.Round(0).IntPart(), unit: t.unitAmount, label: label})
		below = t.upTo
	}
	return out
}

func priceTotal(p *price, quantity int64) decimal.Decimal {
	var sum int64
	for _, c := range charges(p, quantity) {
		sum += c.amount
	}
	return decimal.NewFromInt(sum)
}

// fraction is part/whole with 12 places.
func fraction(part, whole time.Duration) decimal.Decimal {
	if whole <= 0 {
		return decimal.Zero
	}
	return decimal.NewFromInt(int64(part/time.Second)).DivRound(decimal.NewFromInt(int64(whole/time.Second)), 12)
}
