package stripesim

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"time"
)

const mostWindows = 20_000

// seenAt is until when an event must have come in to show at the given time.
// Without lag everything that came in shows, even when a shared clock jumped
// past the time at which business is being done.
func seenAt(at time.Time, lag time.Duration) time.Time {
	if lag == 0 {
		return time.Unix(math.MaxUint32, 0)
	}
	return at.Add(-lag)
}

// usage aggregates what a customer sent to a meter with timestamps in
// [from, to) and received until seen.
func (s *Server) usage(m *meter, customer string, from, to, seen time.Time) int64 {
	st, ok := s.meters.streams[streamKey{customer: customer, meter: m.id}]
	if !ok {
		return 0
	}
	var within []*meterEvent
	for _, e := range st.events {
		if e.counts(from, to, seen) {
			within = append(within, e)
		}
	}
	return m.aggregate(within)
}

func (e *meterEvent) counts(from, to, seen time.Time) bool {
	return !e.Cancelled && !e.Timestamp.Before(from) && e.Timestamp.Before(to) && !e.Received.After(seen)
}

// aggregate applies the meter's formula to events in order of arrival.
func (m *meter) aggregate(events []*meterEvent) int64 {
	if m.window != "" {
		events = m.lastPerWindow(events)
	}
	switch m.formula {
	case "count":
		return int64(len(events))
	case "last":
		var last *meterEvent
		for _, e := range events {
			if last == nil || !e.Timestamp.Before(last.Timestamp) {
				last = e
			}
		}
		if last == nil {
			return 0
		}
		return last.Value
	}
	var sum int64
	for _, e := range events {
		sum += e.Value
	}
	return sum
}

// lastPerWindow keeps the most recently received event of each UTC hour or day:
// a meter with an event_time_window counts no other.
func (m *meter) lastPerWindow(events []*meterEvent) []*meterEvent {
	width := windowWidth(m.window)
	last := make(map[int64]*meterEvent)
	for _, e := range events {
		last[e.Timestamp.Unix()/width] = e
	}
	kept := make([]*meterEvent, 0, len(last))
	for _, e := range events {
		if last[e.Timestamp.Unix()/width] == e {
			kept = append(kept, e)
		}
	}
	return kept
}

func windowWidth(window string) int64 {
	if window == "day" {
		return 24 * 60 * 60
	}
	return 60 * 60
}

type summary struct {
	record
	start, end time.Time
	value      int64
}

func (s *Server) listSummaries(c *call) (object, error) {
	l := c.in.listing()
	customer := c.in.required("customer")
	c.in.required("start_time")
	c.in.required("end_time")
	start, end := c.in.instant("start_time"), c.in.instant("end_time")
	window := c.in.enum("value_grouping_window", "", "hour", "day")
	if c.form.err == nil {
		c.checkRange(start, end, window)
	}
	if err := c.form.finish(); err != nil {
		return nil, err
	}
	m, ok := s.meters.get(c.pathID())
	if !ok {
		return nil, missing("billing meter", c.pathID())
	}
	if _, ok := s.customers.get(customer); !ok {
		return nil, missingParam("customer", customer, "customer")
	}
	rows := s.summarize(m, customer, start, end, window, seenAt(c.now, s.cfg.SummaryLag))
	page, more, err := inOrder(l, rows)
	if err != nil {
		return nil, err
	}
	url := "/v1/billing/meters/" + m.id + "/event_summaries"
	return list(url, page, more, func(w *summary) object {
		return object{
			"id": w.id, "object": "billing.meter_event_summary", "aggregated_value": w.value, "end_time": w.end.Unix(),
			"livemode": s.live(), "meter": m.id, "start_time": w.start.Unix(),
		}
	}), nil
}

func (c *call) checkRange(start, end time.Time, window string) {
	width, unit := int64(60), "minute"
	if window != "" {
		width, unit = windowWidth(window), window
	}
	for name, at := range map[string]time.Time{"start_time": start, "end_time": end} {
		if at.Unix()%width != 0 {
			c.form.fail(invalid("Invalid %s: timestamps must be aligned with %s boundaries.", name, unit).withParam(name))
			return
		}
	}
	if !start.Before(end) {
		c.form.fail(invalid("Invalid end_time: must be after start_time.").withParam("end_time"))
	}
	if (end.Unix()-start.Unix())/width > mostWindows && window != "" {
		c.form.fail(invalid("Invalid range: at most %d windows.", mostWindows).withParam("start_time"))
	}
}

// summarize makes one summary per window, newest first, or one for the range.
func (s *Server) summarize(m *meter, customer string, start, end time.Time, window string, seen time.Time) []*summary {
	width := end.Unix() - start.Unix()
	if window != "" {
		width = windowWidth(window)
	}
	grouped := make(map[int64][]*meterEvent)
	if st, ok := s.meters.streams[streamKey{customer: customer, meter: m.id}]; ok {
		for _, e := range st.events {
			if e.counts(start, end, seen) {
				i := (e.Timestamp.Unix() - start.Unix()) / width
				grouped[i] = append(grouped[i], e)
			}
		}
	}
	var out []*summary
	for i := (end.Unix()-start.Unix())/width - 1; i >= 0; i-- {
		events, any := grouped[i]
		if !any && s.cfg.OmitEmptySummaries {
			continue
		}
		from := time.Unix(start.Unix()+i*width, 0).UTC()
		to := from.Add(time.Duration(width) * time.Second)
		id := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", m.id, customer, from.Unix(), to.Unix()))
		out = append(out, &summary{
			record: record{id: "mtrusg_" + hex.EncodeToString(id[:12])}, start: from, end: to, value: m.aggregate(events),
		})
	}
	return out
}
