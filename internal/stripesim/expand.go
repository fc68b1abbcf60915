package stripesim

import "strings"

const maxExpandDepth = 4

// expand replaces ids by objects along paths such as "data.items" or
// "latest_invoice.customer".
func (s *Server) expand(result object, paths []string, v version) error {
	for _, path := range paths {
		steps := strings.Split(path, ".")
		if len(steps) > maxExpandDepth {
			return invalid("You cannot expand more than %d levels of a property: %s", maxExpandDepth, path).beforeExecution()
		}
		if !s.expandIn(result, steps, v) {
			return invalid("This property cannot be expanded (%s).", path).withParam("expand").beforeExecution()
		}
	}
	return nil
}

func (s *Server) expandIn(at any, steps []string, v version) bool {
	if len(steps) == 0 {
		return true
	}
	switch at := at.(type) {
	case []any:
		for _, each := range at {
			if !s.expandIn(each, steps, v) {
				return false
			}
		}
		return true
	case object:
		if steps[0] == "tiers" && at["object"] == "price" {
			return s.expandTiers(at)
		}
		value, ok := at[steps[0]]
		if !ok {
			return false
		}
		if id, isID := value.(string); isID {
			full := s.byID(id, v)
			if full == nil {
				return false
			}
			at[steps[0]], value = full, full
		}
		if value == nil {
			return true
		}
		// A path may name a list's field or go through its data.
		if l, isList := value.(object); isList && l["object"] == "list" && len(steps) > 1 && steps[1] != "data" {
			return s.expandIn(l["data"], steps[1:], v)
		}
		return s.expandIn(value, steps[1:], v)
	}
	return false
}

func (s *Server) expandTiers(at object) bool {
	id, _ := at["id"].(string)
	p, ok := s.prices.get(id)
	if ok && p.tiersMode != "" {
		at["tiers"] = renderTiers(p.tiers)
	}
	return ok
}

// byID renders whatever object has the id.
func (s *Server) byID(id string, v version) object {
	if o, ok := s.customers.get(id); ok {
		return s.renderCustomer(o)
	}
	if o, ok := s.products.get(id); ok {
		return s.renderProduct(o)
	}
	if o, ok := s.prices.get(id); ok {
		return s.renderPrice(o)
	}
	if o, ok := s.meters.get(id); ok {
		return s.renderMeter(o)
	}
	if o, ok := s.subs.get(id); ok {
		return s.renderSubscription(o, v)
	}
	if o, ok := s.items.get(id); ok {
		return s.renderItem(o, v)
	}
	if o, ok := s.invoices.get(id); ok {
		return s.renderInvoice(o, v)
	}
	if o, ok := s.invoiceItems.get(id); ok {
		return s.renderInvoiceItem(o, v)
	}
	return nil
}
