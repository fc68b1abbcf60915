package stripesim

import (
	"fmt"
	"net/http"
)

const (
	typeInvalidRequest = "invalid_request_error"
	typeIdempotency    = "idempotency_error"
	typeAPI            = "api_error"
)

// apiError is an answer in Stripe's error format.
type apiError struct {
	status  int
	typ     string
	code    string
	message string
	param   string
	header  map[string]string
	// unexecuted is set for refusals that come before an endpoint begins to
	// run; only the others are kept by the idempotency layer.
	unexecuted bool
}

func (e *apiError) Error() string {
	return fmt.Sprintf("stripe answers %d: %s", e.status, e.message)
}

func (e *apiError) body(requestID string) object {
	inner := object{"message": e.message, "type": e.typ}
	if e.code != "" {
		inner["code"] = e.code
		inner["doc_url"] = "https://stripe.com/docs/error-codes/" + hyphenated(e.code)
	}
	if e.param != "" {
		inner["param"] = e.param
	}
	inner["request_log_url"] = "https://dashboard.stripe.com/logs/" + requestID
	return object{"error": inner}
}

func hyphenated(code string) string {
	out := []byte(code)
	for i, b := range out {
		if b == '_' {
			out[i] = '-'
		}
	}
	return string(out)
}

func invalid(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, typ: typeInvalidRequest, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) withCode(code string) *apiError {
	e.code = code
	return e
}

func (e *apiError) withParam(param string) *apiError {
	e.param = param
	return e
}

func (e *apiError) withHeader(name, value string) *apiError {
	if e.header == nil {
		e.header = make(map[string]string, 1)
	}
	e.header[name] = value
	return e
}

func (e *apiError) beforeExecution() *apiError {
	e.unexecuted = true
	return e
}

// missing answers a look-up by path of an object that isn't there.
func missing(kind, id string) *apiError {
	e := invalid("No such %s: '%s'", kind, id).withCode("resource_missing").withParam("id")
	e.status = http.StatusNotFound
	return e
}

// missingParam answers a parameter that names an object that isn't there.
func missingParam(kind, id, param string) *apiError {
	return invalid("No such %s: '%s'", kind, id).withCode("resource_missing").withParam(param)
}

func unauthorized(key string) *apiError {
	message := "You did not provide an API key. You need to provide your API key in the Authorization header, using Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
	if key != "" {
		message = "Invalid API Key provided: " + redacted(key)
	}
	return (&apiError{status: http.StatusUnauthorized, typ: typeInvalidRequest, message: message}).beforeExecution()
}

func redacted(key string) string {
	if len(key) <= 12 {
		return "********"
	}
	return key[:8] + "********" + key[len(key)-4:]
}

func rateLimited(reason string) *apiError {
	e := &apiError{
		status: http.StatusTooManyRequests, typ: typeInvalidRequest, code: "rate_limit",
		message: "Request rate limit exceeded. Learn more about rate limits here https://stripe.com/docs/rate-limits.",
	}
	return e.withHeader("Stripe-Rate-Limited-Reason", reason).beforeExecution()
}

func lockTimeout() *apiError {
	e := &apiError{
		status: http.StatusTooManyRequests, typ: typeInvalidRequest, code: "lock_timeout",
		message: "This object cannot be accessed right now because another API request or Stripe process is currently accessing it. " +
			"If you see this error intermittently, retry the request.",
	}
	return e.beforeExecution()
}
