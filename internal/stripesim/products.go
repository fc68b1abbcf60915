package stripesim

import "time"

type product struct {
	record
	name, description, unitLabel string
	active                       bool
	metadata                     map[string]string
	updated                      time.Time
	defaultPrice                 string
}

func (s *Server) renderProduct(p *product) object {
	return object{
		"id": p.id, "object": "product", "active": p.active, "created": p.created.Unix(), "default_price": nullable(p.defaultPrice),
		"description": nullable(p.description), "images": []string{}, "livemode": s.live(), "marketing_features": []any{},
		"metadata": pairs(p.metadata), "name": p.name, "package_dimensions": nil, "shippable": nil, "statement_descriptor": nil,
		"tax_code": nil, "type": "service", "unit_label": nullable(p.unitLabel), "updated": p.updated.Unix(), "url": nil,
	}
}

func (s *Server) productShape(p *product) render {
	return func(version) object { return s.renderProduct(p) }
}

func (s *Server) createProduct(c *call) (object, error) {
	p := s.readProduct(c.in)
	id := c.in.str("id")
	c.in.ignored("type", "tax_code", "statement_descriptor", "images", "shippable", "url")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if _, taken := s.products.get(id); taken {
		return nil, invalid("Product already exists.").withCode("resource_already_exists").withParam("id")
	}
	s.storeProduct(p, id, c.now)
	return s.renderProduct(p), nil
}

func (s *Server) readProduct(in *node) *product {
	return &product{
		name: in.required("name"), description: in.str("description"), unitLabel: in.str("unit_label"),
		active: in.flag("active", true), metadata: in.metadata(nil),
	}
}

func (s *Server) storeProduct(p *product, id string, at time.Time) {
	p.record = s.newRecord("prod", 14, at)
	if id != "" {
		p.id = id
	}
	p.updated = at
	s.products.add(p)
	s.emit(at, "product.created", s.productShape(p), nil)
}

func (s *Server) getProduct(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	p, ok := s.products.get(c.pathID())
	if !ok {
		return nil, missing("product", c.pathID())
	}
	return s.renderProduct(p), nil
}

func (s *Server) updateProduct(c *call) (object, error) {
	p, ok := s.products.get(c.pathID())
	if !ok {
		return nil, missing("product", c.pathID())
	}
	next := *p
	next.metadata, next.active = c.in.metadata(p.metadata), c.in.flag("active", p.active)
	for key, field := range map[string]*string{
		"name": &next.name, "description": &next.description, "unit_label": &next.unitLabel, "default_price": &next.defaultPrice,
	} {
		if text, ok := c.in.value(key); ok {
			*field = text
		}
	}
	c.in.ignored("tax_code", "statement_descriptor", "images", "shippable", "url")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	before := s.take(s.productShape(p))
	next.updated = c.now
	*p = next
	s.emit(c.now, "product.updated", s.productShape(p), before)
	return s.renderProduct(p), nil
}

// deleteProduct works for products without prices only.
func (s *Server) deleteProduct(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	p, ok := s.products.get(c.pathID())
	if !ok {
		return nil, missing("product", c.pathID())
	}
	for _, price := range s.prices.rows {
		if price.product == p {
			return nil, invalid("This product cannot be deleted because it has one or more user-created prices.")
		}
	}
	s.emit(c.now, "product.deleted", s.productShape(p), nil)
	s.products.remove(p.id)
	return object{"id": p.id, "object": "product", "deleted": true}, nil
}

func (s *Server) listProducts(c *call) (object, error) {
	l, active, ids := c.in.listing(), c.in.boolean("active"), c.in.texts("ids")
	within := c.in.span("created")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(p *product) bool {
		return (active == nil || *active == p.active) && within(p.created) && (len(ids) == 0 || contains(ids, p.id))
	}
	page, more, err := newestFirst(l, s.products.rows, s.products.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/products", page, more, s.renderProduct), nil
}
