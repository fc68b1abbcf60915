package stripesim

import "time"

// CheckoutSession says what a customer has completed.
type CheckoutSession struct {
	// Customer and Subscription are ids; Subscription may be "".
	Customer, Subscription string
	ClientReferenceID      string
	Metadata               map[string]string
}

type checkout struct {
	record
	session CheckoutSession
}

// CompleteCheckout makes a completed session and sends
// checkout.session.completed. It returns the session's id.
func (s *Server) CompleteCheckout(session CheckoutSession) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.now().Truncate(time.Second)
	prefix := "cs_test"
	if s.live() {
		prefix = "cs_live"
	}
	co := &checkout{record: s.newRecord(prefix, 40, at), session: session}
	s.checkouts.add(co)
	s.emit(at, "checkout.session.completed", func(version) object { return s.renderCheckout(co) }, nil)
	return co.id
}

func (s *Server) renderCheckout(co *checkout) object {
	mode := "payment"
	if co.session.Subscription != "" {
		mode = "subscription"
	}
	return object{
		"id": co.id, "object": "checkout.session", "client_reference_id": nullable(co.session.ClientReferenceID),
		"created": co.created.Unix(), "customer": nullable(co.session.Customer), "livemode": s.live(),
		"metadata": pairs(co.session.Metadata), "mode": mode, "payment_status": "paid", "status": "complete",
		"subscription": nullable(co.session.Subscription),
	}
}

func (s *Server) getCheckout(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	co, ok := s.checkouts.get(c.pathID())
	if !ok {
		return nil, missing("checkout.session", c.pathID())
	}
	return s.renderCheckout(co), nil
}
