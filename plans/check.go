package plans

import (
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// checker finds what is wrong in the meaning of a catalog, whether it came from a file or from
// JSON. Places are known by path, for files only. What already has a problem is left alone, so
// that one mistake gives one error.
type checker struct {
	*problems
	c      *Catalog
	places map[string]place
}

func check(c *Catalog, ps *problems, places map[string]place) {
	k := &checker{problems: ps, c: c, places: places}
	k.top()
	k.features()
	k.plans()
}

// report adds a problem at path, unless it has one; the place is that of the nearest key around it.
func (k *checker) report(path, message, suggestion string) {
	if k.has(path) {
		return
	}
	at, ok := k.places[path]
	for around := path; !ok && around != ""; {
		around = around[:max(strings.LastIndexAny(around, ".["), 0)]
		at, ok = k.places[around]
	}
	k.add(Problem{Line: at.line, Column: at.column, Path: path, Message: message, Suggestion: suggestion})
}

func (k *checker) suggest(word string, known []string) string {
	if len(k.list) > maxProblems {
		return ""
	}
	return didYouMean(word, known)
}

func (k *checker) top() {
	c := k.c
	if _, known := CurrencyExponent(c.currency); !known {
		switch {
		case c.currency != "":
			k.report("currency", quote(c.currency)+" is not a currency that Stripe knows", k.suggestCurrency())
		case c.BillsOverage():
			k.report("currency", "is missing, and a plan bills overage", "write currency: usd")
		}
	}
	if c.quotaStatus != statusPaymentRequired && c.quotaStatus != statusForbidden {
		k.report("quota_status", fmt.Sprintf("%d is neither 402 nor 403", c.quotaStatus),
			"write 402, or 403 for clients that do not know 402; 429 is kept for rate limits")
	}
	k.url("upgrade_url", c.upgradeURL)
	if c.hasAnonymous {
		k.rate("anonymous", c.anonymous)
	}
	k.defaultPlan()
}

func (k *checker) suggestCurrency() string {
	code := k.c.currency
	if _, known := CurrencyExponent(strings.ToLower(code)); known {
		return "write " + strings.ToLower(code)
	}
	return "write three lower-case letters, such as usd or eur"
}

const (
	defaultPlanBills   = "the default plan cannot bill overage: its accounts have no subscription"
	suggestDefaultPlan = "write on_exceeded: block, or choose another default_plan"
)

func (k *checker) defaultPlan() {
	c := k.c
	names := make([]string, len(c.plans))
	for i, p := range c.plans {
		names[i] = p.Name
	}
	p, ok := c.Plan(c.defaultPlan)
	if !ok {
		if c.defaultPlan == "" {
			k.report("default_plan", "is missing", "name the plan of accounts without a subscription")
		} else {
			k.report("default_plan", quote(c.defaultPlan)+" is not a plan of this file", k.suggest(c.defaultPlan, names))
		}
		return
	}
	path := join("plans", p.Name)
	if len(p.prices) > 0 {
		k.report(join(path, "prices"), "the default plan is for accounts without a subscription, it has no prices",
			"delete prices, or choose another default_plan")
	}
	if p.Interval != Monthly {
		k.report(join(path, "interval"), "the default plan has no subscription to cut, its allowance is the calendar month",
			"delete interval")
	}
	for _, q := range p.quotas {
		if q.BillOverage {
			k.report(k.onExceededPath(path, q.Feature), defaultPlanBills, suggestDefaultPlan)
		}
	}
}

// onExceededPath is where a quota's on_exceeded is written: in the quota, else in the plan.
func (k *checker) onExceededPath(plan, feature string) string {
	own := join(join(join(plan, "quota"), feature), "on_exceeded")
	if _, written := k.places[own]; written {
		return own
	}
	return join(plan, "on_exceeded")
}

func (k *checker) features() {
	c := k.c
	if len(c.features) > maxFeatures {
		k.report("features", fmt.Sprintf("%d features are more than %d", len(c.features), maxFeatures), "")
	}
	meters := make(map[string]string)
	for _, f := range c.features {
		path := join("features", f.Name)
		k.name(path, "feature", f.Name)
		k.displayName(path, f.Name, f.DisplayName)
		k.label(join(path, "unit"), f.Unit)
		k.label(join(path, "units"), f.Units)
		if f.Units != "" && f.Unit == "" {
			k.report(join(path, "units"), "is set, but unit is not", "write unit too: what one of them is called")
		}
		if f.Meter == "" {
			continue
		}
		at := join(path, "meter")
		k.token(at, "meter", f.Meter, maxMeterBytes)
		if other, taken := meters[f.Meter]; taken {
			k.report(at, fmt.Sprintf("the meter %s is already that of %s", quote(f.Meter), quote(other)),
				"give each feature a meter of its own: their usage would be billed as one")
			continue
		}
		meters[f.Meter] = f.Name
	}
}

// name checks the name of a plan or a feature.
func (k *checker) name(path, what, name string) {
	if validName(name) {
		return
	}
	suggestion := "write 1 to 63 characters: a-z 0-9 _ . -, beginning with a letter or digit"
	if lower := strings.ToLower(name); validName(lower) {
		suggestion = "write " + quote(lower)
	}
	k.report(path, quote(name)+" is not a "+what+" name", suggestion)
}

func validName(s string) bool {
	if s == "" || len(s) > maxNameBytes || strings.ContainsRune("_.-", rune(s[0])) {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_.-") == ""
}

// token checks an identifier that Stripe gave or gets.
func (k *checker) token(path, what, s string, most int) {
	switch {
	case len(s) > most:
		k.report(path, fmt.Sprintf("the %s %s has more than %d characters", what, quote(s), most), "")
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r > '~' || strings.ContainsRune(`"'\`+"`", r)
	}):
		k.report(path, quote(s)+" is not a "+what+" name", "use printable ASCII without quotes, and no space at either end")
	}
}

// displayName checks a name for people; where the file gives none it repeats the name.
func (k *checker) displayName(path, name, display string) {
	if display != name {
		k.label(join(path, "display_name"), display)
	}
}

// label checks a text for people.
func (k *checker) label(path, s string) {
	switch {
	case utf8.RuneCountInString(s) > maxLabelRunes:
		k.report(path, fmt.Sprintf("%s has more than %d characters", quote(s), maxLabelRunes), "shorten it")
	case !shows(s):
		k.report(path, quote(s)+" has a character that cannot be shown", "delete it")
	}
}

// shows reports whether every character of a text is one that people see. Between letters and their marks the two
// joiners are too: Persian and the scripts of India are spelled with them
// (https://www.unicode.org/versions/latest/core-spec/chapter-23/, "Cursive Connection and Ligatures").
func shows(s string) bool {
	const joiner, nonJoiner = '\u200d', '\u200c'
	letter := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsMark(r) }
	text := []rune(s)
	for i, r := range text {
		switch {
		case unicode.IsGraphic(r):
		case r != joiner && r != nonJoiner, i == 0, i == len(text)-1, !letter(text[i-1]), !letter(text[i+1]):
			return false
		}
	}
	return true
}

func (k *checker) url(path, s string) {
	if s == "" {
		return
	}
	u, err := url.Parse(s)
	switch {
	case len(s) > maxURLBytes:
		k.report(path, fmt.Sprintf("the URL has more than %d characters", maxURLBytes), "shorten it")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'<>\`, r) }):
		k.report(path, quote(s)+" is not a web address", "write https://example.com/upgrade")
	}
}
