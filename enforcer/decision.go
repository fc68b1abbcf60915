package enforcer

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Reason says why a call was answered as it was.
type Reason string

// The reasons of a Decision.
const (
	OK            Reason = "ok"
	QuotaExceeded Reason = "quota_exceeded" // money is the fix
	RateLimited   Reason = "rate_limited"   // time is the fix
	NotInPlan     Reason = "not_in_plan"
	Unavailable   Reason = "unavailable" // Weir can't tell now, and the plan says not to go on
)

// Errors that callers branch on.
var (
	ErrInvalidUnits   = errors.New("units must not be negative")
	ErrInvalidAccount = errors.New("an account id is 1 to 255 bytes of text without control characters or blanks at its ends")
	ErrUnknownFeature = errors.New("no plan knows this feature")
	ErrKeyConflict    = errors.New("the idempotency key was used for another call")
	ErrInvalidKey     = errors.New("an idempotency key is 1 to 255 bytes of text without control characters")
	ErrUnavailable    = errors.New("the enforcer can't decide")
)

// Terms are the conditions that a decision was made under. They are shared and never changed.
type Terms struct {
	Plan       string
	Feature    string
	StartsAt   time.Time // of the period
	ResetsAt   time.Time // the period's end, when the next allowance begins
	BillsAbove bool      // on_exceeded: bill_overage
	Included   int64     // units of the period; unless Unlimited
	Unlimited  bool
	Maximum    int64 // overage units that may be admitted; -1: no bound
	Shadow     bool  // decide and record, refuse nothing
	UpgradeURL string
}

// Decision is the answer to a call. The zero value is a refusal without a reason.
type Decision struct {
	Allowed   bool
	Reason    Reason
	Used      int64 // in this period over all nodes, as far as this node knows: at most a flush interval old
	Limit     int64 // included units, or calls per window of a rate limit; 0 when Unlimited
	Remaining int64 // of Limit; on a refusal what the database said; 0 when Unlimited
	Overage   int64 // units past Limit that are billed
	Unlimited bool
	// RetryAfter is when the same call may pass, for rate limits and unavailable; 0 for quotas: no wait of seconds
	// refills a month.
	RetryAfter time.Duration
	Terms      *Terms // nil for a rate limit, and where no period is known
}

// Err is nil when the call is allowed, and a *RefusedError otherwise.
func (d Decision) Err() error {
	if d.Allowed {
		return nil
	}
	return &RefusedError{Decision: d}
}

// RefusedError is a refusal as an error. It wraps ErrUnavailable when that is the reason.
type RefusedError struct{ Decision Decision }

func (e *RefusedError) Error() string {
	d := e.Decision
	switch d.Reason {
	case QuotaExceeded:
		return fmt.Sprintf("quota exceeded: %d of %d %s used", d.Used, d.Limit, d.feature())
	case RateLimited:
		return fmt.Sprintf("rate limit of %d exceeded: retry after %s", d.Limit, d.RetryAfter)
	case NotInPlan:
		return "the plan does not include " + d.feature()
	default:
		return ErrUnavailable.Error()
	}
}

// Unwrap returns ErrUnavailable for a decision that could not be made.
func (e *RefusedError) Unwrap() error {
	if e.Decision.Reason == Unavailable {
		return ErrUnavailable
	}
	return nil
}

func (d Decision) feature() string {
	if d.Terms == nil {
		return "units"
	}
	return d.Terms.Feature
}

// MarshalJSON writes the contract's form: limit and remaining are null when unlimited, instants are RFC 3339 in UTC,
// retry_after is in seconds.
func (d Decision) MarshalJSON() ([]byte, error) {
	out := struct {
		Allowed    bool    `json:"allowed"`
		Reason     Reason  `json:"reason"`
		Plan       string  `json:"plan,omitempty"`
		Feature    string  `json:"feature,omitempty"`
		Limit      *int64  `json:"limit"`
		Used       int64   `json:"used"`
		Remaining  *int64  `json:"remaining"`
		Overage    int64   `json:"overage"`
		ResetsAt   *string `json:"resets_at,omitempty"`
		RetryAfter float64 `json:"retry_after,omitempty"`
	}{Allowed: d.Allowed, Reason: d.Reason, Used: d.Used, Overage: d.Overage, RetryAfter: d.RetryAfter.Seconds()}
	if !d.Unlimited {
		out.Limit, out.Remaining = &d.Limit, &d.Remaining
	}
	if d.Terms != nil {
		out.Plan, out.Feature = d.Terms.Plan, d.Terms.Feature
		if !d.Terms.ResetsAt.IsZero() {
			at := d.Terms.ResetsAt.UTC().Format(time.RFC3339)
			out.ResetsAt = &at
		}
	}
	return json.Marshal(out)
}
