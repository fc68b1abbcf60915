package stripesim

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const meterEventRoute = "POST /v1/billing/meter_events"

// RateLimits are Stripe's limits; a zero field is no limit. Each is a bucket of
// one second's calls.
type RateLimits struct {
	// Account is calls per second of all endpoints together, without meter
	// events: 100 in live mode, 25 in test mode.
	Account int
	// Endpoint is calls per second of each endpoint: 25.
	Endpoint int
	// MeterEvents is meter events per second: 1,000 in live mode. In test mode
	// leave it 0 and set CountMeterEvents.
	MeterEvents int
	// CountMeterEvents counts meter events against Account too, as test mode
	// does.
	CountMeterEvents bool
	// OnePerCustomerAndMeter refuses a meter event while another one of the
	// same event name and payload[stripe_customer_id] is under way.
	OnePerCustomerAndMeter bool
	// Now is the time that limits are measured in; nil is real time.
	Now func() time.Time
}

type limiter struct {
	cfg     RateLimits
	account *rate.Limiter
	meter   *rate.Limiter

	mu       sync.Mutex
	routes   map[string]*rate.Limiter
	underway map[string]bool
}

func newLimiter(cfg RateLimits) *limiter {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &limiter{
		cfg: cfg, account: bucket(cfg.Account), meter: bucket(cfg.MeterEvents),
		routes: make(map[string]*rate.Limiter), underway: make(map[string]bool),
	}
}

func bucket(perSecond int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(perSecond), perSecond)
}

// enter counts a call; a call that got in must leave.
func (l *limiter) enter(c *call) *apiError {
	now := l.cfg.Now()
	if c.pattern == meterEventRoute {
		if !l.meter.AllowN(now, 1) {
			return rateLimited("endpoint-rate")
		}
		if l.cfg.CountMeterEvents && !l.account.AllowN(now, 1) {
			return rateLimited("global-rate")
		}
		return l.enterStream(c)
	}
	if !l.route(c.pattern).AllowN(now, 1) {
		return rateLimited("endpoint-rate")
	}
	if !l.account.AllowN(now, 1) {
		return rateLimited("global-rate")
	}
	return nil
}

func (l *limiter) route(pattern string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.routes[pattern]
	if !ok {
		r = bucket(l.cfg.Endpoint)
		l.routes[pattern] = r
	}
	return r
}

// enterStream takes the one place of a customer and event name.
func (l *limiter) enterStream(c *call) *apiError {
	if !l.cfg.OnePerCustomerAndMeter || c.request.Method != http.MethodPost {
		return nil
	}
	payload := c.form.root.kids["payload"]
	name := c.form.root.kids["event_name"]
	if payload == nil || name == nil {
		return nil
	}
	customer, ok := payload.kids["stripe_customer_id"]
	if !ok {
		return nil
	}
	stream := customer.text + "\x00" + name.text
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underway[stream] {
		return rateLimited("endpoint-concurrency")
	}
	l.underway[stream] = true
	c.stream = stream
	return nil
}

func (l *limiter) leave(c *call) {
	if c.stream == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.underway, c.stream)
}
