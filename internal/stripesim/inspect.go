package stripesim

import "time"

// Invoice is an invoice as tests look at it.
type Invoice struct {
	ID, Customer, Subscription string
	// Status is draft, open, paid, void or uncollectible.
	Status string
	// Reason is the billing_reason.
	Reason      string
	Currency    string
	Total       int64 // minor units
	Created     time.Time
	FinalizesAt time.Time // zero when nothing is scheduled
	FinalizedAt time.Time // zero while a draft
	Lines       []InvoiceLine
}

// InvoiceLine is one line of an Invoice.
type InvoiceLine struct {
	ID, Price, Meter, SubscriptionItem string
	Start, End                         time.Time // the service period, [Start, End)
	Quantity                           int64
	Amount                             int64 // minor units
	// Free marks a trial's line: it shows a quantity and costs nothing.
	Free      bool
	Proration bool
	Metadata  map[string]string
}

// Invoices are a customer's invoices, or all with "", oldest first.
func (s *Server) Invoices(customerID string) []Invoice {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.invoices.rows
	if customerID != "" {
		cus, ok := s.customers.get(customerID)
		if !ok {
			return nil
		}
		rows = cus.invoices
	}
	out := make([]Invoice, 0, len(rows))
	for _, inv := range rows {
		out = append(out, inv.view())
	}
	return out
}

func (inv *invoice) view() Invoice {
	out := Invoice{
		ID: inv.id, Customer: inv.customer.id, Status: inv.status, Reason: inv.reason, Currency: inv.currency, Total: inv.total(),
		Created: inv.created, FinalizesAt: inv.finalizesAt, FinalizedAt: inv.finalizedAt,
	}
	if inv.sub != nil {
		out.Subscription = inv.sub.id
	}
	for _, l := range inv.lines() {
		p := l.part
		view := InvoiceLine{
			ID: l.id, Start: p.from, End: p.to, Quantity: l.quantity, Amount: l.amount, Free: p.free, Proration: p.proration,
			Metadata: p.metadata,
		}
		if p.price != nil {
			view.Price = p.price.id
		}
		if p.meter != nil {
			view.Meter = p.meter.id
		}
		if p.item != nil {
			view.SubscriptionItem = p.item.id
		}
		out.Lines = append(out.Lines, view)
	}
	return out
}
