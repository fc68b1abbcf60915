package admin

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
)

// alert is one thing that needs a person.
type alert struct {
	ID      string // unique on the page
	Urgent  bool   // money or callers are at stake now
	Title   string
	Text    string // in particular
	Next    string
	Count   int64
	Since   time.Time // zero: not known
	Account string    // that it is about, where it is one
	To      string    // the page with all of it; empty: there is none
	ToText  string
}

// From when on something that waits is told.
const (
	lateFold    = 30 * time.Second
	lateReport  = 15 * time.Minute
	lateClose   = time.Hour
	lateSync    = 10 * time.Minute
	lateWebhook = 5 * time.Minute
	lateSweep   = 26 * time.Hour
	lateJob     = 5 * time.Minute
	lateMark    = time.Hour
	soon        = 20 * time.Minute
)

// alerts are what an overview shows of a person's work: what is urgent first, then what has waited longest.
func (a *Admin) alerts(o *books.Overview, loads []Load) []alert {
	var all []alert
	all = append(all, a.stopAlerts(o)...)
	all = append(all, a.findingAlerts(o)...)
	all = append(all, nodeAlerts(o)...)
	all = append(all, lagAlerts(o)...)
	all = append(all, heldAlerts(o)...)
	all = append(all, jobAlerts(loads)...)
	slices.SortStableFunc(all, func(x, y alert) int {
		if x.Urgent != y.Urgent {
			return cmp.Compare(y.rank(), x.rank())
		}
		return x.Since.Compare(y.Since)
	})
	return all
}

func (x *alert) rank() int {
	if x.Urgent {
		return 1
	}
	return 0
}

// stopAlerts: what holds up reports, and what of money waits for them or for a person.
func (a *Admin) stopAlerts(o *books.Overview) []alert {
	var all []alert
	for _, s := range o.Stops {
		r := stopRemedy(s.Cause)
		all = append(all, alert{ID: "stop-" + s.Cause, Urgent: true, Title: r.Title, Text: s.Message, Next: r.Next, Count: 1, Since: s.Since})
	}
	if h := &o.Billing; h.AtRisk > 0 && h.Deadline < soon {
		text := fmt.Sprintf("The first of %s is finalized in %s.", many(h.AtRisk, "draft", "drafts"), age(h.Deadline))
		if h.Deadline <= 0 {
			text = fmt.Sprintf("The deadline of the first of %s passed %s ago.", many(h.AtRisk, "draft", "drafts"), age(-h.Deadline))
		}
		all = append(all, alert{ID: "at-risk", Urgent: true, Title: "Draft invoices wait for reports", Text: text,
			Next: "See the findings below and the worker's log: what is not sent by then becomes late.", Count: h.AtRisk})
	}
	// Usage that comes after its invoice has no finding before it has aged.
	if h := &o.Billing; h.LateHeld > 0 {
		r := a.remedy("late")
		all = append(all, alert{ID: "late", Title: r.Title, Text: fmt.Sprintf("%s, the oldest for %s.", many(h.LateHeld, "item is held", "items are held"), age(h.LateAge)),
			Next: r.Next, Count: h.LateHeld, Since: o.AsOf.Add(-h.LateAge), To: "/admin/held", ToText: "The late usage"})
	}
	return all
}

// findingAlerts are the open findings by kind. A stop has an alert of its own.
func (a *Admin) findingAlerts(o *books.Overview) []alert {
	var all []alert
	for i := range o.Kinds {
		k := &o.Kinds[i]
		if k.Latest.Kind == "sending_stopped" && len(o.Stops) > 0 {
			continue
		}
		r := a.remedy(k.Latest.Kind)
		x := alert{ID: "finding-" + k.Latest.Kind, Title: r.Title, Text: k.Latest.Message, Next: r.Next, Count: k.Open, Since: k.Since,
			To: "/admin/findings?kind=" + url.QueryEscape(k.Latest.Kind), ToText: "The finding and its rule"}
		if k.Open > 1 {
			x.ToText = "All " + bounded(k.Open, 10_000)
		} else {
			x.Account = k.Latest.Account
		}
		all = append(all, x)
	}
	return all
}

func nodeAlerts(o *books.Overview) []alert {
	var all []alert
	for i := range o.Nodes {
		n := &o.Nodes[i]
		x := alert{ID: "node-" + strconv.FormatInt(n.ID, 10), Count: 1, Since: o.AsOf.Add(-n.Behind), To: nodePath(n.ID), ToText: "The node"}
		name := fmt.Sprintf("Node %d", n.ID)
		if n.Name != "" {
			name += " (" + n.Name + ")"
		}
		switch {
		case n.State == "reaped" || n.State == "reaping":
			x.Title = "A node is gone, and its journal was not recovered"
			x.Text = fmt.Sprintf("%s has not been heard of for %s. Periods that ended wait for it until their invoice's deadline.", name, age(n.Silent))
			if n.Holds > 0 {
				x.Text += fmt.Sprintf(" Now it holds up %s.", bounded(n.Holds, books.OverviewCount))
			}
			x.Next = fmt.Sprintf("Start an enforcer, or a worker, on the journal's folder. If the folder is lost, give it up: on its page, or worker nodes give-up --reason TEXT %d.", n.ID)
		case n.Lost(o.LeaseTime):
			x.Title, x.Urgent = "A node is silent", true
			x.Text = fmt.Sprintf("%s has not been heard of for %s, longer than the lease time of %s.", name, age(n.Silent), age(o.LeaseTime))
			x.Next = "Look whether the process hangs or is gone. A worker takes its leases back; start an enforcer on its journal's folder."
		case n.State == "live" && n.Behind > lateMark:
			x.Title = "A node's mark is behind"
			x.Text = fmt.Sprintf("%s has sealed nothing for %s: periods that ended since wait for it.", name, age(n.Behind))
			x.Next = "Look at its log and its clock, and restart it."
		default:
			continue
		}
		all = append(all, x)
	}
	return all
}

func lagAlerts(o *books.Overview) []alert {
	u, b := &o.Counting, &o.Billing
	var all []alert
	tell := func(after, limit time.Duration, x alert) {
		if after > limit {
			x.Since, x.Count = o.AsOf.Add(-after), max(x.Count, 1)
			all = append(all, x)
		}
	}
	tell(u.InboxAge, lateFold, alert{ID: "lag-fold", Urgent: u.InboxAge > 10*lateFold, Title: "Usage waits to be folded", Count: u.Inbox,
		Text: fmt.Sprintf("The oldest of %s has waited for %s. Caps stay exact; closes and reports wait.", many(u.Inbox, "row", "rows"), age(u.InboxAge)),
		Next: "Start a worker, or read its log: database load, locks, long transactions."})
	tell(b.ReportAge, lateReport, alert{ID: "lag-report", Urgent: b.ReportAge > 3*lateReport, Title: "Reports wait", Count: b.Reports["stored"] + b.Reports["unknown"],
		Text: fmt.Sprintf("The oldest has waited for %s: its invoice may be finalized without it.", age(b.ReportAge)),
		Next: "Is Stripe reached? The worker's log says why."})
	tell(b.UnclosedBy, lateClose, alert{ID: "lag-close", Title: "Periods that have ended are not closed", Count: b.Unclosed,
		Text: fmt.Sprintf("%s, the oldest for %s.", many(b.Unclosed, "period", "periods"), age(b.UnclosedBy)),
		Next: "A node has not sealed past their end: see the nodes. Close stops waiting at the invoice's deadline.", To: "/admin/nodes", ToText: "The nodes"})
	tell(b.SyncAge, lateSync, alert{ID: "lag-sync", Title: "Customers wait to be read at Stripe", Count: b.Customers,
		Text: fmt.Sprintf("%s, the oldest for %s: plans of paying customers are behind.", many(b.Customers, "customer", "customers"), age(b.SyncAge)),
		Next: "Is Stripe reached? A budget of calls that is spent passes by itself."})
	tell(b.WebhookAge, lateWebhook, alert{ID: "lag-webhook", Title: "Webhooks wait", Count: b.Webhooks,
		Text: fmt.Sprintf("%s that nobody has acted on, the oldest for %s.", many(b.Webhooks, "stored event", "stored events"), age(b.WebhookAge)),
		Next: "What they are about cannot be read: see what is held up.", To: "/admin/held", ToText: "What is held up"})
	tell(b.SweepAge, lateSweep, alert{ID: "lag-sweep", Title: "What webhooks missed was not looked for", Text: fmt.Sprintf("The last sweep was %s ago.", age(b.SweepAge)),
		Next: "Run worker sync, and look at the worker's log."})
	return all
}

// heldAlerts: rows that could not be folded, and reads at Stripe that fail again and again.
func heldAlerts(o *books.Overview) []alert {
	var all []alert
	if o.Counting.Parked > 0 && len(o.Parked) > 0 {
		last := o.Parked[0]
		all = append(all, alert{ID: "parked", Title: "Rows of usage could not be folded", Count: o.Counting.Parked, Since: last.At, Account: last.Account,
			Text: fmt.Sprintf("The last one: %s, under key %d of node %d.", last.Reason, last.Key, last.Node),
			Next: "The reason is in each row. The rest is counted; add what is missing with worker adjust.", To: "/admin/held", ToText: "The rows"})
	}
	if len(o.Stuck) > 0 {
		s := o.Stuck[0]
		x := alert{ID: "stuck", Title: "Webhooks are held up: Stripe cannot be read", Count: int64(len(o.Stuck)), Since: s.Since, Account: s.Account,
			Text: fmt.Sprintf("Reading %s %s has failed %s: %s", s.What, s.ID, many(s.Failures, "time", "times in a row"), s.Error),
			Next: "It is tried again by itself. If Stripe is reached and it stays: the message says what to mend; then worker replay.", To: "/admin/held", ToText: "What is held up"}
		all = append(all, x)
	}
	return all
}

func jobAlerts(loads []Load) []alert {
	var all []alert
	for _, l := range loads {
		x := alert{ID: "job-" + l.Kind + "-" + l.State, Count: l.Jobs, To: JobsPath + "/", ToText: "The jobs"}
		switch {
		case l.State == "discarded":
			x.Title, x.Text = "Jobs have failed for good", fmt.Sprintf("%s of kind %s.", many(l.Jobs, "job", "jobs"), l.Kind)
			x.Next = "Read the last error there. Nothing is lost: what is due is in rows, and the next job takes it up. Retry it once its cause is mended."
		case l.State == "retryable" && l.Jobs > 0:
			x.Title, x.Text = "Jobs fail", fmt.Sprintf("%s of kind %s failed and will be tried again.", many(l.Jobs, "job", "jobs"), l.Kind)
			x.Next = "Read the last error there, or in the worker's log."
		case l.State == "available" && l.Age > lateJob:
			x.Title, x.Text = "Jobs wait", fmt.Sprintf("%s of kind %s, the oldest for %s.", many(l.Jobs, "job", "jobs"), l.Kind, age(l.Age))
			x.Next = "No worker takes them: start one, or read its log."
		default:
			continue
		}
		all = append(all, x)
	}
	return all
}

func many(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return wording.Count(n) + " " + more
}

// bounded writes a number that was counted up to a bound only.
func bounded(n, most int64) string {
	if n >= most {
		return wording.Count(most) + " or more"
	}
	return wording.Count(n)
}

// age writes a duration as people say it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
