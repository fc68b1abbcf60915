package stripesim

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

// Clock is the time that a Server follows. It must be safe for concurrent use
// and must not run backwards.
type Clock interface {
	Now() time.Time
}

// Config says how a Server behaves. The zero value is a test-mode account on
// its own clock, without webhooks, rate limits or lag.
type Config struct {
	// Clock is followed by Tick. Nil gives the server its own clock, which
	// starts at Start and is moved by Advance.
	Clock Clock
	// Start is the own clock's first instant; zero is 2026-01-01T00:00:00Z.
	Start time.Time
	// Logger gets one debug line per call and delivery; nil discards them.
	Logger *slog.Logger
	// APIKey is the only key accepted; empty is "sk_test_simulator". A key that
	// begins with sk_live_ or rk_live_ makes all objects live.
	APIKey string
	// DefaultVersion is the account's API version: the shape of requests
	// without a Stripe-Version header and of endpoints without one. Empty is
	// 2024-06-20.
	DefaultVersion string
	// Webhooks are the endpoints that exist from the start; more can be made
	// through the API.
	Webhooks []Webhook
	// Seed drives every identifier and every shuffle: the same seed and calls
	// give the same answers.
	Seed uint64

	// GracePeriod is how long a cycle invoice stays a draft: zero is one hour,
	// at most 72 hours.
	GracePeriod time.Duration
	// HideDeadline leaves automatically_finalizes_at null on drafts that will
	// be finalized all the same.
	HideDeadline bool
	// SummaryLag is how long an accepted meter event is missing from summaries.
	SummaryLag time.Duration
	// InvoiceLag is how long an accepted meter event is missing from invoices.
	InvoiceLag time.Duration
	// OmitEmptySummaries leaves windows without events out of summary lists,
	// instead of showing them with 0.
	OmitEmptySummaries bool
	// AsyncValidation accepts meter events of unknown customers and of event
	// names without an active meter, and rejects them afterwards by thin event.
	AsyncValidation bool
	// ReportDelay is the time from the first asynchronous rejection on a meter
	// to the thin event about it; zero is one minute.
	ReportDelay time.Duration
	// ReportStyle is how a thin event names the rejected requests.
	ReportStyle ReportStyle
	// SamplesPerError bounds sample_errors per code in a thin event; zero is 5.
	SamplesPerError int

	// Limits are the rate limits; the zero value has none.
	Limits RateLimits

	// ManualDelivery keeps Tick and Advance from sending webhooks:
	// DeliverWebhooks alone does.
	ManualDelivery bool
	// RetryDelays are the waits between the attempts of one delivery. Nil is
	// Stripe's habit: in live mode back-off up to three days, in test mode three
	// retries within a few hours. Empty and not nil is no retry.
	RetryDelays []time.Duration
	// HTTPClient sends webhooks; nil is a client with a timeout of 10 s.
	HTTPClient *http.Client

	// WantedEventsOnly makes no events that no endpoint wants: the events API
	// does not list them, and large runs take less time and memory.
	WantedEventsOnly bool
	// HistorySize bounds each of the logs: calls, deliveries, events. The
	// oldest are forgotten. Zero is 100,000.
	HistorySize int
	// MaxMeterEvents bounds the stored meter events; further ones get a 500
	// that says so. Zero is 5,000,000.
	MaxMeterEvents int
	// MaxIdempotencyKeys bounds the kept answers; beyond it the oldest is
	// forgotten before its 24 hours. Zero is 1,000,000.
	MaxIdempotencyKeys int
}

// ReportStyle selects what a meter error report says about a sample's request.
// The documentation disagrees with itself, so receivers must read all three.
type ReportStyle int

const (
	// ReportIdentifier puts the meter event's identifier in request.identifier.
	ReportIdentifier ReportStyle = iota
	// ReportIdempotencyKey puts the request's Idempotency-Key in
	// request.identifier.
	ReportIdempotencyKey
	// ReportRequest gives request.id and request.idempotency_key, as an older
	// example does.
	ReportRequest
)

// Webhook is an endpoint to which events are sent.
type Webhook struct {
	// URL receives the POST.
	URL string
	// Secret signs it; required.
	Secret string
	// APIVersion shapes the payload; empty is the account's.
	APIVersion string
	// Events are the types wanted; empty, or "*", is all.
	Events []string
	// Thin makes it an event destination for thin v2 events instead of an
	// endpoint for snapshot events.
	Thin bool
}

func (c Config) withDefaults() Config {
	if c.Start.IsZero() {
		c.Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.APIKey == "" {
		c.APIKey = "sk_test_simulator"
	}
	if c.DefaultVersion == "" {
		c.DefaultVersion = string(versionPinned)
	}
	if c.GracePeriod == 0 {
		c.GracePeriod = time.Hour
	}
	if c.ReportDelay == 0 {
		c.ReportDelay = time.Minute
	}
	if c.SamplesPerError == 0 {
		c.SamplesPerError = 5
	}
	if c.HTTPClient == nil {
		c.HTTPClient = &http.Client{Timeout: 10 * time.Second}
	}
	if c.RetryDelays == nil {
		c.RetryDelays = retryDelays(livemode(c.APIKey))
	}
	if c.HistorySize == 0 {
		c.HistorySize = 100_000
	}
	if c.MaxMeterEvents == 0 {
		c.MaxMeterEvents = 5_000_000
	}
	if c.MaxIdempotencyKeys == 0 {
		c.MaxIdempotencyKeys = 1_000_000
	}
	return c
}

func (c Config) validate() error {
	if !validVersion(c.DefaultVersion) {
		return fmt.Errorf("Config.DefaultVersion %q is no API version", c.DefaultVersion)
	}
	if c.GracePeriod < 0 || c.GracePeriod > 72*time.Hour {
		return fmt.Errorf("Config.GracePeriod is %s: give 0 to 72h", c.GracePeriod)
	}
	if c.SummaryLag < 0 || c.InvoiceLag < 0 || c.ReportDelay < 0 {
		return fmt.Errorf("Config: lags and delays cannot be negative")
	}
	if c.HistorySize < 0 || c.MaxMeterEvents < 0 || c.MaxIdempotencyKeys < 0 || c.SamplesPerError < 0 {
		return fmt.Errorf("Config: bounds cannot be negative")
	}
	for i, w := range c.Webhooks {
		if w.URL == "" || w.Secret == "" {
			return fmt.Errorf("Config.Webhooks[%d] needs a URL and a secret", i)
		}
		if w.APIVersion != "" && !validVersion(w.APIVersion) {
			return fmt.Errorf("Config.Webhooks[%d].APIVersion %q is no API version", i, w.APIVersion)
		}
	}
	return nil
}

func livemode(key string) bool {
	return strings.HasPrefix(key, "sk_live_") || strings.HasPrefix(key, "rk_live_")
}
