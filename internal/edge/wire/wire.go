// Package wire reads the sidecar's request bodies: flat JSON objects, or lists of them, read strictly.
//
// What encoding/json lets pass is refused here: unknown and repeated members, names in another case, null, text that
// is not UTF-8 (two broken account ids would become one), fractions and exponents. A list of a hundred calls is read in
// a few microseconds, which encoding/json takes ten times over.
package wire

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Field is a set of members.
type Field uint8

// The members that a body may have.
const (
	Account Field = 1 << iota // text
	Feature                   // text
	Units                     // a whole number
	Rate                      // true or false: whether the plan's rate limit is asked first
	Caller                    // text: the key of the rate limit within the account
	Key                       // text: idempotency_key
	fields  = 6
)

var names = [fields]string{"account", "feature", "units", "rate", "caller", "idempotency_key"}

// Call is what a request asks for. What Has does not name is at its default: 1 unit, and true for Rate.
type Call struct {
	Has     Field
	Account string
	Feature string
	Units   int64
	Rate    bool
	Caller  string
	Key     string
}

// Error says what is wrong with a body, and where.
type Error struct {
	What   string
	Line   int // from 1; 0 when the place is the body as a whole
	Column int // from 1, in bytes
	Call   int // from 1, in a list; 0 otherwise
}

func (e *Error) Error() string {
	switch {
	case e.Line == 0:
		return e.What
	case e.Call > 0:
		return fmt.Sprintf("call %d, line %d, column %d: %s", e.Call, e.Line, e.Column, e.What)
	default:
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.What)
	}
}

// Shape is what a body must look like.
type Shape struct {
	Allowed  Field
	Required Field
	Most     int // calls in a list; 0: no list is taken
}

// Parse reads one call, or a list of 1 to Most of them; list tells which it was. The error is an *Error. Nothing in
// the calls refers to body. They are appended to into[:0], which may be nil.
func Parse(into []Call, body []byte, s Shape) (calls []Call, list bool, err error) {
	if !utf8.Valid(body) {
		return nil, false, &Error{What: "the body is not UTF-8"}
	}
	p := &parser{b: body, shape: s, into: into[:0]}
	calls, list, fault := p.body()
	if fault != nil {
		before := body[:min(p.i, len(body))]
		fault.Line = bytes.Count(before, []byte("\n")) + 1
		fault.Column = len(before) - bytes.LastIndexByte(before, '\n')
		if list {
			fault.Call = len(calls) + 1
		}
		return nil, list, fault
	}
	return calls, list, nil
}

func (p *parser) body() (calls []Call, list bool, fault *Error) {
	p.space()
	switch p.peek() {
	case '{':
		calls = p.into
		calls = append(calls, Call{})
		if fault = p.object(&calls[0]); fault == nil {
			fault = p.end()
		}
		return calls, false, fault
	case '[':
		if p.shape.Most == 0 {
			return nil, false, p.fault("this route takes one JSON object, no list")
		}
		p.i++
		calls, fault = p.list()
		if fault == nil {
			fault = p.end()
		}
		return calls, true, fault
	case 0:
		return nil, false, p.fault("the body is empty: send a JSON object")
	}
	if bytes.HasPrefix(p.b[p.i:], []byte("\ufeff")) {
		return nil, false, p.fault("the body begins with a byte order mark: send it without")
	}
	return nil, false, p.fault("the body is no JSON object")
}

func (p *parser) list() (calls []Call, fault *Error) {
	calls = p.into
	for {
		p.space()
		if p.peek() == ']' && len(calls) == 0 {
			return calls, p.fault("the list is empty: send 1 to %d calls", p.shape.Most)
		}
		if len(calls) == p.shape.Most {
			return calls, p.fault("the list has more than %d calls: send several requests", p.shape.Most)
		}
		if p.peek() != '{' {
			return calls, p.fault("a list holds JSON objects")
		}
		calls = append(calls, Call{})
		if fault := p.object(&calls[len(calls)-1]); fault != nil {
			return calls[:len(calls)-1], fault
		}
		p.space()
		switch p.peek() {
		case ',':
			p.i++
		case ']':
			p.i++
			return calls, nil
		default:
			return calls, p.fault("a comma or the end of the list is missing")
		}
	}
}

func (p *parser) end() *Error {
	p.space()
	if p.i < len(p.b) {
		return p.fault("something follows the JSON value: send one")
	}
	return nil
}
