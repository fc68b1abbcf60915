// Package problem writes what is wrong with a call as application/problem+json (RFC 9457).
//
// A body is printable ASCII on one line whatever text goes into it: it can be carried by a header, and nothing in it
// can split one.
package problem

import (
	"net/http"
	"strconv"
	"time"
)

// ContentType of every body.
const ContentType = "application/problem+json"

// docs is where a problem's type leads; the fragment is its code.
const docs = "https://github.com/weirhq/weir/blob/main/docs/http.md#"

// Codes of faults that are no decisions; those of decisions are their reasons.
const (
	InvalidRequest   = "invalid_request"
	UnknownFeature   = "unknown_feature"
	Unauthorized     = "unauthorized"
	Forbidden        = "forbidden"
	NotFound         = "not_found"
	MethodNotAllowed = "method_not_allowed"
	KeyConflict      = "key_conflict"
	BadGateway       = "bad_gateway"
	Internal         = "internal"
)

// Body is a problem that is being written. Make it with New; not for concurrent use.
type Body struct {
	Status int
	bytes  []byte
}

// New begins a problem: its status, its code (the members type and error), a title that is the same for every
// occurrence, and a message for people (the members detail and message).
func New(status int, code, title, message string) *Body {
	b := make([]byte, 0, 640)
	b = append(b, `{"type":`...)
	b = AppendString(b, docs+code)
	b = append(b, `,"title":`...)
	b = AppendString(b, title)
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, `,"detail":`...)
	b = AppendString(b, message)
	b = append(b, `,"error":`...)
	b = AppendString(b, code)
	b = append(b, `,"message":`...)
	b = AppendString(b, message)
	return &Body{Status: status, bytes: b}
}

func (b *Body) member(name string) {
	b.bytes = append(b.bytes, ',', '"')
	b.bytes = append(b.bytes, name...)
	b.bytes = append(b.bytes, '"', ':')
}

// Int adds a member that is a number.
func (b *Body) Int(name string, n int64) {
	b.member(name)
	b.bytes = strconv.AppendInt(b.bytes, n, 10)
}

// Null adds a member without a value.
func (b *Body) Null(name string) {
	b.member(name)
	b.bytes = append(b.bytes, "null"...)
}

// Text adds a member that is text.
func (b *Body) Text(name, text string) {
	b.member(name)
	b.bytes = AppendString(b.bytes, text)
}

// Time adds an instant, in UTC and whole seconds.
func (b *Body) Time(name string, at time.Time) {
	b.member(name)
	b.bytes = append(b.bytes, '"')
	b.bytes = at.UTC().AppendFormat(b.bytes, time.RFC3339)
	b.bytes = append(b.bytes, '"')
}

// Bytes returns the finished JSON object. The body may be added to and finished again.
func (b *Body) Bytes() []byte { return append(b.bytes[:len(b.bytes):len(b.bytes)], '}') }

// Write answers a request with the problem. Headers that were set before stay.
func (b *Body) Write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	body := append(b.Bytes(), '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(b.Status)
	_, _ = w.Write(body) // a caller who has gone is told nothing
}
