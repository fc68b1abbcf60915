package stripesim

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v79/webhook"
)

// delivery is one event on its way to one endpoint.
type delivery struct {
	event    *event
	endpoint *endpoint
	alarm    alarm
	attempts int
	over     bool // acknowledged, dropped or given up
	twin     bool // made by TwinWebhook, which makes no twin of it
}

// Delivery is one attempt to deliver an event, in the log.
type Delivery struct {
	EventID, Type string
	// Endpoint is the id of the endpoint, URL its address.
	Endpoint, URL string
	// Attempt counts from 1.
	Attempt int
	At      time.Time
	// Status is the receiver's; 0 when there was no answer, or when a fault
	// kept the attempt from being made.
	Status int
	// Err says why there was no answer.
	Err string
	// Fault names what a fault did: "dropped", "held", "repeated", "twin",
	// "answer lost".
	Fault string
}

// retryDelays is Stripe's habit: exponential back-off up to three days in live
// mode, three retries over a few hours in a sandbox.
func retryDelays(live bool) []time.Duration {
	if !live {
		return []time.Duration{10 * time.Minute, time.Hour, 3 * time.Hour}
	}
	var out []time.Duration
	const threeDays = 72 * time.Hour
	for wait, total := 5*time.Minute, time.Duration(0); total+wait <= threeDays; wait = min(2*wait, 12*time.Hour) {
		out = append(out, wait)
		total += wait
	}
	return out
}

// post queues an event for every endpoint that wants it.
func (s *Server) post(at time.Time, e *event) {
	for _, to := range s.endpoints.rows {
		if to.thin != (e.shapes == nil) || !to.wants(e.kind) {
			continue
		}
		e.pending++
		s.enqueue(&delivery{event: e, endpoint: to}, at)
	}
}

func (s *Server) enqueue(d *delivery, at time.Time) {
	d.alarm.generation++
	s.seq++
	heap.Push(&s.outbox, &task{at: at, order: s.seq, alarm: &d.alarm, generation: d.alarm.generation, delivery: d})
	select {
	case s.stirred <- struct{}{}:
	default:
	}
}

// DeliverWebhooks makes every delivery that is due now, in order of its time,
// those that arise meanwhile included, and returns how many attempts it made.
// Time does not move. A webhook receiver must not call it.
func (s *Server) DeliverWebhooks(ctx context.Context) (int, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	for n := 0; ; n++ {
		if err := ctx.Err(); err != nil {
			return n, fmt.Errorf("deliver webhooks: %w", err)
		}
		d, at := s.nextDelivery()
		if d == nil {
			return n, nil
		}
		s.attempt(ctx, d, at)
	}
}

func (s *Server) nextDelivery() (*delivery, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readmit()
	now := s.now()
	next := s.outbox.peek()
	if next == nil || next.at.After(now) {
		return nil, now
	}
	return s.takeDelivery(now), now
}

// takeDelivery takes the next due delivery, or a random due one under
// ShuffleWebhooks.
func (s *Server) takeDelivery(now time.Time) *delivery {
	if !s.faults.shuffle.Load() {
		return heap.Pop(&s.outbox).(*task).delivery
	}
	var due []*task
	for _, t := range s.outbox {
		if !t.at.After(now) && t.alarm.generation == t.generation {
			due = append(due, t)
		}
	}
	t := due[s.rng.IntN(len(due))]
	t.alarm.generation++ // it leaves the queue when it is next looked at
	return t.delivery
}

// attempt makes one delivery, unless a fault does something else. It is called
// without the lock.
func (s *Server) attempt(ctx context.Context, d *delivery, at time.Time) {
	s.mu.Lock()
	if !d.endpoint.enabled {
		s.conclude(d, at)
	}
	if d.over {
		s.mu.Unlock()
		return
	}
	d.attempts++
	body, header := s.sign(d, s.now())
	entry := Delivery{EventID: d.event.id, Type: d.event.kind, Endpoint: d.endpoint.id, URL: d.endpoint.url, Attempt: d.attempts, At: at}
	s.mu.Unlock()

	sends, lost := 1, false
	for _, hit := range s.faults.posts.strike(entry) {
		switch hit.effect.kind {
		case "drop":
			entry.Fault = "dropped"
			s.finish(d, entry, true)
			return
		case "hold":
			if hit.wasReleased() {
				continue
			}
			entry.Fault = "held"
			s.hold(d, entry, hit.Injection)
			return
		case "repeat":
			entry.Fault, sends = "repeated", hit.effect.times
		case "twin":
			if !d.twin {
				entry.Fault = "twin"
				s.twin(d, at)
			}
		case "lose":
			entry.Fault, lost = "answer lost", true
		}
	}
	for range sends {
		entry.Status, entry.Err = s.send(ctx, d.endpoint.url, body, header)
	}
	s.finish(d, entry, !lost && entry.Status >= 200 && entry.Status < 300)
}

func (s *Server) send(ctx context.Context, url string, body []byte, signature string) (int, string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("Stripe-Signature", signature)
	req.Header.Set("User-Agent", "Stripe/1.0 (+https://stripe.com/docs/webhooks)")
	res, err := s.cfg.HTTPClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, maxBody)); err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, ""
}

// sign renders the payload for the endpoint and signs it for this attempt.
func (s *Server) sign(d *delivery, at time.Time) ([]byte, string) {
	payload := s.renderThin(d.event, false)
	if !d.endpoint.thin {
		payload = s.renderEvent(d.event, d.endpoint.version)
	}
	body, err := indented(payload)
	if err != nil {
		s.log.Error("the simulator made a webhook that is no JSON", "event", d.event.id, "error", err)
	}
	parts := []string{fmt.Sprintf("t=%d", at.Unix())}
	for _, secret := range d.endpoint.secrets {
		if secret.until.IsZero() || at.Before(secret.until) {
			parts = append(parts, "v1="+hex.EncodeToString(webhook.ComputeSignature(at, body, secret.text)))
		}
	}
	return body, strings.Join(parts, ",")
}

// finish stores the outcome of an attempt and plans the next one.
func (s *Server) finish(d *delivery, entry Delivery, acked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent.add(&entry)
	s.log.Debug("stripe simulator delivered", "event", d.event.id, "type", d.event.kind, "status", entry.Status, "fault", entry.Fault, "error", entry.Err)
	if acked {
		s.conclude(d, entry.At)
		return
	}
	if d.attempts > len(s.cfg.RetryDelays) {
		d.over = true
		return
	}
	s.enqueue(d, entry.At.Add(s.cfg.RetryDelays[d.attempts-1]))
}

// conclude ends a delivery that was acknowledged, or that nobody waits for.
func (s *Server) conclude(d *delivery, at time.Time) {
	d.over = true
	d.event.pending--
	if d.event.invoice != nil && d.event.pending == 0 {
		s.acknowledged(d.event.invoice, at)
	}
}

// Deliveries are the attempts to deliver webhooks so far, oldest first, at most
// Config.HistorySize.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Delivery, 0, len(s.sent.all()))
	for _, d := range s.sent.all() {
		out = append(out, *d)
	}
	return out
}

// Run performs what is due, and delivers webhooks as they arise, until ctx ends
// or Close is called: for a demo whose clock runs by itself. It looks at the
// clock every interval of real time.
func (s *Server) Run(ctx context.Context, interval time.Duration) error {
	look := time.NewTicker(interval)
	defer look.Stop()
	for {
		if err := s.Tick(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.closed:
			return nil
		case <-look.C:
		case <-s.stirred:
		}
	}
}
