package stripesim

import (
	"time"
)

type meter struct {
	record
	displayName string
	eventName   string
	formula     string
	window      string // "", "hour" or "day"
	customerKey string
	valueKey    string
	inactive    time.Time // zero while active
	updated     time.Time
	report      report
}

// meterStore holds the meters and the events that were accepted for them.
type meterStore struct {
	table[*meter]
	active  map[string]*meter // by event name
	streams map[streamKey]*stream
	// recent are the identifiers of the last 24 hours, oldest first.
	recent      []*meterEvent
	identifiers map[string]*meterEvent
	all         []*meterEvent
	most        int
	nameless    report // rejections of event names without a meter
}

func newMeterStore(most int) meterStore {
	return meterStore{
		table: newTable[*meter](), active: make(map[string]*meter), streams: make(map[streamKey]*stream),
		identifiers: make(map[string]*meterEvent), most: most,
	}
}

func (s *Server) renderMeter(m *meter) object {
	status := "active"
	if !m.inactive.IsZero() {
		status = "inactive"
	}
	return object{
		"id": m.id, "object": "billing.meter", "created": m.created.Unix(), "updated": m.updated.Unix(),
		"display_name": m.displayName, "event_name": m.eventName, "event_time_window": nullable(m.window),
		"customer_mapping":    object{"event_payload_key": m.customerKey, "type": "by_id"},
		"default_aggregation": object{"formula": m.formula},
		"value_settings":      object{"event_payload_key": m.valueKey},
		"livemode":            s.live(), "status": status, "status_transitions": object{"deactivated_at": unix(m.inactive)},
	}
}

func (s *Server) createMeter(c *call) (object, error) {
	mapping, values := c.in.sub("customer_mapping"), c.in.sub("value_settings")
	m := &meter{
		displayName: c.in.required("display_name"), eventName: c.in.required("event_name"),
		window:      c.in.enum("event_time_window", "", "hour", "day"),
		formula:     c.in.sub("default_aggregation").enum("formula", "", "sum", "count", "last"),
		customerKey: mapping.limited("event_payload_key", 100), valueKey: values.limited("event_payload_key", 100),
	}
	mapping.enum("type", "by_id", "by_id")
	if m.formula == "" {
		c.form.fail(invalid("Missing required param: default_aggregation[formula].").withCode("parameter_missing").withParam("default_aggregation[formula]"))
	}
	if len(m.eventName) > 100 {
		c.form.fail(invalid("Invalid string: event_name must be at most 100 characters").withParam("event_name"))
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if m.customerKey == "" {
		m.customerKey = "stripe_customer_id"
	}
	if m.valueKey == "" {
		m.valueKey = "value"
	}
	if other, taken := s.meters.active[m.eventName]; taken {
		return nil, invalid("An active meter with event_name %q already exists: %s.", m.eventName, other.id).withParam("event_name")
	}
	m.record = s.newRecord("mtr", 24, c.now)
	m.updated = c.now
	s.meters.add(m)
	s.meters.active[m.eventName] = m
	s.emit(c.now, "billing.meter.created", s.meterShape(m), nil)
	return s.renderMeter(m), nil
}

func (s *Server) meterShape(m *meter) render {
	return func(version) object { return s.renderMeter(m) }
}

func (s *Server) getMeter(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	m, ok := s.meters.get(c.pathID())
	if !ok {
		return nil, missing("billing meter", c.pathID())
	}
	return s.renderMeter(m), nil
}

// updateMeter changes the display name: all else of a meter is immutable.
func (s *Server) updateMeter(c *call) (object, error) {
	name := c.in.str("display_name")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	m, ok := s.meters.get(c.pathID())
	if !ok {
		return nil, missing("billing meter", c.pathID())
	}
	before := s.take(s.meterShape(m))
	if name != "" {
		m.displayName, m.updated = name, c.now
	}
	s.emit(c.now, "billing.meter.updated", s.meterShape(m), before)
	return s.renderMeter(m), nil
}

func (s *Server) deactivateMeter(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	m, ok := s.meters.get(c.pathID())
	if !ok {
		return nil, missing("billing meter", c.pathID())
	}
	if !m.inactive.IsZero() {
		return nil, invalid("The meter %s is already inactive.", m.id)
	}
	before := s.take(s.meterShape(m))
	m.inactive, m.updated = c.now, c.now
	delete(s.meters.active, m.eventName)
	s.emit(c.now, "billing.meter.deactivated", s.meterShape(m), before)
	return s.renderMeter(m), nil
}

func (s *Server) reactivateMeter(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	m, ok := s.meters.get(c.pathID())
	if !ok {
		return nil, missing("billing meter", c.pathID())
	}
	if m.inactive.IsZero() {
		return nil, invalid("The meter %s is already active.", m.id)
	}
	if other, taken := s.meters.active[m.eventName]; taken {
		return nil, invalid("An active meter with event_name %q already exists: %s.", m.eventName, other.id).withParam("event_name")
	}
	before := s.take(s.meterShape(m))
	m.inactive, m.updated = time.Time{}, c.now
	s.meters.active[m.eventName] = m
	s.emit(c.now, "billing.meter.reactivated", s.meterShape(m), before)
	return s.renderMeter(m), nil
}

func (s *Server) listMeters(c *call) (object, error) {
	l, status := c.in.listing(), c.in.enum("status", "", "active", "inactive")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(m *meter) bool { return status == "" || (status == "active") == m.inactive.IsZero() }
	page, more, err := newestFirst(l, s.meters.rows, s.meters.get, keep)
	if err != nil {
		return nil, err
	}
	return list("/v1/billing/meters", page, more, s.renderMeter), nil
}
