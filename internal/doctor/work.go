package doctor

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/jobs"
	"github.com/weirhq/weir/usage"
)

const (
	warnInbox    = 30 * time.Second
	maxInbox     = 5 * time.Minute
	warnUnsealed = time.Hour
	maxJobAge    = 5 * time.Minute
)

// work looks at what is done and what waits.
func (e *examination) work(ctx context.Context) {
	e.published(ctx)
	u, err := usage.ReadHealth(ctx, e.pool, e.now)
	if err != nil {
		e.wrong("counting", "look at the database's log", "%v", err)
		return
	}
	e.worker(ctx, &u)
	e.nodes(ctx, &u)
	h, err := books.ReadHealth(ctx, e.pool, e.now)
	if err != nil {
		e.wrong("reports", "look at the database's log", "%v", err)
		return
	}
	if e.cfg.Stripe != nil {
		e.clock("stripe clock", "Stripe's, as last seen", h.Skew)
		e.reports(&h)
		e.mappings(ctx)
	}
	e.findings(&h)
}

// published compares the plan file with what everybody computes with.
func (e *examination) published(ctx context.Context) {
	last, err := usage.LatestCatalog(ctx, e.pool)
	switch {
	case err != nil:
		e.wrong("plans", "start a worker, or run `worker plans apply`", "%v", err)
	case e.cfg.Catalog != nil && e.cfg.Catalog.Hash() != last.Hash:
		e.warn("plans", "run `worker plans apply`, or restart the worker, if the file is what you mean", "the plan file is not the published one (catalog %d): the database counts", last.Number)
	default:
		e.ok("plans", "catalog %d is published", last.Number)
	}
}

// worker tells from what waits whether a worker runs.
func (e *examination) worker(ctx context.Context, u *usage.Health) {
	const next = "start a worker, or read its log"
	switch {
	case u.InboxAge > maxInbox:
		e.wrong("worker", next, "usage has waited %s to be folded: no worker runs, or it cannot keep up", age(u.InboxAge))
	case u.InboxAge > warnInbox:
		e.warn("worker", next, "usage has waited %s to be folded", age(u.InboxAge))
	default:
		e.ok("worker", "usage is folded (%d rows wait)", u.Inbox)
	}
	if u.Parked > 0 {
		e.warn("parked", "SELECT * FROM weir.inbox_parked says why; docs/troubleshooting.md what to do", "%d rows of usage could not be folded", u.Parked)
	}
	loads, err := jobs.Loads(ctx, e.pool)
	if err != nil {
		e.wrong("jobs", "run `worker migrate`", "River's tables cannot be read: %v", err)
		return
	}
	old := false
	for _, l := range loads {
		if (l.State == "available" || l.State == "retryable") && l.Age > maxJobAge {
			old = true
			e.wrong("jobs", next, "a job of kind %s has waited %s", l.Kind, age(l.Age))
		}
	}
	if !old {
		e.ok("jobs", "none has waited for more than %s", maxJobAge)
	}
}

// nodes looks at the enforcers and their marks.
func (e *examination) nodes(ctx context.Context, u *usage.Health) {
	inst, err := usage.ReadInstallation(ctx, e.pool)
	if err != nil {
		e.wrong("nodes", "look at the database's log", "%v", err)
		return
	}
	bad := false
	if n := u.Nodes["reaped"] + u.Nodes["reaping"]; n > 0 {
		bad = true
		e.warn("nodes", "start an enforcer (or a worker) on the journal's folder, so that it is recovered; if that is lost: `worker nodes give-up --reason TEXT ID`", "%d nodes are gone and their journals were not recovered: periods wait for them until the invoice's deadline", n)
	}
	if u.SilentAge > inst.LeaseTime {
		bad = true
		e.warn("nodes", "look whether that process hangs", "a live node has been silent for %s, longer than the lease time", age(u.SilentAge))
	}
	if u.UnsealedAge > warnUnsealed {
		bad = true
		e.warn("nodes", "`worker nodes` shows which; look at its log and clock", "a node's mark is %s behind: periods that ended since wait for it", age(u.UnsealedAge))
	}
	if !bad {
		e.ok("nodes", "%s live, and the marks follow", wording.Of(u.Nodes["live"], "node is", "nodes are"))
	}
}

func (e *examination) reports(h *books.Health) {
	causes := map[string]string{
		"unauthorized": "set a valid STRIPE_API_KEY; sending goes on by itself", "clock": "set the database's clock; sending goes on by itself",
		"restored": "let the worker compare every open window, or say `worker restored --go-on --reason TEXT` after looking into it",
	}
	for _, cause := range slices.Sorted(maps.Keys(h.Stops)) {
		e.wrong("reports", causes[cause], "all reports are held up: %s (%d draft invoices are at risk)", cause, h.AtRisk)
	}
	const next = "`worker findings` and the worker's log say why"
	switch {
	case h.ReportAge > maxReport:
		e.wrong("reports", next, "the oldest report has waited %s: its invoice may be finalized without it", age(h.ReportAge))
	case h.ReportAge > warnReport:
		e.warn("reports", next, "the oldest report has waited %s", age(h.ReportAge))
	case len(h.Stops) == 0:
		e.ok("reports", "none has waited for more than %s", warnReport)
	}
	if h.Unclosed > 0 && h.UnclosedBy > time.Hour {
		e.warn("close", "`worker nodes` shows which node is waited for", "%d periods that have ended are not closed, the oldest for %s", h.Unclosed, age(h.UnclosedBy))
	}
}

// mappings looks at accounts and customers, and at who else sends on the meters.
func (e *examination) mappings(ctx context.Context) {
	in, err := e.biller.Intake(ctx)
	if err != nil {
		e.wrong("mappings", "look at the database's log", "%v", err)
		return
	}
	if in.Mapped == 0 {
		e.warn("mappings", "put account_id into the customer's metadata, or run `worker map --reason TEXT ACCOUNT cus_…`", "no account is mapped to a customer: no overage can be billed")
	} else {
		e.ok("mappings", "%s mapped to customers", wording.Of(in.Mapped, "account is", "accounts are"))
	}
	if in.Frozen > 0 {
		e.wrong("only sender", "stop what else sends on Weir's meters, then run `worker reconcile`", "%d customers have amounts on Weir's meters that Weir did not send: nothing is decided for them automatically", in.Frozen)
	} else {
		e.ok("only sender", "no amount was seen on Weir's meters that Weir did not send")
	}
}

// findings adds up what waits for a person.
func (e *examination) findings(h *books.Health) {
	if len(h.Findings) == 0 {
		e.ok("findings", "nothing waits for a person")
	}
	for _, kind := range slices.Sorted(maps.Keys(h.Findings)) {
		e.warn("findings", "`worker findings` lists them; docs/troubleshooting.md says what each kind means", "%d of kind %s", h.Findings[kind], kind)
	}
	if h.LateHeld > 0 {
		e.warn("late", "`worker late` lists it, `worker late release` decides", "%d items of late usage wait for a person, the oldest for %s", h.LateHeld, age(h.LateAge))
	}
}
