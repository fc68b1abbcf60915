package admin

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/plans"
)

// eventView is one event of a story.
type eventView struct {
	At, Kind, Title, Text, Level string
	Lines                        []string
	URL                          string
}

// kindNames are the kinds of events as the filter names them, in its order.
var kindNames = [...]struct{ kind, name string }{
	{"plan", "Plan and mapping"}, {"period", "Periods and terms"}, {"counter", "Counters"}, {"refusal", "Refusals"}, {"report", "Reports"},
	{"invoice", "Invoices"}, {"webhook", "Webhooks"}, {"adjustment", "Adjustments"}, {"warning", "Warnings"}, {"late", "Late usage"},
	{"finding", "Findings"}, {"action", "Actions"},
}

// story fills in a page of the story, and where it goes on.
func (v *accountView) story(events []books.StoryEvent, more, later bool) {
	v.Kinds = append(v.Kinds, tab{v.Path + "#story", "Everything", v.Kind == ""})
	for _, k := range kindNames {
		v.Kinds = append(v.Kinds, tab{v.Path + "?kind=" + k.kind + "#story", k.name, v.Kind == k.kind})
	}
	for i := range events {
		v.Story = append(v.Story, viewEvent(&events[i]))
	}
	q := url.Values{}
	if v.Kind != "" {
		q.Set("kind", v.Kind)
	}
	if later {
		v.Newest = v.Path + "?" + q.Encode() + "#story"
	}
	if more {
		last := events[len(events)-1]
		q.Set("at", last.At.UTC().Format(time.RFC3339Nano))
		q.Set("ref", last.Ref)
		v.Older = v.Path + "?" + q.Encode() + "#story"
	}
}

// data reads what an event carries; what is not there is empty.
type data map[string]any

func (d data) text(name string) string {
	switch x := d[name].(type) {
	case nil:
		return ""
	case string:
		return x
	default:
		return fmt.Sprint(x)
	}
}

func (d data) n(name string) int64 {
	x, _ := d[name].(json.Number)
	n, _ := x.Int64()
	return n
}

func (d data) units(name string) string {
	if d[name] == nil {
		return "unlimited"
	}
	return wording.Count(d.n(name))
}

func (d data) at(name string) string {
	t, err := time.Parse(time.RFC3339Nano, d.text(name))
	if err != nil {
		return "–"
	}
	return instant(t)
}

func (d data) span() string {
	from, err := time.Parse(time.RFC3339Nano, d.text("starts"))
	to, err2 := time.Parse(time.RFC3339Nano, d.text("ends"))
	if err != nil || err2 != nil {
		return "–"
	}
	return period(from, to)
}

func (d data) list(name string) []data {
	all, _ := d[name].([]any)
	out := make([]data, 0, len(all))
	for _, x := range all {
		if m, ok := x.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

func (d data) yes(name string) bool { is, _ := d[name].(bool); return is }

func viewEvent(e *books.StoryEvent) eventView {
	v := eventView{At: instant(e.At), Kind: e.Kind, Level: "soft"}
	d := data(e.Data)
	describe := map[string]func(*eventView, string, data){
		"plan": planEvent, "period": periodEvent, "counter": counterEvent, "refusal": refusalEvent, "report": reportEvent, "invoice": invoiceEvent,
		"webhook": webhookEvent, "adjustment": adjustmentEvent, "warning": warningEvent, "late": lateEvent, "finding": findingEvent, "action": actionEvent,
	}[e.Kind]
	if describe == nil {
		v.Title = e.What
		return v
	}
	describe(&v, e.What, d)
	return v
}

func planEvent(v *eventView, what string, d data) {
	switch what {
	case "item":
		v.Title = "Overage of " + d.text("feature") + " goes to " + d.text("customer")
		v.Text = fmt.Sprintf("subscription %s, item %s, price %s, from %s", d.text("subscription"), d.text("item"), d.text("price"), d.at("starts"))
		if d["ends"] != nil {
			v.Text += " to " + d.at("ends")
		}
		return
	case "mapped", "unmapped", "mapped to another account":
		v.Title = "Customer " + d.text("customer") + " " + what
		v.Text = "by " + d.text("actor") + " (" + d.text("source") + ")"
		return
	}
	was, _ := d["was"].(map[string]any)
	is, _ := d["becomes"].(map[string]any)
	v.Title = "Plan: " + orWord(data(was).text("plan"), "the default") + " → " + orWord(data(is).text("plan"), "the default")
	v.Text = "as the subscription says"
	if what == "plans applied" {
		v.Title, v.Text = "New terms of "+data(is).text("plan"), "plan file "+data(was).text("catalog")+" → "+data(is).text("catalog")+" applied to the period under way"
		return
	}
	for _, name := range []string{"quantity", "months", "anchor", "until"} {
		a, b := data(was).text(name), data(is).text(name)
		if a != b {
			v.Lines = append(v.Lines, name+": "+orWord(a, "none")+" → "+orWord(b, "none"))
		}
	}
}

func periodEvent(v *eventView, what string, d data) {
	v.Title = "Period " + d.span() + " " + what
	switch what {
	case "opened":
		v.Text = fmt.Sprintf("plan %s, plan file %s, from the %s", d.text("plan"), d.text("catalog"), d.text("source"))
		if d.text("source") == "subscription" && !d.yes("confirmed") {
			v.Text += ", not confirmed by Stripe"
		}
		if d.yes("carried") {
			v.Text += "; it opened with what the one before had used of its allowance"
		}
		for _, t := range d.list("terms") {
			line := t.text("feature") + ": included " + t.units("included")
			switch {
			case !t.yes("in_plan"):
				line = t.text("feature") + ": not in the plan any more"
			case t.text("on_exceeded") == "bill_overage":
				line += ", then billed up to " + t.units("maximum")
				if t["cap"] != nil {
					line += ", own cap " + t.units("cap")
				}
			default:
				line += ", then refused"
			}
			v.Lines = append(v.Lines, line)
		}
	case "cut":
		v.Text = "it was planned to end " + d.at("planned")
	case "closed without waiting on":
		v.Level, v.Text = "near", "nodes that had not answered at the deadline: "+d.text("given_up")
	case "found wrong":
		v.Level, v.Text = "near", "its units went to the true period"
	}
}

func counterEvent(v *eventView, what string, d data) {
	if what == "overshoot" {
		v.Level, v.Title = "near", signed(d.n("units"))+" "+d.text("feature")+" beyond a lease"
		v.Text = d.text("cause") + ", node " + d.text("node")
		return
	}
	v.At = strings.TrimSuffix(v.At, ", 23:59:59")
	v.Title = wording.Count(d.n("used")) + " " + d.text("feature") + " used on " + d.text("day")
	if d.n("overage") != 0 {
		v.Level, v.Text = "over", wording.Count(d.n("overage"))+" of it overage"
	}
}

func refusalEvent(v *eventView, _ string, d data) {
	v.Level = "full"
	v.Title = "Calls for " + d.text("feature") + " were refused"
	v.Text = fmt.Sprintf("from %s on, in %s, %s of the database; the smallest call was for %s", d.at("first"),
		wording.Of(d.n("spells"), "spell", "spells"), wording.Of(d.n("answers"), "answer", "answers"), d.units("least"))
}

func reportEvent(v *eventView, what string, d data) {
	v.Title = fmt.Sprintf("Report %s of %s: %s units, %s", d.text("seq"), d.text("feature"), signed(d.n("value")), what)
	if d.n("try") > 1 {
		v.Title += ", try " + d.text("try")
	}
	if d.yes("replaced") {
		v.Title += ", replaced by a new one"
	}
	v.Level = map[string]string{"recorded": "ok", "delivered": "ok", "rejected": "full", "unknown": "near"}[what]
	v.Text = fmt.Sprintf("overage %s → %s, to %s, stamped %s, cause %s, identifier %s", d.units("from"), d.units("to"), d.text("customer"), d.at("stamp"), d.text("cause"), d.text("identifier"))
	if m := d.text("message"); m != "" {
		v.Lines = append(v.Lines, "Stripe said: "+m)
	}
	for _, a := range d.list("attempts") {
		line := "attempt " + a.text("attempt") + ", " + a.at("begun") + ": " + orWord(a.text("outcome"), "no answer is known")
		for _, x := range []string{a.text("status"), a.text("request"), a.text("message")} {
			if x != "" {
				line += ", " + x
			}
		}
		v.Lines = append(v.Lines, line)
	}
}

func invoiceEvent(v *eventView, what string, d data) {
	v.Title = "Invoice " + orWord(d.text("number"), d.text("invoice")) + ", " + what
	v.Text = strings.Trim(strings.Join([]string{d.text("reason"), d.text("customer")}, ", "), ", ")
	if d["total"] != nil {
		v.Text += ", total " + money(d.n("total"), d.text("currency"))
	}
	if what == "draft" && d["finalizes"] != nil {
		v.Text += ", final at " + d.at("finalizes")
	}
	if u := d.text("url"); strings.HasPrefix(u, "https://") {
		v.URL = u
	}
	if what == "paid" || what == "open" {
		v.Level = "ok"
	}
	for _, l := range d.list("lines") {
		meter := "no meter of ours"
		if m := l.text("meter"); m != "" {
			meter = m
		}
		v.Lines = append(v.Lines, fmt.Sprintf("line %s: %s, %s, %s, %s", l.text("line"), wording.Of(l.n("quantity"), "unit", "units"), money(l.n("amount"), d.text("currency")), l.span(), meter))
		for _, b := range l.list("bills") { // where its units come from
			v.Lines = append(v.Lines, fmt.Sprintf("%s of them are of %s of %s, %s", wording.Count(b.n("units")), b.text("feature"), b.text("account"), b.span()))
		}
	}
}

// money is an amount of minor units in whole units of its currency, as invoices have it.
func money(minor int64, currency string) string {
	exponent, known := plans.CurrencyExponent(currency)
	if !known {
		return wording.Count(minor) + " minor units"
	}
	return decimal.New(minor, -exponent).StringFixed(exponent) + " " + strings.ToUpper(currency)
}

func webhookEvent(v *eventView, what string, d data) {
	v.Title = "Webhook " + what + ", " + d.text("state")
	v.Text = d.text("event") + " about " + orWord(d.text("object"), d.text("customer")) + ", delivered " + d.text("deliveries") + " ×"
	if n := d.text("note"); n != "" {
		v.Lines = append(v.Lines, n)
	}
	if d.text("state") == "parked" {
		v.Level = "near"
	}
}

func adjustmentEvent(v *eventView, what string, d data) {
	v.Title = strings.ToUpper(what[:1]) + what[1:] + " of " + wording.Count(max(d.n("units"), -d.n("units"))) + " " + d.text("feature")
	if what == "moved" {
		v.Title = "Overage of " + d.text("feature") + " moved to the allowance"
	}
	v.Text = fmt.Sprintf("included %s, overage %s, by %s: %s", signed(d.n("free")), signed(d.n("overage")), d.text("actor"), d.text("reason"))
}

func warningEvent(v *eventView, _ string, d data) {
	v.Level = "near"
	v.Title = fmt.Sprintf("%s %% of %s %s reached", d.text("threshold"), d.units("allowance"), d.text("feature"))
	v.Text = wording.Count(d.n("used")) + " were used"
	if !d.yes("told") {
		v.Text += "; a higher threshold was reached with it and is told instead"
	}
	for _, s := range d.list("sends") {
		v.Lines = append(v.Lines, strings.TrimRight(s.text("channel")+": "+s.text("state")+", "+wording.Of(s.n("attempts"), "attempt", "attempts")+", "+s.text("note"), ", "))
	}
}

func lateEvent(v *eventView, what string, d data) {
	v.Level = "near"
	switch what {
	case "late":
		v.Title = wording.Count(d.n("units")) + " " + d.text("feature") + " late, number " + d.text("id")
		v.Text = "after " + d.text("cause") + ", policy " + d.text("policy") + ", now " + d.text("state")
		if e := d.text("error"); e != "" {
			v.Lines = append(v.Lines, "Stripe said: "+e)
		}
	case "written off":
		v.Title = wording.Count(d.n("units")) + " " + d.text("feature") + " written off"
		v.Text = d.text("cause") + ", by " + d.text("actor") + ": " + d.text("reason")
	default:
		v.Title = "Late usage " + d.text("id") + " is " + what
		v.Text = wording.Count(d.n("units")) + " " + d.text("feature")
		if by := d.text("actor"); by != "" {
			v.Text += ", by " + by
		}
		if why := d.text("reason"); why != "" {
			v.Text += ": " + why
		}
		if o := d.text("object"); o != "" {
			v.Lines = append(v.Lines, o+" "+d.text("invoice"))
		}
	}
}

func findingEvent(v *eventView, what string, d data) {
	if what == "cleared" {
		v.Title, v.Text = "Finding "+d.text("kind")+" cleared", "by "+d.text("by")
		return
	}
	v.Title, v.Text = "Finding "+d.text("kind"), d.text("message")
	if d.yes("open") {
		v.Level = "full"
	}
	if n := d.n("times"); n > 1 {
		v.Text += " (" + strconv.FormatInt(n, 10) + " ×)"
	}
}

func actionEvent(v *eventView, what string, d data) {
	v.Title = strings.ToUpper(d.text("action")[:1]) + d.text("action")[1:] + ": " + what
	v.Text = d.text("actor") + " by " + orWord(ways[d.text("way")], d.text("way")) + ": " + d.text("reason")
	v.Level = map[string]string{"done": "ok", "refused": "full", "failed": "full"}[what]
	if v.Level == "" {
		v.Level = "near"
	}
	if m := d.text("message"); m != "" {
		v.Lines = append(v.Lines, m)
	}
	if body, err := json.Marshal(d["arguments"]); err == nil {
		if a := arguments(body, ""); a != "" {
			v.Lines = append(v.Lines, a)
		}
	}
}
