package admin

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

// Sparklines are drawn in fixed coordinates and stretched by the page.
const (
	sparkWidth  = 600
	sparkHeight = 60
	refreshEach = 30 // seconds, where the page keeps itself fresh
)

type overviewView struct {
	Alerts   []alert
	Urgent   int
	Pace     []paceView
	Lags     []lagView
	Pressure pressureView
	Nodes    []nodeView
	MoreNode bool
	Refresh  int // seconds; 0: it stays as it is
}

// paceView is a feature's units per minute.
type paceView struct {
	Feature, Last, Hour, Most string
	Bars                      []bar
}

type bar struct{ X, Y, Width, Height int64 }

// lagView is how far one part of the work is behind.
type lagView struct {
	Name, Value, More string
	Level             string // ok, near or full
}

type pressureView struct {
	Rows              []pressureRow
	Near, Over, AsOf  string
	Looked, Any, More bool
}

type pressureRow struct {
	Account, Feature, Plan, Used, Most, Percent, Level, Ends, Overage string
	Width                                                             int64
}

// overview shows how everything stands.
func (a *Admin) overview(w http.ResponseWriter, r *http.Request, who person) {
	var o *books.Overview
	var loads []Load
	err := a.reading(r.Context(), func(ctx context.Context) (err error) {
		if o, err = books.ReadOverview(ctx, a.cfg.DB, a.now()); err == nil && a.cfg.Loads != nil {
			loads, err = a.cfg.Loads(ctx)
		}
		return err
	})
	if err != nil {
		a.failed(w, r, who, err)
		return
	}
	v := overviewView{Alerts: a.alerts(o, loads), Pace: pacesOf(o.Pace), Lags: lagsOf(o), Pressure: pressureOf(&o.Pressure)}
	for i := range v.Alerts {
		if v.Alerts[i].Urgent {
			v.Urgent++
		}
	}
	for i := range o.Nodes {
		v.Nodes = append(v.Nodes, nodeOf(&o.Nodes[i], o.LeaseTime, books.OverviewCount))
	}
	known := int64(0)
	for _, n := range o.Counting.Nodes {
		known += n
	}
	v.MoreNode = known > int64(len(v.Nodes))
	if r.URL.Query().Get("fresh") != "" {
		v.Refresh = refreshEach
	}
	a.render(w, r, who, http.StatusOK, "overview.html", view{Title: "Overview", Section: "overview", Page: v, Refresh: v.Refresh})
}

func pacesOf(all []usage.Pace) []paceView {
	var out []paceView
	for i := range all {
		p := &all[i]
		most := int64(1)
		for _, u := range p.Units {
			most = max(most, u)
		}
		v := paceView{Feature: p.Feature, Last: wording.Count(p.Last()), Hour: wording.Count(p.Hour()), Most: wording.Count(most)}
		step := int64(sparkWidth / usage.PaceMinutes)
		for j, u := range p.Units {
			if u <= 0 {
				continue
			}
			height := max(1, share(u, most, sparkHeight))
			v.Bars = append(v.Bars, bar{int64(j) * step, sparkHeight - height, step - 2, height})
		}
		out = append(out, v)
	}
	return out
}

// share maps part of whole to a length, without overflow.
func share(part, whole, length int64) int64 {
	for part > 1<<50 || whole > 1<<50 {
		part, whole = part>>1, whole>>1
	}
	return min(length, part*length/max(whole, 1))
}

func lagsOf(o *books.Overview) []lagView {
	u, b := &o.Counting, &o.Billing
	level := func(d, limit time.Duration) string {
		switch {
		case d > 3*limit:
			return "full"
		case d > limit:
			return "near"
		}
		return "ok"
	}
	lag := func(name string, d, limit time.Duration, more string) lagView {
		v := lagView{Name: name, Value: age(d), More: more, Level: level(d, limit)}
		if d == 0 {
			v.Value = "none"
		}
		return v
	}
	return []lagView{
		lag("Fold", u.InboxAge, lateFold, many(u.Inbox, "row waits", "rows wait")),
		lag("Close", b.UnclosedBy, lateClose, many(b.Unclosed, "period to close", "periods to close")),
		lag("Reports", b.ReportAge, lateReport, many(b.Reports["stored"]+b.Reports["unknown"], "on its way", "on their way")),
		lag("Plans", b.SyncAge, lateSync, many(b.Customers, "customer to read", "customers to read")),
		lag("Webhooks", b.WebhookAge, lateWebhook, many(b.Webhooks, "event waits", "events wait")),
		lag("Marks", u.UnsealedAge, lateMark, many(u.Nodes["live"], "live node", "live nodes")),
	}
}

func pressureOf(p *usage.Pressure) pressureView {
	v := pressureView{Near: bounded(p.Near, 10_000), Over: bounded(p.Over, 10_000), Looked: !p.AsOf.IsZero(), AsOf: instant(p.AsOf),
		Any: len(p.Worst) > 0, More: p.Near > int64(len(p.Worst))}
	for i := range p.Worst {
		x := &p.Worst[i]
		row := pressureRow{
			Account: x.Account, Feature: x.Feature, Plan: x.Plan, Used: wording.Count(x.Used), Most: wording.Count(x.Most), Overage: wording.Count(x.Overage), Ends: day(x.Ends),
			Percent: strconv.Itoa(x.Permille/10) + " %", Level: "near", Width: int64(min(x.Permille, 1000)),
		}
		if x.Permille >= 1000 {
			row.Level = "full"
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}
