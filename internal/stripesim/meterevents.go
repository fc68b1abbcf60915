package stripesim

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	identifierLife    = 24 * time.Hour
	oldestTimestamp   = 35 * 24 * time.Hour
	furthestTimestamp = 5 * time.Minute
	mostDigits        = 15
)

// MeterEvent is one meter event that was answered with 2xx.
type MeterEvent struct {
	Identifier, EventName string
	// Meter is the id of the meter; "" when there was none.
	Meter    string
	Customer string
	Value    int64
	// Timestamp is the event's own time, Received when it came in.
	Timestamp, Received time.Time
	IdempotencyKey      string
	RequestID           string
	// Rejected is the code of its asynchronous rejection; "" when it counts.
	Rejected string
	// Cancelled tells that an adjustment cancelled it: it no longer counts.
	Cancelled bool
}

type meterEvent struct {
	MeterEvent
	meter *meter
}

type streamKey struct{ customer, meter string }

// stream is what one customer sent to one meter, in order of arrival.
type stream struct {
	events []*meterEvent
	weight int64 // sum of the absolute values, so no partial sum can overflow
}

func (s *Server) createMeterEvent(c *call) (object, error) {
	name, identifier := c.in.required("event_name"), c.in.limited("identifier", 100)
	stamp := c.in.instant("timestamp")
	given := c.in.sub("payload")
	payload := make(map[string]string, len(given.kids))
	for _, key := range given.keys() {
		payload[key] = given.str(key)
	}
	if len(name) > 100 {
		c.form.fail(invalid("Invalid string: event_name must be at most 100 characters").withParam("event_name"))
	}
	if len(payload) == 0 {
		c.form.fail(invalid("Missing required param: payload.").withCode("parameter_missing").withParam("payload"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if stamp.IsZero() {
		stamp = c.now.Truncate(time.Second)
	}
	if identifier == "" {
		identifier = s.newID("mevt", 24)
	}
	e := &meterEvent{MeterEvent: MeterEvent{
		Identifier: identifier, EventName: name, Timestamp: stamp, Received: c.now, IdempotencyKey: c.key, RequestID: c.id,
	}}
	if err := s.checkMeterEvent(e, payload, c.now); err != nil {
		return nil, err
	}
	if err := s.storeMeterEvent(e); err != nil {
		return nil, err
	}
	return object{
		"object": "billing.meter_event", "created": c.now.Unix(), "event_name": name, "identifier": identifier,
		"livemode": s.live(), "payload": payload, "timestamp": stamp.Unix(),
	}, nil
}

// checkMeterEvent fills in e, refuses what Stripe refuses at once, and marks
// what it accepts and rejects afterwards.
func (s *Server) checkMeterEvent(e *meterEvent, payload map[string]string, now time.Time) error {
	m, ok := s.meters.active[e.EventName]
	if !ok {
		if !s.cfg.AsyncValidation {
			return invalid("No active meter found for event name %q", e.EventName)
		}
		m = s.archivedMeter(e.EventName)
		e.Rejected = "archived_meter"
		if m == nil {
			e.Rejected = "no_meter"
		}
	}
	if earliest := now.Add(-oldestTimestamp); e.Timestamp.Before(earliest) {
		return invalid("The event timestamp cannot be more than 35 days in past. Expected a timestamp greater than or equal to %d.", earliest.Unix())
	}
	if latest := now.Add(furthestTimestamp); e.Timestamp.After(latest) {
		return invalid("The event timestamp cannot be more than 5 minutes in the future. Expected a timestamp less than or equal to %d.", latest.Unix())
	}
	if m != nil {
		e.meter, e.Meter = m, m.id
		if err := s.readPayload(e, payload); err != nil {
			return err
		}
	}
	s.meters.forgetIdentifiers(now)
	if _, taken := s.meters.identifiers[e.Identifier]; taken {
		return invalid("An event already exists with identifier %s.", e.Identifier).withHeader("Stripe-Should-Retry", "false")
	}
	return nil
}

func (s *Server) readPayload(e *meterEvent, payload map[string]string) error {
	e.Customer = payload[e.meter.customerKey]
	value, given := payload[e.meter.valueKey]
	switch known, ok := s.customers.get(e.Customer); {
	case e.Customer == "":
		e.reject("meter_event_no_customer_defined")
	case ok && !known.deleted:
	case s.cfg.AsyncValidation:
		e.reject("meter_event_customer_not_found")
	default:
		return invalid("No such customer: '%s'", e.Customer)
	}
	if !given {
		if e.meter.formula != "count" {
			e.reject("meter_event_value_not_found")
		}
		return nil
	}
	v, err := meterValue(value)
	if err != nil {
		return err
	}
	e.Value = v
	return nil
}

func (e *meterEvent) reject(code string) {
	if e.Rejected == "" {
		e.Rejected = code
	}
}

// meterValue reads a whole number of at most 15 digits: the narrowest reading
// of the documentation's editions.
func meterValue(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, invalid("Invalid value %q: meter event values must be whole numbers.", text).withParam("payload[value]")
	}
	if digits = strings.TrimLeft(digits, "0"); len(digits) > mostDigits {
		return 0, invalid("Invalid value %q: meter event values can have at most %d significant digits.", text, mostDigits).withParam("payload[value]")
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, invalid("Invalid value %q: meter event values must be whole numbers.", text).withParam("payload[value]")
	}
	return v, nil
}

func (s *Server) archivedMeter(eventName string) *meter {
	for i := len(s.meters.rows) - 1; i >= 0; i-- {
		if m := s.meters.rows[i]; m.eventName == eventName {
			return m
		}
	}
	return nil
}

func (s *Server) storeMeterEvent(e *meterEvent) error {
	if len(s.meters.all) >= s.meters.most {
		return s.full("the meter event store is full: raise Config.MaxMeterEvents")
	}
	for _, hit := range s.faults.meters.strike(e.MeterEvent) {
		e.reject(hit.effect)
	}
	if e.Rejected == "" {
		key := streamKey{customer: e.Customer, meter: e.Meter}
		st, ok := s.meters.streams[key]
		if !ok {
			st = &stream{}
			s.meters.streams[key] = st
		}
		weight := max(e.Value, -e.Value)
		if st.weight > math.MaxInt64-weight {
			return s.full("the values of one customer on one meter no longer fit in 64 bits")
		}
		st.weight += weight
		st.events = append(st.events, e)
	} else {
		s.rejectLater(e)
	}
	s.meters.all = append(s.meters.all, e)
	s.meters.identifiers[e.Identifier] = e
	s.meters.recent = append(s.meters.recent, e)
	return nil
}

func (s *Server) full(why string) *apiError {
	s.log.Error("the stripe simulator refuses a meter event", "reason", why)
	return &apiError{status: http.StatusInternalServerError, typ: typeAPI, message: "stripesim: " + why}
}

// forgetIdentifiers frees the identifiers of more than 24 hours ago.
func (m *meterStore) forgetIdentifiers(now time.Time) {
	drop := 0
	for drop < len(m.recent) && !now.Before(m.recent[drop].Received.Add(identifierLife)) {
		delete(m.identifiers, m.recent[drop].Identifier)
		m.recent[drop] = nil
		drop++
	}
	m.recent = m.recent[drop:]
}

// createAdjustment cancels a meter event within 24 hours of its receipt.
func (s *Server) createAdjustment(c *call) (object, error) {
	name := c.in.required("event_name")
	c.in.enum("type", "", "cancel")
	c.in.required("type")
	identifier := c.in.sub("cancel").required("identifier")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	s.meters.forgetIdentifiers(c.now)
	e, ok := s.meters.identifiers[identifier]
	if !ok || e.EventName != name {
		return nil, invalid("No event of the last 24 hours with identifier %s and event name %q was found.", identifier, name)
	}
	e.Cancelled = true
	return object{
		"object": "billing.meter_event_adjustment", "cancel": object{"identifier": identifier}, "event_name": name,
		"livemode": s.live(), "status": "complete", "type": "cancel",
	}, nil
}

// MeterEvents are the meter events answered with 2xx, in order of arrival, the
// rejected ones included.
func (s *Server) MeterEvents() []MeterEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]MeterEvent, 0, len(s.meters.all))
	for _, e := range s.meters.all {
		out = append(out, e.MeterEvent)
	}
	return out
}

// Usage is what counts for a customer on a meter with timestamps in [from, to),
// without any lag, as the meter aggregates it. It may be negative.
func (s *Server) Usage(customer, meterID string, from, to time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.meters.get(meterID)
	if !ok {
		return 0
	}
	return s.usage(m, customer, from, to, seenAt(s.now(), 0))
}

// RejectMeterEvents accepts the next count matching meter events (0: all) and
// rejects them afterwards with the code, such as "meter_event_invalid_value".
// match runs under the server's lock: it must not call the server.
func (f *Faults) RejectMeterEvents(code string, count int, match func(MeterEvent) bool) *Injection {
	return f.meters.add(match, code, 0, count)
}
