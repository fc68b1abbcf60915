package enforcer

import (
	"errors"
	"net/http"
	"strings"

	"github.com/weirhq/weir/internal/edge/problem"
)

// Fail answers a request with an error of this package, and returns the status: 503 for what can't be decided, 400 for
// bad arguments, 409 for a key that was used for another call, a refusal's own status; 500 for any other error, of
// which the answer tells nothing.
func (a Answers) Fail(w http.ResponseWriter, err error) int {
	if d, ok := undecided(err); ok {
		a.Refuse(w, d)
		return a.Status(d)
	}
	p := faultOf(err)
	p.Write(w)
	return p.Status
}

// ErrorProblem is the status and the body that Fail answers with.
func (a Answers) ErrorProblem(err error) (status int, body []byte) {
	if d, ok := undecided(err); ok {
		return a.Status(d), a.Problem(d)
	}
	p := faultOf(err)
	return p.Status, p.Bytes()
}

// undecided returns the refusal that an error stands for.
func undecided(err error) (Decision, bool) {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return refused.Decision, true
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrReservationsFull):
		return Decision{Reason: Unavailable}, true
	}
	return Decision{}, false
}

func faultOf(err error) *problem.Body {
	switch {
	case errors.Is(err, ErrUnknownFeature):
		return problem.New(http.StatusBadRequest, problem.UnknownFeature, "Unknown feature",
			capital(err.Error())+": use one of the plan file's features, or add it there and apply the file.")
	case errors.Is(err, ErrInvalidAccount), errors.Is(err, ErrInvalidUnits), errors.Is(err, ErrInvalidKey):
		message := strings.TrimSuffix(err.Error(), ": "+ErrInvalidUnits.Error()) // which is not what was wrong with 0 units
		return problem.New(http.StatusBadRequest, problem.InvalidRequest, "Invalid request", capital(message)+".")
	case errors.Is(err, ErrKeyConflict):
		return problem.New(http.StatusConflict, problem.KeyConflict, "Idempotency key conflict",
			capital(err.Error())+": repeat the call as it was, or take a new key.")
	}
	return problem.New(http.StatusInternalServerError, problem.Internal, "Internal error",
		"The call could not be answered. The server's log says why.")
}

// capital makes an error's text the beginning of a sentence, as all details are.
func capital(text string) string {
	return strings.ToUpper(text[:1]) + text[1:]
}
