package billing

import (
	"encoding/json"
	"time"
)

// The shapes of Stripe objects as far as they are read here, in both forms: before 2025-03-31.basil a subscription has
// its period on top, from then on each item has its own. Missing fields are zero; a zero period is refused by its
// reader, never stored.

type list[T any] struct {
	Data    []T  `json:"data"`
	HasMore bool `json:"has_more"`
}

type subscription struct {
	ID                 string            `json:"id"`
	Customer           ref               `json:"customer"`
	Status             string            `json:"status"`
	Livemode           bool              `json:"livemode"`
	Created            int64             `json:"created"`
	CancelAt           int64             `json:"cancel_at"`
	CancelAtPeriodEnd  bool              `json:"cancel_at_period_end"`
	EndedAt            int64             `json:"ended_at"`
	TrialEnd           int64             `json:"trial_end"`
	BillingCycleAnchor int64             `json:"billing_cycle_anchor"`
	CurrentPeriodStart int64             `json:"current_period_start"`
	CurrentPeriodEnd   int64             `json:"current_period_end"`
	Currency           string            `json:"currency"`
	Metadata           map[string]string `json:"metadata"`
	PauseCollection    *struct {
		Behavior string `json:"behavior"`
	} `json:"pause_collection"`
	Items list[item] `json:"items"`

	pastDueSince time.Time // ours: when a read first showed it past due
}

type item struct {
	ID                 string `json:"id"`
	Created            int64  `json:"created"`
	Quantity           int64  `json:"quantity"`
	CurrentPeriodStart int64  `json:"current_period_start"`
	CurrentPeriodEnd   int64  `json:"current_period_end"`
	Price              price  `json:"price"`
}

type price struct {
	ID                string          `json:"id"`
	LookupKey         string          `json:"lookup_key"`
	Currency          string          `json:"currency"`
	Product           ref             `json:"product"`
	UnitAmountDecimal string          `json:"unit_amount_decimal"`
	BillingScheme     string          `json:"billing_scheme"`
	TaxBehavior       string          `json:"tax_behavior"`
	TransformQuantity json.RawMessage `json:"transform_quantity"`
	Recurring         *struct {
		Meter         string `json:"meter"`
		UsageType     string `json:"usage_type"`
		Interval      string `json:"interval"`
		IntervalCount int64  `json:"interval_count"`
	} `json:"recurring"`
}

// metered reports whether the price charges usage.
func (p *price) metered() bool { return p.Recurring != nil && p.Recurring.UsageType == "metered" }

// months is the length of the price's own period in months; 0 for days and weeks.
func (p *price) months() int {
	if p.Recurring == nil {
		return 0
	}
	n := int(max(p.Recurring.IntervalCount, 1))
	switch p.Recurring.Interval {
	case "month":
		return n
	case "year":
		return 12 * n
	}
	return 0
}

// transforms reports whether the price divides quantities before it charges them.
func (p *price) transforms() bool {
	return len(p.TransformQuantity) > 0 && string(p.TransformQuantity) != "null"
}

// period is the item's own current period, or the subscription's where items have none.
func (s *subscription) period(i *item) (start, end time.Time) {
	if i != nil && i.CurrentPeriodStart > 0 && i.CurrentPeriodEnd > 0 {
		return unix(i.CurrentPeriodStart), unix(i.CurrentPeriodEnd)
	}
	if s.CurrentPeriodStart > 0 && s.CurrentPeriodEnd > 0 {
		return unix(s.CurrentPeriodStart), unix(s.CurrentPeriodEnd)
	}
	return time.Time{}, time.Time{}
}

// ended reports whether nothing more comes of the subscription.
func (s *subscription) ended() bool {
	return s.Status == "canceled" || s.Status == "incomplete_expired"
}

func unix(sec int64) time.Time {
	if sec <= 0 {
		return time.Time{}
	}
	return time.Unix(sec, 0).UTC()
}

type invoice struct {
	ID            string `json:"id"`
	Customer      ref    `json:"customer"`
	Subscription  ref    `json:"subscription"`
	Status        string `json:"status"`
	BillingReason string `json:"billing_reason"`
	Currency      string `json:"currency"`
	Number        string `json:"number"`
	Livemode      bool   `json:"livemode"`
	Created       int64  `json:"created"`
	FinalizesAt   int64  `json:"automatically_finalizes_at"`
	Total         int64  `json:"total"`
	HostedURL     string `json:"hosted_invoice_url"`
	Transitions   struct {
		FinalizedAt int64 `json:"finalized_at"`
		VoidedAt    int64 `json:"voided_at"`
	} `json:"status_transitions"`
	Parent struct {
		Subscription struct {
			Subscription ref `json:"subscription"`
		} `json:"subscription_details"`
	} `json:"parent"`
	Lines list[invoiceLine] `json:"lines"`
}

func (i *invoice) subscription() string {
	if i.Subscription != "" {
		return string(i.Subscription)
	}
	return string(i.Parent.Subscription.Subscription)
}

type invoiceLine struct {
	ID           string            `json:"id"`
	Quantity     int64             `json:"quantity"`
	Amount       int64             `json:"amount"`
	Metadata     map[string]string `json:"metadata"`
	Price        *price            `json:"price"`
	Subscription ref               `json:"subscription"`
	Item         ref               `json:"subscription_item"`
	Proration    bool              `json:"proration"`
	Period       struct {
		Start int64 `json:"start"`
		End   int64 `json:"end"`
	} `json:"period"`
	Pricing struct {
		Details struct {
			Price ref `json:"price"`
		} `json:"price_details"`
	} `json:"pricing"`
	Parent struct {
		Details struct {
			Subscription ref `json:"subscription"`
			Item         ref `json:"subscription_item"`
		} `json:"subscription_item_details"`
	} `json:"parent"`
}

func (l *invoiceLine) priceID() string {
	if l.Price != nil {
		return l.Price.ID
	}
	return string(l.Pricing.Details.Price)
}

func (l *invoiceLine) item() string {
	if l.Item != "" {
		return string(l.Item)
	}
	return string(l.Parent.Details.Item)
}

func (l *invoiceLine) subscription() string {
	if l.Subscription != "" {
		return string(l.Subscription)
	}
	return string(l.Parent.Details.Subscription)
}

type meter struct {
	ID                 string `json:"id"`
	EventName          string `json:"event_name"`
	Status             string `json:"status"`
	EventTimeWindow    string `json:"event_time_window"`
	Livemode           bool   `json:"livemode"`
	DefaultAggregation struct {
		Formula string `json:"formula"`
	} `json:"default_aggregation"`
	CustomerMapping struct {
		Key string `json:"event_payload_key"`
	} `json:"customer_mapping"`
	ValueSettings struct {
		Key string `json:"event_payload_key"`
	} `json:"value_settings"`
}

type customer struct {
	ID       string            `json:"id"`
	Deleted  bool              `json:"deleted"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
}

type summary struct {
	Value json.Number `json:"aggregated_value"`
	Start int64       `json:"start_time"`
	End   int64       `json:"end_time"`
}
