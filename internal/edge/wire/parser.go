package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// parser reads a body from i on. At a fault, i is where it lies.
type parser struct {
	b     []byte
	i     int
	shape Shape
	into  []Call
	last  [fields]string // what calls of a list repeat is kept once
}

func (p *parser) fault(format string, args ...any) *Error {
	return &Error{What: fmt.Sprintf(format, args...)}
}

// peek returns the byte at i, or 0 at the end.
func (p *parser) peek() byte {
	if p.i < len(p.b) {
		return p.b[p.i]
	}
	return 0
}

// space skips blanks, of which most programs write none.
func (p *parser) space() {
	if p.i < len(p.b) && p.b[p.i] <= ' ' {
		p.blanks()
	}
}

func (p *parser) blanks() {
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

// object reads a call; i is at its brace.
func (p *parser) object(c *Call) *Error {
	c.Units, c.Rate = 1, true
	p.i++
	p.space()
	if p.peek() == '}' {
		p.i++
		return p.missing(c.Has)
	}
	for {
		p.space()
		if fault := p.member(c); fault != nil {
			return fault
		}
		p.space()
		switch p.peek() {
		case ',':
			p.i++
		case '}':
			p.i++
			return p.missing(c.Has)
		default:
			return p.fault("a comma or a closing brace is missing")
		}
	}
}

func (p *parser) missing(has Field) *Error {
	if has&p.shape.Required == p.shape.Required {
		return nil
	}
	for i, name := range names {
		if f := Field(1) << i; p.shape.Required&f != 0 && has&f == 0 {
			return p.fault("the member %q is missing", name)
		}
	}
	return nil
}

func (p *parser) member(c *Call) *Error {
	f := p.plainName(p.shape.Allowed &^ c.Has)
	if f == 0 {
		var fault *Error
		if f, fault = p.name(c.Has); fault != nil {
			return fault
		}
	}
	c.Has |= f
	p.space()
	var fault *Error
	switch f {
	case Units:
		c.Units, fault = p.whole("units")
	case Rate:
		c.Rate, fault = p.boolean("rate")
	case Account:
		c.Account, fault = p.text("account", &p.last[0])
	case Feature:
		c.Feature, fault = p.text("feature", &p.last[1])
	case Caller:
		c.Caller, fault = p.text("caller", &p.last[4])
	case Key:
		c.Key, fault = p.text("idempotency_key", &p.last[5])
	}
	return fault
}

// plainName reads a member's name and its colon as most programs write them, a colon right after a name that is open; i stays
// where it is and the result is 0 when they are anything else.
func (p *parser) plainName(open Field) Field {
	rest := p.b[p.i:]
	if len(rest) < 2 || rest[0] != '"' {
		return 0
	}
	for i, name := range names {
		end := len(name) + 2
		if name[0] == rest[1] && len(rest) > end && rest[end] == ':' && rest[end-1] == '"' && string(rest[1:end-1]) == name {
			f := Field(1) << i
			if open&f == 0 {
				return 0
			}
			p.i += end + 1
			return f
		}
	}
	return 0
}

// name reads a member's name and its colon, or says what is wrong with them; has are the members that are there.
func (p *parser) name(has Field) (Field, *Error) {
	at := p.i
	name, fault := p.raw("a member's name in quotes")
	if fault != nil {
		return 0, fault
	}
	f := p.field(name)
	if f == 0 {
		p.i = at
		return 0, p.fault("the member %.40q is unknown: this route takes %s", name, p.known())
	}
	if has&f != 0 {
		p.i = at
		return 0, p.fault("the member %q is there twice", name)
	}
	p.space()
	if p.peek() != ':' {
		return 0, p.fault("a colon is missing after %q", name)
	}
	p.i++
	return f, nil
}

func (p *parser) field(name []byte) Field {
	for i := range names {
		if f := Field(1) << i; p.shape.Allowed&f != 0 && string(name) == names[i] {
			return f
		}
	}
	return 0
}

func (p *parser) known() string {
	var list []string
	for i, name := range names {
		if p.shape.Allowed&(Field(1)<<i) != 0 {
			list = append(list, name)
		}
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

// raw reads a string's bytes between its quotes; they may hold escapes.
func (p *parser) raw(what string) ([]byte, *Error) {
	if p.peek() != '"' {
		return nil, p.fault("%s is expected", what)
	}
	for j := p.i + 1; j < len(p.b); j++ {
		switch c := p.b[j]; {
		case c == '"':
			s := p.b[p.i+1 : j]
			p.i = j + 1
			return s, nil
		case c == '\\':
			j++
		case c < ' ':
			p.i = j
			return nil, p.fault("a control character stands in a string")
		}
	}
	p.i = len(p.b)
	return nil, p.fault("a string does not end")
}

// text reads a string value; last is the one that the member had before.
func (p *parser) text(name string, last *string) (string, *Error) {
	at := p.i
	if p.peek() != '"' {
		return "", p.fault("%q must be text", name)
	}
	// It has been looked at, and holds neither an escape nor a quote.
	if end := at + 1 + len(*last); *last != "" && end < len(p.b) && p.b[end] == '"' && string(p.b[at+1:end]) == *last {
		p.i = end + 1
		return *last, nil
	}
	raw, fault := p.raw("text")
	if fault != nil {
		return "", fault
	}
	s := string(raw)
	if strings.IndexByte(s, '\\') >= 0 {
		if err := json.Unmarshal(p.b[at:p.i], &s); err != nil {
			p.i = at
			return "", p.fault("%q has an escape that JSON does not know", name)
		}
	}
	if strings.Contains(s, "\ufffd") { // what half a surrogate pair becomes: two texts must never become one
		p.i = at
		return "", p.fault("%q holds half a surrogate pair or U+FFFD", name)
	}
	if len(s) == len(raw) { // unescaped, so that bytes that equal it mean it
		*last = s
	}
	return s, nil
}

func (p *parser) whole(name string) (int64, *Error) {
	at := p.i
	n := int64(0)
	for p.i < len(p.b) && p.i-at < 18 && '0' <= p.b[p.i] && p.b[p.i] <= '9' { // 18 digits can't overflow
		n = 10*n + int64(p.b[p.i]-'0')
		p.i++
	}
	if digits := p.i - at; digits == 1 || digits > 1 && p.b[at] != '0' {
		switch p.peek() {
		case ',', '}', ' ', '\t', '\n', '\r':
			return n, nil
		}
	}
	p.i = at
	return p.odd(name)
}

// odd reads a number that is not just a few digits, or says what is wrong with it.
func (p *parser) odd(name string) (int64, *Error) {
	at := p.i
	for p.i < len(p.b) && strings.IndexByte("+-.eE0123456789", p.b[p.i]) >= 0 {
		p.i++
	}
	s := string(p.b[at:p.i])
	digits := strings.TrimPrefix(s, "-")
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || s[0] == '+' || len(digits) > 1 && digits[0] == '0' {
		p.i = at
		if s == "" {
			return 0, p.fault("%q must be a number", name)
		}
		return 0, p.fault("%q is %.40s: use a whole number of at most 9223372036854775807", name, s)
	}
	return n, nil
}

func (p *parser) boolean(name string) (bool, *Error) {
	for _, v := range []bool{true, false} {
		if s := strconv.FormatBool(v); len(p.b)-p.i >= len(s) && string(p.b[p.i:p.i+len(s)]) == s {
			p.i += len(s)
			return v, nil
		}
	}
	return false, p.fault("%q must be true or false", name)
}
