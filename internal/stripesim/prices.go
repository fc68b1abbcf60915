package stripesim

import (
	"slices"

	"github.com/shopspring/decimal"
)

type price struct {
	record
	product     *product
	active      bool
	currency    string
	unitAmount  decimal.Decimal // in minor units; unused with tiers
	tiers       []tier
	tiersMode   string // "", "graduated" or "volume"
	divideBy    int64  // transform_quantity; 0 without
	round       string
	lookupKey   string
	nickname    string
	metadata    map[string]string
	taxBehavior string
	recurring   *recurring // nil for one-time prices
}

type recurring struct {
	interval string
	count    int64
	metered  bool
	meter    *meter // nil for legacy metered prices too
}

type tier struct {
	upTo       int64 // 0: without end
	unitAmount decimal.Decimal
	flat       decimal.Decimal
}

func (p *price) metered() bool { return p.recurring != nil && p.recurring.metered }

func contains(list []string, text string) bool { return slices.Contains(list, text) }

// minor is an amount for unit_amount: null when it has fractions of a cent.
func minor(d decimal.Decimal) any {
	if !d.IsInteger() {
		return nil
	}
	return d.IntPart()
}

// renderPrice leaves tiers out: they are shown by expansion only.
func (s *Server) renderPrice(p *price) object {
	out := object{
		"id": p.id, "object": "price", "active": p.active, "billing_scheme": "per_unit", "created": p.created.Unix(),
		"currency": p.currency, "custom_unit_amount": nil, "livemode": s.live(), "lookup_key": nullable(p.lookupKey),
		"metadata": pairs(p.metadata), "nickname": nullable(p.nickname), "product": p.product.id, "recurring": nil,
		"tax_behavior": p.taxBehavior, "tiers_mode": nil, "transform_quantity": nil, "type": "one_time",
		"unit_amount": minor(p.unitAmount), "unit_amount_decimal": p.unitAmount.String(),
	}
	if p.divideBy > 0 {
		out["transform_quantity"] = object{"divide_by": p.divideBy, "round": p.round}
	}
	if p.tiersMode != "" {
		out["billing_scheme"], out["tiers_mode"] = "tiered", p.tiersMode
		out["unit_amount"], out["unit_amount_decimal"] = nil, nil
	}
	if r := p.recurring; r != nil {
		out["type"] = "recurring"
		out["recurring"] = renderRecurring(r)
	}
	return out
}

func renderRecurring(r *recurring) object {
	out := object{
		"aggregate_usage": nil, "interval": r.interval, "interval_count": r.count, "meter": nil,
		"trial_period_days": nil, "usage_type": "licensed",
	}
	if r.metered {
		out["usage_type"] = "metered"
		if r.meter != nil {
			out["meter"] = r.meter.id
		} else {
			out["aggregate_usage"] = "sum"
		}
	}
	return out
}

func renderTiers(tiers []tier) []any {
	out := make([]any, 0, len(tiers))
	for _, t := range tiers {
		each := object{
			"flat_amount": nil, "flat_amount_decimal": nil, "unit_amount": minor(t.unitAmount),
			"unit_amount_decimal": t.unitAmount.String(), "up_to": nil,
		}
		if t.upTo > 0 {
			each["up_to"] = t.upTo
		}
		if !t.flat.IsZero() {
			each["flat_amount"], each["flat_amount_decimal"] = minor(t.flat), t.flat.String()
		}
		out = append(out, each)
	}
	return out
}

// renderPlan is the older face of a recurring price, still shown on items.
func (s *Server) renderPlan(p *price) object {
	out := object{
		"id": p.id, "object": "plan", "active": p.active, "aggregate_usage": nil, "amount": minor(p.unitAmount),
		"amount_decimal": p.unitAmount.String(), "billing_scheme": "per_unit", "created": p.created.Unix(), "currency": p.currency,
		"interval": p.recurring.interval, "interval_count": p.recurring.count, "livemode": s.live(), "meter": nil,
		"metadata": pairs(p.metadata), "nickname": nullable(p.nickname), "product": p.product.id, "tiers_mode": nullable(p.tiersMode),
		"transform_usage": nil, "trial_period_days": nil, "usage_type": "licensed",
	}
	if p.tiersMode != "" {
		out["billing_scheme"], out["amount"], out["amount_decimal"] = "tiered", nil, nil
	}
	if p.metered() {
		out["usage_type"] = "metered"
		if p.recurring.meter != nil {
			out["meter"] = p.recurring.meter.id
		}
	}
	return out
}

func (s *Server) priceShape(p *price) render {
	return func(version) object { return s.renderPrice(p) }
}

func (s *Server) getPrice(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	p, ok := s.prices.get(c.pathID())
	if !ok {
		return nil, missing("price", c.pathID())
	}
	return s.renderPrice(p), nil
}

func (s *Server) updatePrice(c *call) (object, error) {
	p, ok := s.prices.get(c.pathID())
	if !ok {
		return nil, missing("price", c.pathID())
	}
	next := *p
	next.metadata, next.active = c.in.metadata(p.metadata), c.in.flag("active", p.active)
	for key, field := range map[string]*string{"nickname": &next.nickname, "lookup_key": &next.lookupKey, "tax_behavior": &next.taxBehavior} {
		if text, ok := c.in.value(key); ok {
			*field = text
		}
	}
	transfer := c.in.flag("transfer_lookup_key", false)
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if err := s.claimLookupKey(next.lookupKey, p, transfer); err != nil {
		return nil, err
	}
	before := s.take(s.priceShape(p))
	*p = next
	s.emit(c.now, "price.updated", s.priceShape(p), before)
	return s.renderPrice(p), nil
}

// claimLookupKey refuses a key that another price holds, or takes it away.
func (s *Server) claimLookupKey(key string, by *price, transfer bool) error {
	if key == "" {
		return nil
	}
	for _, other := range s.prices.rows {
		if other == by || other.lookupKey != key {
			continue
		}
		if !transfer {
			return invalid("A price (`%s`) already uses that lookup key.", other.id).withParam("lookup_key")
		}
		other.lookupKey = ""
	}
	return nil
}

func (s *Server) listPrices(c *call) (object, error) {
	l, active, product := c.in.listing(), c.in.boolean("active"), c.in.str("product")
	currency, keys, kind := c.in.str("currency"), c.in.texts("lookup_keys"), c.in.enum("type", "", "one_time", "recurring")
	within, rec := c.in.span("created"), c.in.sub("recurring")
	interval, usage, meterID := rec.str("interval"), rec.enum("usage_type", "", "licensed", "metered"), rec.str("meter")
	if len(keys) > 10 {
		c.form.fail(invalid("Invalid array: lookup_keys can have at most 10 elements.").withParam("lookup_keys"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(p *price) bool {
		if active != nil && *active != p.active || product != "" && p.product.id != product || currency != "" && p.currency != currency {
			return false
		}
		if len(keys) > 0 && (p.lookupKey == "" || !contains(keys, p.lookupKey)) || !within(p.created) {
			return false
		}
		if kind != "" && (kind == "recurring") != (p.recurring != nil) {
			return false
		}
		if interval == "" && usage == "" && meterID == "" {
			return true
		}
		r := p.recurring
		return r != nil && (interval == "" || interval == r.interval) && (usage == "" || (usage == "metered") == r.metered) &&
			(meterID == "" || r.meter != nil && r.meter.id == meterID)
	}
	page, more, err := newestFirst(l, s.prices.rows, s.prices.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/prices", page, more, s.renderPrice), nil
}
