package ratelimit

import "time"

// Result is the answer to one call.
type Result struct {
	Allowed bool
	// Limit is the most that Remaining can be: this node's share of the units, or of a token bucket's burst.
	Limit int64
	// Remaining is what would pass right after this call, at the same instant.
	Remaining int64
	// RetryAfter is 0 when allowed. Else it is, to the nanosecond, when the same call passes if no other takes the
	// units first; with Never it is the window, a pace for clients who try regardless.
	RetryAfter time.Duration
	// Never: the call asks for more than the limit ever admits at once (or for less than nothing). Waiting doesn't
	// help, only a smaller call or another limit does.
	Never bool
	// Reset is when the whole limit is available again if nothing more is called; for a fixed window, when it ends.
	Reset time.Duration
}

// RetryAfterSeconds gives a wait as an HTTP Retry-After header needs it (RFC 9110, 10.2.3): whole seconds, rounded up,
// so that who waits as told is not too early; never below 1.
func RetryAfterSeconds(d time.Duration) int {
	if d <= time.Second {
		return 1
	}
	return int((d-1)/time.Second) + 1
}

func (sh *shape) allowed(remaining, reset int64) Result {
	return Result{Allowed: true, Limit: sh.capacity, Remaining: max(remaining, 0), Reset: time.Duration(reset)}
}

func (sh *shape) refused(remaining, retry, reset int64) Result {
	return Result{Limit: sh.capacity, Remaining: max(remaining, 0), RetryAfter: time.Duration(retry), Reset: time.Duration(reset)}
}
