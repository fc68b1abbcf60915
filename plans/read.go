package plans

import (
	"strconv"
	"strings"
)

// reader turns nodes into drafts. It reports what has the wrong shape; what has the right shape
// and a wrong meaning is found by the checker, which knows places by path.
type reader struct {
	problems
	warnings problems
	places   map[string]place
}

// key is one key that a mapping may hold, and what reads its value.
type key struct {
	name string
	read func(path string, n *node)
}

type draftFile struct {
	catalog Catalog
	shadow  bool
	plans   []draftPlan
}

func (r *reader) report(path string, at place, message, suggestion string) {
	r.add(Problem{Line: at.line, Column: at.column, Path: path, Message: message, Suggestion: suggestion})
}

// suggest is didYouMean while the problems are few: past what is printed it costs and helps nobody.
func (r *reader) suggest(word string, known []string) string {
	if len(r.list) > maxProblems {
		return ""
	}
	return didYouMean(word, known)
}

// mapping reads a mapping with fixed keys.
func (r *reader) mapping(path string, n *node, keys []key) {
	known := make([]string, len(keys))
	for i, k := range keys {
		known[i] = k.name
	}
	want := "a mapping with keys such as " + strings.Join(known[:min(3, len(known))], ", ")
	r.entries(path, n, want, func(f field, at string) {
		for _, k := range keys {
			if k.name == f.key {
				k.read(at, f.value)
				return
			}
		}
		r.report(at, f.at, "unknown key "+quote(f.key), r.suggest(f.key, known))
		if meant := closest(f.key, known); meant != "" {
			r.bad[join(path, meant)] = true // the key that was meant is not reported as missing
		}
	})
}

// entries calls each for every key of a mapping, once per key; repeated keys are reported.
func (r *reader) entries(path string, n *node, want string, each func(f field, path string)) {
	switch n.kind {
	case kindMapping:
	case kindNull:
		r.report(path, n.at, "has no value", "write {} when it is meant to be empty")
		return
	case kindScalar, kindList:
		r.report(path, n.at, "is "+n.kind.String()+", not "+want, "")
		return
	}
	first := make(map[string]place, len(n.fields))
	for _, f := range n.fields {
		at := join(path, f.key)
		if before, twice := first[f.key]; twice {
			r.report(at, f.at, "is written twice, first on line "+strconv.Itoa(before.line), "keep one of them")
			continue
		}
		first[f.key] = f.at
		r.places[at] = f.at
		each(f, at)
	}
}

// join appends a key to a dotted path; a key that is not a plain word is quoted, so that two
// places never have one path.
func join(path, key string) string {
	if !isWord(key) {
		key = quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func isWord(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return s != "" && len(s) <= maxNameBytes
}

func index(path string, i int) string {
	return path + "[" + strconv.Itoa(i) + "]"
}

// file reads the top level.
func (r *reader) file(root *node) *draftFile {
	d := &draftFile{catalog: Catalog{quotaStatus: statusPaymentRequired}}
	c := &d.catalog
	r.places[""] = root.at
	r.mapping("", root, []key{
		{"currency", func(path string, n *node) { c.currency = r.text(path, n, "a currency such as usd") }},
		{"default_plan", func(path string, n *node) { c.defaultPlan = r.text(path, n, "the name of a plan") }},
		{"anonymous", func(path string, n *node) { c.anonymous, c.hasAnonymous = r.rate(path, n), true }},
		{"quota_status", func(path string, n *node) {
			if v, ok := r.count(path, n); ok {
				c.quotaStatus = int(min(v, 1000))
			}
		}},
		{"upgrade_url", func(path string, n *node) { c.upgradeURL = r.text(path, n, "a URL") }},
		{"shadow", func(path string, n *node) { d.shadow = r.flag(path, n) }},
		{"features", func(path string, n *node) {
			r.entries(path, n, "a mapping of features", func(f field, path string) {
				c.features = append(c.features, r.feature(path, f))
			})
		}},
		{"plans", func(path string, n *node) {
			r.entries(path, n, "a mapping of plans", func(f field, path string) {
				d.plans = append(d.plans, r.plan(path, f))
			})
		}},
	})
	return d
}

func (r *reader) feature(path string, f field) Feature {
	out := Feature{Name: f.key}
	r.mapping(path, f.value, []key{
		{"meter", func(path string, n *node) { out.Meter = r.required(path, n, "the event_name of a Stripe meter") }},
		{"display_name", func(path string, n *node) { out.DisplayName = r.required(path, n, "a name for people") }},
		{"unit", func(path string, n *node) { out.Unit = r.required(path, n, "what one unit is called") }},
		{"units", func(path string, n *node) { out.Units = r.required(path, n, "what several units are called") }},
	})
	return out
}

// required reads text that must not be empty.
func (r *reader) required(path string, n *node, want string) string {
	s, ok := r.scalar(path, n, want)
	if ok && s == "" {
		r.report(path, n.at, "is empty", "write "+want+", or delete the key")
	}
	return s
}

func (r *reader) rate(path string, n *node) Rate {
	out := Rate{Algorithm: FixedWindow}
	burst := false
	r.mapping(path, n, []key{
		{"limit", func(path string, n *node) { out.Limit, _ = r.count(path, n) }},
		{"window", func(path string, n *node) { out.Window = r.duration(path, n) }},
		{"algorithm", func(path string, n *node) {
			out.Algorithm = Algorithm(r.word(path, n, string(FixedWindow), string(SlidingWindow), string(TokenBucket)))
		}},
		{"burst", func(path string, n *node) { out.Burst, _ = r.count(path, n); burst = true }},
		{"per_node", func(path string, n *node) { out.Each = r.word(path, n, "divide", "each") == "each" }},
	})
	if out.Algorithm == TokenBucket && !burst {
		out.Burst = out.Limit
	}
	return out
}
