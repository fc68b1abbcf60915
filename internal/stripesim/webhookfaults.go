package stripesim

import (
	"regexp"
	"time"
)

// WebhookMatch selects the deliveries that a fault hits.
type WebhookMatch struct {
	// Type is a regular expression for the whole event type; "" is any.
	Type string
	// Endpoint is the id or URL of one endpoint; "" is any.
	Endpoint string
	// Skip lets that many matching attempts pass first.
	Skip int
	// Count ends the fault after that many hits; 0 never does.
	Count int
}

// WebhookEffect is what a fault does to a delivery. Make one with the
// constructors below.
type WebhookEffect struct {
	kind  string
	times int
}

// DropWebhook loses the delivery for good, as though it had been acknowledged.
func DropWebhook() WebhookEffect { return WebhookEffect{kind: "drop"} }

// RepeatWebhook sends the same event n times in a row.
func RepeatWebhook(n int) WebhookEffect { return WebhookEffect{kind: "repeat", times: n} }

// TwinWebhook sends the event, and a second Event object with an id of its own
// about the same change.
func TwinWebhook() WebhookEffect { return WebhookEffect{kind: "twin"} }

// HoldWebhook keeps the delivery until Injection.Release; the next Tick,
// Advance or DeliverWebhooks then makes it.
func HoldWebhook() WebhookEffect { return WebhookEffect{kind: "hold"} }

// LoseWebhookAnswer sends the event, and takes the answer for a failure, so
// that it is sent again later.
func LoseWebhookAnswer() WebhookEffect { return WebhookEffect{kind: "lose"} }

// InjectWebhook puts a fault on deliveries into force. It panics when m.Type is
// no regular expression.
func (f *Faults) InjectWebhook(m WebhookMatch, e WebhookEffect) *Injection {
	kind := regexp.MustCompile("^(?:" + m.Type + ")$")
	matches := func(d Delivery) bool {
		return (m.Type == "" || kind.MatchString(d.Type)) && (m.Endpoint == "" || m.Endpoint == d.Endpoint || m.Endpoint == d.URL)
	}
	return f.posts.add(matches, e, m.Skip, m.Count)
}

// ShuffleWebhooks makes deliveries that are due at once go out in a random
// order of the server's seed.
func (f *Faults) ShuffleWebhooks(on bool) { f.shuffle.Store(on) }

// hold sets a delivery aside; it goes back to the queue, due at once, when the
// fault is released.
func (s *Server) hold(d *delivery, entry Delivery, by *Injection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent.add(&entry)
	d.attempts--
	s.held = append(s.held, heldDelivery{d, by})
}

// twin queues a copy of a delivery's event under another id.
func (s *Server) twin(d *delivery, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := *d.event
	e.record, e.pending, e.invoice = s.newRecord("evt", 24, d.event.created), 1, nil
	s.events.add(&e)
	s.enqueue(&delivery{event: &e, endpoint: d.endpoint, twin: true}, at)
}

type heldDelivery struct {
	delivery *delivery
	by       *Injection
}

// readmit queues the held deliveries whose fault was released.
func (s *Server) readmit() {
	if len(s.held) == 0 {
		return
	}
	var kept []heldDelivery
	for _, h := range s.held {
		if h.by.wasReleased() {
			s.enqueue(h.delivery, s.cursor)
			continue
		}
		kept = append(kept, h)
	}
	s.held = kept
}
