package billing

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v79"
)

// outcome is what is known of a call after it.
type outcome string

const (
	delivered outcome = "delivered" // accepted, now or by an earlier attempt
	rejected  outcome = "rejected"  // refused for what it says
	later     outcome = "later"     // not executed: rate limits, a lock, our own budget
	unknown   outcome = "unknown"   // may or may not have been executed
	stopped   outcome = "stopped"   // the key is not accepted: nothing was executed, nobody should go on
)

// duplicate is Stripe's message for an identifier that it has seen; there is no code for it.
var duplicate = regexp.MustCompile(`^An event already exists with identifier (.+?)\.?$`)

// noMeter is Stripe's message for a meter that is archived or was never there: a fault of the whole meter, so that the
// rows on it are kept as they are.
var noMeter = regexp.MustCompile(`^No active meter found`)

// judge says what a meter event's answer means. A timeout, a broken answer and a 5xx may hide an accepted event.
func judge(err error, identifier string) outcome {
	if err == nil {
		return delivered
	}
	var b *errBudget
	if errors.As(err, &b) {
		return later
	}
	var se *stripe.Error
	if !errors.As(err, &se) {
		return unknown
	}
	switch s := se.HTTPStatusCode; {
	case s == http.StatusBadRequest:
		if m := duplicate.FindStringSubmatch(se.Msg); m != nil && m[1] == identifier {
			return delivered
		}
		if se.Type == stripe.ErrorTypeIdempotency {
			return unknown
		}
		if noMeter.MatchString(se.Msg) {
			return later
		}
		return rejected
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return stopped
	case s == http.StatusTooManyRequests:
		return later
	case s == http.StatusConflict: // the same key is being used: by a call of which nobody here knows what came
		return unknown
	case s >= http.StatusBadRequest && s < http.StatusInternalServerError:
		return rejected
	}
	return unknown
}

// IsPermanent reports whether trying again cannot help: Stripe refused the request for what it says, or what is asked
// for does not exist.
func IsPermanent(err error) bool {
	var p *permanentError
	if errors.As(err, &p) {
		return true
	}
	var se *stripe.Error
	return errors.As(err, &se) && judge(se, "") == rejected
}

// Throttled reports how long to wait when Stripe, or our own budget, said that it is too much now.
func Throttled(err error) (time.Duration, bool) {
	var b *errBudget
	if errors.As(err, &b) {
		return b.wait, true
	}
	var se *stripe.Error
	if errors.As(err, &se) && judge(se, "") == later {
		return retryAfter(se), true
	}
	return 0, false
}

// permanentError is a fault of our own input that no retry mends.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// retryAfter is what a refusal asks for, between 1 s and 30 s.
func retryAfter(err error) time.Duration {
	var se *stripe.Error
	if errors.As(err, &se) && se.LastResponse != nil {
		if s, err := strconv.Atoi(se.LastResponse.Header.Get("Retry-After")); err == nil && s > 0 {
			return time.Duration(min(s, 30)) * time.Second
		}
	}
	return time.Second
}

func isMissing(err error) bool {
	var se *stripe.Error
	return errors.As(err, &se) && (se.HTTPStatusCode == http.StatusNotFound || se.Code == stripe.ErrorCodeResourceMissing)
}

func isStopped(err error) bool { return err != nil && judge(err, "") == stopped }

func statusOf(err error) (status int, request string) {
	var se *stripe.Error
	if errors.As(err, &se) {
		return se.HTTPStatusCode, se.RequestID
	}
	return 0, ""
}

func isNoMeter(err error) bool {
	var se *stripe.Error
	return errors.As(err, &se) && se.HTTPStatusCode == http.StatusBadRequest && noMeter.MatchString(se.Msg)
}
