package stripesim

import (
	"strings"

	"github.com/shopspring/decimal"
)

const mostPlaces = 12

// decimalOf reads an amount in minor units with at most 12 places.
func (n *node) decimalOf(key string) (decimal.Decimal, bool) {
	text, ok := n.value(key)
	if !ok || text == "" {
		return decimal.Zero, false
	}
	d, err := decimal.NewFromString(text)
	if err != nil || len(text) > 40 {
		n.form.fail(invalid("Invalid decimal: %s; must contain at maximum %d decimal places.", n.path(key), mostPlaces).withParam(n.path(key)))
		return decimal.Zero, false
	}
	if -d.Exponent() > mostPlaces && !d.Truncate(mostPlaces).Equal(d) {
		n.form.fail(invalid("Invalid decimal: %s; must contain at maximum %d decimal places.", n.path(key), mostPlaces).withParam(n.path(key)))
	}
	return d, true
}

// amount reads either key or key_decimal.
func (n *node) amount(key string) (decimal.Decimal, bool) {
	whole := n.integer(key)
	exact, given := n.decimalOf(key + "_decimal")
	if whole != nil && given {
		n.form.fail(invalid("You may only specify one of these parameters: %s, %s.", n.path(key), n.path(key+"_decimal")))
	}
	if whole != nil {
		return decimal.NewFromInt(*whole), true
	}
	return exact, given
}

func (s *Server) createPrice(c *call) (object, error) {
	p, given, transfer, err := s.readPrice(c)
	if err != nil {
		return nil, err
	}
	if err := s.claimLookupKey(p.lookupKey, p, transfer); err != nil {
		return nil, err
	}
	if given != nil {
		s.storeProduct(given, "", c.now)
		p.product = given
	}
	p.record = s.newRecord("price", 24, c.now)
	s.prices.add(p)
	s.emit(c.now, "price.created", s.priceShape(p), nil)
	return s.renderPrice(p), nil
}

// readPrice returns the price, and its product when that is to be made too.
func (s *Server) readPrice(c *call) (*price, *product, bool, error) {
	in := c.in
	p := &price{
		active: in.flag("active", true), currency: strings.ToLower(in.required("currency")), lookupKey: in.limited("lookup_key", 200),
		nickname: in.str("nickname"), metadata: in.metadata(nil),
		taxBehavior: in.enum("tax_behavior", "unspecified", "unspecified", "inclusive", "exclusive"),
	}
	transfer := in.flag("transfer_lookup_key", false)
	in.ignored("currency_options")
	readAmounts(in, p)
	productID := in.str("product")
	var made *product
	if in.has("product_data") {
		made = s.readProduct(in.sub("product_data"))
	}
	meterID := ""
	if in.has("recurring") {
		p.recurring, meterID = readRecurring(in.sub("recurring"))
	}
	if (productID == "") == (made == nil) {
		c.form.fail(invalid("You must specify either `product` or `product_data` when creating a price."))
	}
	if err := c.form.finish(); err != nil {
		return nil, nil, false, err
	}
	if made == nil {
		known, ok := s.products.get(productID)
		if !ok {
			return nil, nil, false, missingParam("product", productID, "product")
		}
		p.product = known
	}
	return p, made, transfer, s.attachMeter(p, meterID, c.version)
}

func readAmounts(in *node, p *price) {
	amount, given := in.amount("unit_amount")
	p.unitAmount = amount
	scheme := in.enum("billing_scheme", "per_unit", "per_unit", "tiered")
	if t := in.sub("transform_quantity"); in.has("transform_quantity") {
		p.divideBy, p.round = t.integerOr("divide_by", 0), t.enum("round", "", "up", "down")
		if p.divideBy < 1 || p.round == "" {
			in.form.fail(invalid("transform_quantity needs a positive divide_by and round.").withParam("transform_quantity"))
		}
	}
	if scheme == "per_unit" {
		if !given {
			in.form.fail(invalid("Missing required param: unit_amount.").withCode("parameter_missing").withParam("unit_amount"))
		}
		return
	}
	p.tiersMode = in.enum("tiers_mode", "", "graduated", "volume")
	for _, each := range in.list("tiers") {
		t := tier{}
		if upTo := each.required("up_to"); upTo != "inf" {
			t.upTo = each.integerOr("up_to", 0)
		}
		t.unitAmount, _ = each.amount("unit_amount")
		t.flat, _ = each.amount("flat_amount")
		p.tiers = append(p.tiers, t)
	}
	switch {
	case p.tiersMode == "" || len(p.tiers) == 0 || len(p.tiers) > 100 || p.tiers[len(p.tiers)-1].upTo != 0:
		in.form.fail(invalid("Tiered prices need tiers_mode and 1 to 100 tiers, the last of them up to inf.").withParam("tiers"))
	case p.divideBy > 0 || given:
		in.form.fail(invalid("Tiers cannot be combined with transform_quantity or unit_amount.").withParam("tiers"))
	}
	for i := 1; i < len(p.tiers); i++ {
		if end := p.tiers[i-1].upTo; end < 1 || p.tiers[i].upTo != 0 && p.tiers[i].upTo <= end {
			in.form.fail(invalid("Tiers must be in ascending order of up_to.").withParam("tiers"))
		}
	}
}

func readRecurring(in *node) (*recurring, string) {
	r := &recurring{
		interval: in.enum("interval", "", "day", "week", "month", "year"), count: in.integerOr("interval_count", 1),
		metered: in.enum("usage_type", "licensed", "licensed", "metered") == "metered",
	}
	in.ignored("trial_period_days", "aggregate_usage")
	in.required("interval")
	if r.count < 1 || r.count > 1095 {
		in.form.fail(invalid("Invalid interval_count: %d", r.count).withParam("recurring[interval_count]"))
	}
	return r, in.str("meter")
}

// attachMeter resolves the meter of a metered price. Since 2025-03-31.basil
// there is none without.
func (s *Server) attachMeter(p *price, id string, v version) error {
	if p.recurring == nil {
		return nil
	}
	if id == "" {
		if p.recurring.metered && v.basil() {
			return invalid("Metered prices must be backed by a meter: set recurring[meter].").withParam("recurring[meter]")
		}
		return nil
	}
	m, ok := s.meters.get(id)
	if !ok {
		return missingParam("meter", id, "recurring[meter]")
	}
	if !p.recurring.metered {
		return invalid("recurring[meter] can only be set when recurring[usage_type] is metered.").withParam("recurring[meter]")
	}
	if !m.inactive.IsZero() {
		return invalid("The meter %s is inactive and cannot be attached to a price.", id).withParam("recurring[meter]")
	}
	p.recurring.meter = m
	return nil
}
