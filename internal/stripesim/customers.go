package stripesim

import (
	"time"
)

type customer struct {
	record
	email, name, description string
	metadata                 map[string]string
	deleted                  bool
	currency                 string
	subs                     []*subscription
	invoices                 []*invoice
	pending                  []*invoiceItem // not yet on an invoice
	invoiceNumber            int
}

func (s *Server) renderCustomer(cus *customer) object {
	if cus.deleted {
		return object{"id": cus.id, "object": "customer", "deleted": true}
	}
	return object{
		"id": cus.id, "object": "customer", "address": nil, "balance": 0, "created": cus.created.Unix(),
		"currency": nullable(cus.currency), "default_source": nil, "delinquent": s.declined[cus.id],
		"description": nullable(cus.description), "discount": nil, "email": nullable(cus.email),
		"invoice_settings": object{"custom_fields": nil, "default_payment_method": nil, "footer": nil},
		"livemode":         s.live(), "metadata": pairs(cus.metadata), "name": nullable(cus.name), "phone": nil,
		"preferred_locales": []string{}, "shipping": nil, "tax_exempt": "none", "test_clock": nil,
	}
}

func (s *Server) customerShape(cus *customer) render {
	return func(version) object { return s.renderCustomer(cus) }
}

// ignored reads parameters that Stripe takes and the simulator has no use for.
func (n *node) ignored(keys ...string) {
	for _, key := range keys {
		if kid, ok := n.kids[key]; ok {
			kid.readAll()
		}
	}
}

func (n *node) readAll() {
	n.used = true
	for _, kid := range n.kids {
		kid.readAll()
	}
}

func (s *Server) createCustomer(c *call) (object, error) {
	cus := &customer{email: c.in.str("email"), name: c.in.str("name"), description: c.in.str("description"), metadata: c.in.metadata(nil)}
	c.in.ignored("payment_method", "invoice_settings", "address", "phone", "source", "tax", "test_clock")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cus.record = s.newRecord("cus", 14, c.now)
	s.customers.add(cus)
	s.emit(c.now, "customer.created", s.customerShape(cus), nil)
	return s.renderCustomer(cus), nil
}

func (s *Server) getCustomer(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cus, ok := s.customers.get(c.pathID())
	if !ok {
		return nil, missing("customer", c.pathID())
	}
	return s.renderCustomer(cus), nil
}

func (s *Server) updateCustomer(c *call) (object, error) {
	cus, ok := s.customers.get(c.pathID())
	if !ok || cus.deleted {
		return nil, missing("customer", c.pathID())
	}
	metadata := c.in.metadata(cus.metadata)
	next := map[string]*string{"email": &cus.email, "name": &cus.name, "description": &cus.description}
	given := make(map[string]string, len(next))
	for key := range next {
		if text, ok := c.in.value(key); ok {
			given[key] = text
		}
	}
	c.in.ignored("invoice_settings", "address", "phone", "source", "default_source", "tax")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	before := s.take(s.customerShape(cus))
	cus.metadata = metadata
	for key, text := range given {
		*next[key] = text
	}
	s.emit(c.now, "customer.updated", s.customerShape(cus), before)
	return s.renderCustomer(cus), nil
}

// deleteCustomer is permanent: it cancels the subscriptions at once and without
// a final invoice, and drafts are never finalized.
func (s *Server) deleteCustomer(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	cus, ok := s.customers.get(c.pathID())
	if !ok || cus.deleted {
		return nil, missing("customer", c.pathID())
	}
	for _, sub := range cus.subs {
		s.catchUp(sub, c.now)
		if !sub.ended() {
			sub.canceledAt = c.now
			s.endSubscription(sub, c.now, "canceled")
		}
	}
	for _, inv := range cus.invoices {
		if inv.status == "draft" {
			inv.autoAdvance = false
			s.scheduleFinalization(inv, time.Time{})
		}
	}
	last := s.renderCustomer(cus)
	cus.deleted = true
	s.emit(c.now, "customer.deleted", func(version) object { return last }, nil)
	return s.renderCustomer(cus), nil
}

func (s *Server) listCustomers(c *call) (object, error) {
	l, email, within := c.in.listing(), c.in.str("email"), c.in.span("created")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(cus *customer) bool {
		return !cus.deleted && (email == "" || email == cus.email) && within(cus.created)
	}
	page, more, err := newestFirst(l, s.customers.rows, s.customers.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/customers", page, more, s.renderCustomer), nil
}

// DeclinePayments makes all charges to a customer fail, or succeed again.
func (s *Server) DeclinePayments(customerID string, decline bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if decline {
		s.declined[customerID] = true
		return
	}
	delete(s.declined, customerID)
}

// liveCustomer resolves a customer named by a parameter.
func (s *Server) liveCustomer(id, param string) (*customer, error) {
	cus, ok := s.customers.get(id)
	if !ok || cus.deleted {
		return nil, missingParam("customer", id, param)
	}
	return cus, nil
}
