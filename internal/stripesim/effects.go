package stripesim

import (
	"net/http"
	"time"
)

// Effect is what a fault does to a call. Make one with the constructors below.
type Effect struct {
	apply func(*plan, *Injection)
}

// plan is what the faults have decided about one call.
type plan struct {
	refusal      *apiError // before authentication and idempotency
	failure      *apiError // instead of execution
	failureAfter *apiError // instead of the answer of the execution
	before       []gate
	after        []gate
	header       map[string]string
	drop         bool
	truncate     bool
	cut          bool
}

type gate struct {
	open <-chan struct{}
	most time.Duration
}

func (p plan) waitBefore(closed <-chan struct{}) { waitAll(p.before, closed) }
func (p plan) waitAfter(closed <-chan struct{})  { waitAll(p.after, closed) }

func waitAll(gates []gate, closed <-chan struct{}) {
	for _, g := range gates {
		var expired <-chan time.Time
		if g.most > 0 {
			expired = time.After(g.most)
		}
		select {
		case <-g.open:
		case <-expired:
		case <-closed:
		}
	}
}

// WithHeader adds a header to the answer, such as Retry-After to a 429.
func (e Effect) WithHeader(name, value string) Effect {
	return Effect{apply: func(p *plan, i *Injection) {
		e.apply(p, i)
		if p.header == nil {
			p.header = make(map[string]string)
		}
		p.header[name] = value
	}}
}

// RateLimited answers 429 with code rate_limit and the reason in
// Stripe-Rate-Limited-Reason ("global-rate", "endpoint-concurrency", …).
// Nothing is executed or kept.
func RateLimited(reason string) Effect { return refuse(rateLimited(reason)) }

// LockTimeout answers 429 with code lock_timeout and without a reason header;
// stripe-go retries it by itself. Nothing is executed or kept.
func LockTimeout() Effect { return refuse(lockTimeout()) }

// Unauthorized answers 401 as for a revoked key.
func Unauthorized() Effect {
	return refuse(&apiError{status: http.StatusUnauthorized, typ: typeInvalidRequest, message: "Invalid API Key provided: sk_revoked", unexecuted: true})
}

// Forbidden answers 403 as for a restricted key without the permission.
func Forbidden() Effect {
	return refuse(&apiError{
		status: http.StatusForbidden, typ: typeInvalidRequest, unexecuted: true,
		message: "The provided key does not have the required permissions for this endpoint. Having more permissions would allow this request to continue.",
	})
}

// Unavailable answers the status (500–599) before anything is executed; nothing
// is kept, so the same Idempotency-Key may succeed later.
func Unavailable(status int) Effect { return refuse(serverError(status)) }

// FailAndKeep answers the status instead of executing, and keeps that answer
// under the call's Idempotency-Key for 24 hours, as Stripe does with a 500 that
// arose during execution.
func FailAndKeep(status int) Effect {
	e := serverError(status)
	return Effect{apply: func(p *plan, _ *Injection) { p.failure = e }}
}

// ExecuteAndFail executes the call, yet answers the status, and keeps that
// answer under the Idempotency-Key: the effect is there, the caller is told
// otherwise.
func ExecuteAndFail(status int) Effect {
	e := serverError(status)
	return Effect{apply: func(p *plan, _ *Injection) { p.failureAfter = e }}
}

// Refuse answers a 400 with this message and code (may be "") from execution:
// it is kept under the Idempotency-Key.
func Refuse(message, code string) Effect {
	e := invalid("%s", message).withCode(code)
	return Effect{apply: func(p *plan, _ *Injection) { p.failure = e }}
}

// DropAnswer executes the call and cuts the connection before any byte of the
// answer.
func DropAnswer() Effect { return Effect{apply: func(p *plan, _ *Injection) { p.drop = true }} }

// Truncate executes the call and answers well-formed HTTP with half the JSON.
func Truncate() Effect { return Effect{apply: func(p *plan, _ *Injection) { p.truncate = true }} }

// CutBody executes the call and cuts the connection in the middle of the body.
func CutBody() Effect { return Effect{apply: func(p *plan, _ *Injection) { p.cut = true }} }

// StallBefore holds a call after its Idempotency-Key was claimed and before it
// is executed, until Injection.Release, Server.Close, or, when most > 0, that
// much real time. A caller that leaves meanwhile does not undo it: the call is
// executed on release.
func StallBefore(most time.Duration) Effect {
	return Effect{apply: func(p *plan, i *Injection) { p.before = append(p.before, gate{open: i.released, most: most}) }}
}

// StallAfter executes the call and holds its answer, like StallBefore.
func StallAfter(most time.Duration) Effect {
	return Effect{apply: func(p *plan, i *Injection) { p.after = append(p.after, gate{open: i.released, most: most}) }}
}

func refuse(e *apiError) Effect {
	return Effect{apply: func(p *plan, _ *Injection) { p.refusal = e }}
}

func serverError(status int) *apiError {
	return &apiError{
		status: status, typ: typeAPI,
		message: "An unknown error occurred while processing the request.",
	}
}
