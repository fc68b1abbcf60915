package billing

import (
	"encoding/json"
	"strings"
)

// event is what snapshot and thin events have in common.
type event struct {
	ID         string `json:"id"`
	Object     string `json:"object"`
	Type       string `json:"type"`
	Livemode   bool   `json:"livemode"`
	APIVersion string `json:"api_version"`
	Data       struct {
		Object eventObject `json:"object"`
	} `json:"data"`
	Related struct {
		ID string `json:"id"`
	} `json:"related_object"`

	raw  []byte
	thin bool
}

// eventObject is what a hint needs of the object that an event is about.
type eventObject struct {
	ID        string `json:"id"`
	Object    string `json:"object"`
	Customer  ref    `json:"customer"`
	Reference string `json:"client_reference_id"`
}

// ref is an id that Stripe gives as a string, as an expanded object, or as null.
type ref string

// UnmarshalJSON reads any of the three.
func (r *ref) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*r = ref(s)
		return nil
	}
	var o struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(data, &o); err != nil {
		return err
	}
	*r = ref(o.ID)
	return nil
}

// hints are what an event says is to be read.
type hints struct {
	customer, invoice, object, reference string
	prices, meterError                   bool
}

func (h hints) useful() bool {
	return h.customer != "" || h.invoice != "" || h.prices || h.meterError
}

// hints maps a type to what it concerns. Types that are not listed concern nobody here.
func (e *event) hints() hints {
	o := e.Data.Object
	h := hints{object: bounded(o.ID)}
	if e.thin {
		h.object = bounded(e.Related.ID)
		h.meterError = strings.HasPrefix(e.Type, "v1.billing.meter.")
		return h
	}
	switch t := e.Type; {
	case strings.HasPrefix(t, "customer.subscription."), strings.HasPrefix(t, "subscription_schedule."):
		h.customer = bounded(string(o.Customer))
	case t == "customer.deleted", t == "customer.created", t == "customer.updated":
		h.customer = bounded(o.ID)
	case t == "checkout.session.completed":
		h.customer, h.reference = bounded(string(o.Customer)), o.Reference
	case strings.HasPrefix(t, "invoice.") && o.Object == "invoice" && o.ID != "":
		h.customer, h.invoice = bounded(string(o.Customer)), bounded(o.ID)
		if h.customer == "" {
			h.invoice = ""
		}
	case t == "price.updated", t == "price.deleted":
		h.prices = true
	}
	return h
}

// bounded drops an id that is none: longer than any of Stripe's, or with characters that none has.
func bounded(id string) string {
	if len(id) > 255 || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return ""
	}
	return id
}
