package stripesim

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"
)

// eventLife is how long Stripe lists events.
const eventLife = 30 * 24 * time.Hour

// event is one event as it happened: the object in the shape of every API
// version that somebody wanted at that moment. Fetching it later converts
// nothing.
type event struct {
	record
	kind     string
	shapes   map[version]json.RawMessage
	previous map[version]json.RawMessage
	request  string
	key      string
	pending  int      // endpoints that have not acknowledged it
	invoice  *invoice // whose finalization waits for the acknowledgement
	// thin v2 events only.
	related *related
	data    object
}

type related struct{ id, kind, url string }

// eventLog is the bounded list of events.
type eventLog struct {
	byID map[string]*event
	log  history[*event]
}

func newEventLog(most int) eventLog {
	return eventLog{byID: make(map[string]*event), log: newHistory[*event](most)}
}

func (l *eventLog) add(e *event) {
	l.byID[e.id] = e
	for _, old := range l.log.add(e) {
		delete(l.byID, old.id)
	}
}

func (l *eventLog) get(id string) (*event, bool) {
	e, ok := l.byID[id]
	return e, ok
}

// shapes are the renderings of one object by version.
type shapes map[version]object

// render is how an object looks in a version.
type render func(v version) object

// take renders an object in every version that events are made in now.
func (s *Server) take(r render) shapes {
	out := shapes{}
	for v := range s.versions() {
		out[v] = r(v)
	}
	return out
}

// versions are the account's and the endpoints' API versions.
func (s *Server) versions() map[version]bool {
	out := map[version]bool{version(s.cfg.DefaultVersion): true}
	for _, e := range s.endpoints.rows {
		if !e.thin && e.enabled {
			out[e.version] = true
		}
	}
	return out
}

// emit makes an event about an object as it is now. before, if any, is how the
// object was: its differences become previous_attributes.
func (s *Server) emit(at time.Time, kind string, r render, before shapes) {
	if s.wanted(kind) {
		s.publish(at, s.build(at, kind, r, before))
	}
}

// wanted is false for events that Config.WantedEventsOnly leaves out.
func (s *Server) wanted(kind string) bool {
	if !s.cfg.WantedEventsOnly {
		return true
	}
	for _, e := range s.endpoints.rows {
		if !e.thin && e.wants(kind) {
			return true
		}
	}
	return false
}

func (s *Server) publish(at time.Time, e *event) {
	s.events.add(e)
	s.post(at, e)
}

func (s *Server) build(at time.Time, kind string, r render, before shapes) *event {
	e := &event{
		record: s.newRecord("evt", 24, at.Truncate(time.Second)), kind: kind,
		shapes: make(map[version]json.RawMessage), previous: make(map[version]json.RawMessage),
	}
	for v := range s.versions() {
		now := r(v)
		e.shapes[v] = s.encode(now)
		if old, ok := before[v]; ok {
			e.previous[v] = s.encode(changed(old, now))
		}
	}
	if s.caller != nil {
		e.request, e.key = s.caller.id, s.caller.key
	}
	return e
}

// encode is for values that the simulator itself built; if one is no JSON, that
// is logged and null goes out.
func (s *Server) encode(v any) json.RawMessage {
	body, err := encode(v)
	if err != nil {
		s.log.Error("the simulator made an event that is no JSON", "error", err)
		return json.RawMessage("null")
	}
	return body
}

// changed is what previous_attributes shows: the old values of what differs.
func changed(old, now object) object {
	out := object{}
	for key, was := range old {
		if !reflect.DeepEqual(was, now[key]) {
			out[key] = was
		}
	}
	return out
}

func (s *Server) renderEvent(e *event, v version) object {
	if _, ok := e.shapes[v]; !ok {
		v = version(s.cfg.DefaultVersion)
	}
	data := object{"object": e.shapes[v]}
	if previous, ok := e.previous[v]; ok {
		data["previous_attributes"] = previous
	}
	return object{
		"id": e.id, "object": "event", "api_version": v, "created": e.created.Unix(), "data": data,
		"livemode": s.live(), "pending_webhooks": e.pending, "type": e.kind,
		"request": object{"id": nullable(e.request), "idempotency_key": nullable(e.key)},
	}
}

func (s *Server) getEvent(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	e, ok := s.events.get(c.pathID())
	if !ok || s.expired(e, c.now) {
		return nil, missing("event", c.pathID())
	}
	return s.renderEvent(e, version(s.cfg.DefaultVersion)), nil
}

func (s *Server) expired(e *event, now time.Time) bool { return now.Sub(e.created) > eventLife }

func (s *Server) listEvents(c *call) (object, error) {
	l := c.in.listing()
	kind, kinds := c.in.str("type"), c.in.texts("types")
	delivered := c.in.boolean("delivery_success")
	within := c.in.span("created")
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	keep := func(e *event) bool {
		if s.expired(e, c.now) || !within(e.created) || kind != "" && !typeMatches(kind, e.kind) {
			return false
		}
		if delivered != nil && *delivered != (e.pending == 0) {
			return false
		}
		return len(kinds) == 0 || anyTypeMatches(kinds, e.kind)
	}
	page, more, err := newestFirst(l, s.events.log.all(), s.events.get, keep)
	if err != nil {
		return nil, err
	}
	v := version(s.cfg.DefaultVersion)
	return list("/v1/events", page, more, func(e *event) object { return s.renderEvent(e, v) }), nil
}

// typeMatches compares an event type with a pattern such as "invoice.*" or "*".
func typeMatches(pattern, kind string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(kind, prefix)
	}
	return pattern == kind
}

func anyTypeMatches(patterns []string, kind string) bool {
	for _, p := range patterns {
		if typeMatches(p, kind) {
			return true
		}
	}
	return false
}

// span reads key=unix or key[gt|gte|lt|lte]=unix as a test of a time.
func (n *node) span(key string) func(time.Time) bool {
	if !n.has(key) {
		return func(time.Time) bool { return true }
	}
	at := n.sub(key)
	exact := at.set
	if exact {
		t := n.instant(key)
		return func(v time.Time) bool { return v.Unix() == t.Unix() }
	}
	gt, gte, lt, lte := at.integer("gt"), at.integer("gte"), at.integer("lt"), at.integer("lte")
	return func(v time.Time) bool {
		u := v.Unix()
		return (gt == nil || u > *gt) && (gte == nil || u >= *gte) && (lt == nil || u < *lt) && (lte == nil || u <= *lte)
	}
}

// Emit sends an event that the simulator has no occasion for, such as
// invoice.upcoming or billing.alert.triggered, with this data.object.
func (s *Server) Emit(kind string, data map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(s.now(), kind, func(version) object { return data }, nil)
}
