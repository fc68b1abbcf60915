package stripesim

import (
	"slices"
	"time"
)

// report gathers the asynchronous rejections on one meter until the thin event
// about them goes out.
type report struct {
	alarm   alarm
	since   time.Time
	samples []*meterEvent
	counts  map[string]int
}

// rejectLater counts an accepted event's rejection towards the next report.
func (s *Server) rejectLater(e *meterEvent) {
	r := &s.meters.nameless
	if e.meter != nil {
		r = &e.meter.report
	}
	if r.counts == nil {
		r.counts, r.since, r.samples = make(map[string]int), e.Received, nil
		s.set(&r.alarm, e.Received.Add(s.cfg.ReportDelay), func(at time.Time) { s.sendReport(e.meter, r, at) })
	}
	r.counts[e.Rejected]++
	if r.counts[e.Rejected] <= s.cfg.SamplesPerError {
		r.samples = append(r.samples, e)
	}
}

func (s *Server) sendReport(m *meter, r *report, at time.Time) {
	kind, of := "v1.billing.meter.no_meter_found", (*related)(nil)
	if m != nil {
		kind = "v1.billing.meter.error_report_triggered"
		of = &related{id: m.id, kind: "billing.meter", url: "/v1/billing/meters/" + m.id}
	}
	codes := make([]string, 0, len(r.counts))
	total := 0
	for code, n := range r.counts {
		codes = append(codes, code)
		total += n
	}
	slices.Sort(codes)
	kinds := make([]any, 0, len(codes))
	for _, code := range codes {
		samples := []any{}
		for _, e := range r.samples {
			if e.Rejected == code {
				samples = append(samples, object{"error_message": "Rejected: " + code, "request": s.sampleRequest(e)})
			}
		}
		kinds = append(kinds, object{"code": code, "error_count": r.counts[code], "sample_errors": samples})
	}
	data := object{
		"developer_message_summary": "There were errors in processing meter events. Please inspect the errors before sending more.",
		"reason":                    object{"error_count": total, "error_types": kinds},
		"validation_start":          zulu(r.since), "validation_end": zulu(at),
	}
	r.counts, r.samples = nil, nil
	s.emitThin(at, kind, of, data)
}

func (s *Server) sampleRequest(e *meterEvent) object {
	switch s.cfg.ReportStyle {
	case ReportIdentifier:
	case ReportIdempotencyKey:
		return object{"identifier": e.IdempotencyKey}
	case ReportRequest:
		return object{"id": e.RequestID, "idempotency_key": e.IdempotencyKey}
	}
	return object{"identifier": e.Identifier}
}

// zulu is how the v2 API writes a time.
func zulu(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (s *Server) emitThin(at time.Time, kind string, of *related, data object) {
	e := &event{record: s.newRecord("evt", 32, at), kind: kind, related: of, data: data}
	s.thin.add(e)
	s.post(at, e)
}

// renderThin is a v2 event: pushed without its data, fetched with it.
func (s *Server) renderThin(e *event, fetched bool) object {
	of := object{}
	if e.related != nil {
		of = object{"id": e.related.id, "type": e.related.kind, "url": e.related.url}
	}
	out := object{
		"id": e.id, "object": "v2.core.event", "type": e.kind, "created": zulu(e.created), "livemode": s.live(),
		"context": nil, "reason": nil, "related_object": of,
	}
	if fetched {
		out["data"] = e.data
	}
	return out
}

// getThinEvent wants a named API version of 2024-09-30.acacia or later, as all
// of /v2 does.
func (s *Server) getThinEvent(c *call) (object, error) {
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	if !c.version.from(versionThinEvents) {
		return nil, invalid("The v2 API needs a Stripe-Version of 2024-09-30.acacia or later; got %s.", c.version).withCode("invalid_stripe_version")
	}
	e, ok := s.thin.get(c.pathID())
	if !ok {
		return nil, missing("event", c.pathID()).withCode("not_found")
	}
	return s.renderThin(e, true), nil
}

// EmitThin sends a thin event of any type, with a related object (its id, type
// and URL, or "" for none) and the data that GET /v2/core/events/{id} shows.
func (s *Server) EmitThin(kind, relatedID, relatedType, relatedURL string, data map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of *related
	if relatedID != "" {
		of = &related{id: relatedID, kind: relatedType, url: relatedURL}
	}
	s.emitThin(s.now(), kind, of, data)
}
