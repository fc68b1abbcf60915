package stripesim

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxParams     = 1000
	maxParamDepth = 8
)

// form is a request's parameters as a tree: items[0][price] is root → items →
// 0 → price. Readers mark what they read; finish refuses what nobody read, as
// Stripe refuses unknown parameters. The first fault is kept and answered.
type form struct {
	root *node
	err  *apiError
}

// node is one parameter. Its readers never fail on their own: a fault goes to
// the form, and the zero value comes back.
type node struct {
	form *form
	name string
	text string
	set  bool // has a value of its own
	used bool
	kids map[string]*node
}

func parseForm(raw string) (*form, *apiError) {
	f := &form{}
	f.root = &node{form: f, used: true}
	count := 0
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		if pair == "" {
			continue
		}
		if count++; count > maxParams {
			return nil, invalid("Too many parameters: at most %d.", maxParams).beforeExecution()
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, invalid("Invalid request: a parameter name is not URL-encoded.").beforeExecution()
		}
		value, err = url.QueryUnescape(value)
		if err != nil {
			return nil, invalid("Invalid request: the value of %q is not URL-encoded.", name).beforeExecution()
		}
		if fault := f.root.insert(name, value); fault != nil {
			return nil, fault
		}
	}
	return f, nil
}

func (n *node) insert(name, value string) *apiError {
	head, rest, nested := strings.Cut(name, "[")
	at := n.kid(head)
	for depth := 1; nested; depth++ {
		key, tail, closed := strings.Cut(rest, "]")
		if !closed || depth > maxParamDepth {
			return invalid("Invalid request: parameter name %q is malformed.", name).beforeExecution()
		}
		if key == "" {
			key = strconv.Itoa(len(at.kids))
		}
		at = at.kid(key)
		if tail == "" {
			break
		}
		rest, nested = strings.CutPrefix(tail, "[")
		if !nested {
			return invalid("Invalid request: parameter name %q is malformed.", name).beforeExecution()
		}
	}
	at.text, at.set = value, true
	return nil
}

func (n *node) kid(key string) *node {
	if kid, ok := n.kids[key]; ok {
		return kid
	}
	name := key
	if n.name != "" {
		name = n.name + "[" + key + "]"
	}
	if n.kids == nil {
		n.kids = make(map[string]*node)
	}
	kid := &node{form: n.form, name: name}
	n.kids[key] = kid
	return kid
}

// finish returns the first fault of what was read, or refuses a parameter that
// nothing read.
func (f *form) finish() error {
	if f.err == nil {
		f.root.refuseUnread()
	}
	if f.err != nil {
		return f.err
	}
	return nil
}

func (n *node) refuseUnread() {
	for _, key := range n.keys() {
		kid := n.kids[key]
		if !kid.used {
			n.form.fail(invalid("Received unknown parameter: %s", kid.name).withCode("parameter_unknown").withParam(kid.name))
			return
		}
		kid.refuseUnread()
	}
}

func (f *form) fail(e *apiError) {
	if f.err == nil {
		f.err = e.beforeExecution()
	}
}

// keys is in order: numbers by value, then names.
func (n *node) keys() []string {
	keys := make([]string, 0, len(n.kids))
	for key := range n.kids {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		x, errX := strconv.Atoi(a)
		y, errY := strconv.Atoi(b)
		if errX == nil && errY == nil {
			return x - y
		}
		return strings.Compare(a, b)
	})
	return keys
}

// has tells whether the parameter was given, as a value or as a structure; it
// does not count as reading it.
func (n *node) has(key string) bool {
	kid, ok := n.kids[key]
	return ok && (kid.set || len(kid.kids) > 0)
}

func (n *node) value(key string) (string, bool) {
	kid, ok := n.kids[key]
	if !ok {
		return "", false
	}
	kid.used = true
	return kid.text, kid.set
}

func (n *node) str(key string) string {
	text, _ := n.value(key)
	return text
}

func (n *node) path(key string) string {
	if n.name == "" {
		return key
	}
	return n.name + "[" + key + "]"
}

func (n *node) required(key string) string {
	text, ok := n.value(key)
	if !ok {
		n.form.fail(invalid("Missing required param: %s.", n.path(key)).withCode("parameter_missing").withParam(n.path(key)))
	}
	return text
}

func (n *node) limited(key string, most int) string {
	text := n.str(key)
	if len([]rune(text)) > most {
		n.form.fail(invalid("Invalid string: %s must be at most %d characters", n.path(key), most).withParam(n.path(key)))
	}
	return text
}

func (n *node) enum(key, fallback string, allowed ...string) string {
	text, ok := n.value(key)
	if !ok {
		return fallback
	}
	if !slices.Contains(allowed, text) {
		n.form.fail(invalid("Invalid %s: must be one of %s", n.path(key), strings.Join(allowed, ", ")).withParam(n.path(key)))
	}
	return text
}

// integer returns nil when the parameter is absent or empty.
func (n *node) integer(key string) *int64 {
	text, ok := n.value(key)
	if !ok || text == "" {
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		n.form.fail(invalid("Invalid integer: %s", text).withCode("parameter_invalid_integer").withParam(n.path(key)))
		return nil
	}
	return &v
}

func (n *node) integerOr(key string, fallback int64) int64 {
	if v := n.integer(key); v != nil {
		return *v
	}
	return fallback
}

// boolean returns nil when the parameter is absent or empty.
func (n *node) boolean(key string) *bool {
	text, ok := n.value(key)
	if !ok || text == "" {
		return nil
	}
	v := text == "true"
	if !v && text != "false" {
		n.form.fail(invalid("Invalid boolean: %s", text).withParam(n.path(key)))
		return nil
	}
	return &v
}

func (n *node) flag(key string, fallback bool) bool {
	if v := n.boolean(key); v != nil {
		return *v
	}
	return fallback
}

// instant reads unix seconds; zero when absent or empty.
func (n *node) instant(key string) time.Time {
	if v := n.integer(key); v != nil {
		return time.Unix(*v, 0).UTC()
	}
	return time.Time{}
}

// sub is the structure under key, never nil.
func (n *node) sub(key string) *node {
	if kid, ok := n.kids[key]; ok {
		kid.used = true
		return kid
	}
	return &node{form: n.form, name: n.path(key), used: true}
}

// list is the structures under key in order of their index.
func (n *node) list(key string) []*node {
	at := n.sub(key)
	out := make([]*node, 0, len(at.kids))
	for _, k := range at.keys() {
		at.kids[k].used = true
		out = append(out, at.kids[k])
	}
	return out
}

// texts is the plain values under key, given as key[]= or key[0]=.
func (n *node) texts(key string) []string {
	list := n.list(key)
	out := make([]string, 0, len(list))
	for _, at := range list {
		out = append(out, at.text)
	}
	return out
}

// metadata merges the given pairs into old, as Stripe does: an empty value
// removes a key, an empty metadata removes all.
func (n *node) metadata(old map[string]string) map[string]string {
	if !n.has("metadata") {
		return old
	}
	at := n.sub("metadata")
	out := make(map[string]string, len(old)+len(at.kids))
	if !at.set {
		for k, v := range old {
			out[k] = v
		}
	}
	for _, key := range at.keys() {
		value := at.str(key)
		if len(key) > 40 || len(value) > 500 {
			n.form.fail(invalid("Invalid metadata: keys have at most 40 characters, values 500.").withParam("metadata"))
		}
		if value == "" {
			delete(out, key)
			continue
		}
		out[key] = value
	}
	if len(out) > 50 {
		n.form.fail(invalid("Invalid metadata: at most 50 keys.").withParam("metadata"))
	}
	return out
}
