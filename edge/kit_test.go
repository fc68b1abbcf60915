// Package edge_test looks at Weir from where its customers stand: through a real browser, and a real mail server. It is
// a module of its own, so that what it needs stays out of the product's.
package edge_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
	"github.com/weirhq/weir/web/link"
)

const planFile = `
currency: usd
default_plan: free
upgrade_url: https://example.com/upgrade
features:
  requests: {display_name: API requests, unit: request, meter: requests_overage}
  exports: {display_name: Report exports, unit: export}
plans:
  free:
    display_name: Free
    rate: {limit: 60, window: 1m}
    quota: {requests: 10_000, exports: 20}
    on_exceeded: block
  pro:
    display_name: Pro
    prices: [pro_monthly]
    rate: {limit: 600, window: 1m}
    quota:
      requests: {included: 1_000_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}
      exports: {included: 400, on_exceeded: block}
    on_exceeded: bill_overage
  scale:
    display_name: Scale
    prices: [scale_monthly]
    rate: {limit: 3_000, window: 1m}
    quota:
      requests: {included: 20_000_000, overage: {price: "0.25", per: 1000}}
      exports: unlimited
    on_exceeded: bill_overage
`

// now is business time at the start of each test: three weeks into a calendar month.
var now = time.Date(2026, 3, 21, 15, 4, 0, 0, time.UTC)

// world is a database that counts, and the pages over it.
type world struct {
	*testing.T
	db    *pgxpool.Pool
	clock *clock.Simulated
	links *link.Signer
	url   string
	node  *usagetest.Node
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, db: schematest.Pool(t), clock: clock.NewSimulated(now)}
	usagetest.Publish(t, w.db, planFile, now.AddDate(-1, 0, 0))
	w.node = usagetest.Register(t, w.db, "node", now)
	var err error
	w.links, err = link.NewSigner(strings.Repeat("s", 32))
	require.NoError(t, err)
	pages, err := web.New(web.Config{
		DB: w.db, Clock: w.clock, Logger: slog.New(slog.DiscardHandler), Links: w.links, Refresh: 200 * time.Millisecond,
	})
	require.NoError(t, err)
	server := httptest.NewServer(pages)
	t.Cleanup(func() {
		pages.Close()
		server.Close()
	})
	w.url = server.URL
	return w
}

// subscribe puts an account on a plan from an instant on, monthly and billable.
func (w *world) subscribe(account, plan string, starts time.Time) {
	w.Helper()
	id, err := usage.FindAccount(w.Context(), w.db, account, true, starts)
	require.NoError(w, err)
	_, err = usage.ApplyPlan(w.Context(), w.db, id, usage.PlanState{
		Plan: plan, Quantity: 1, Anchor: starts, Months: 1, Starts: starts, Ends: starts.AddDate(0, 1, 0), Billable: []string{"requests"},
	}, starts)
	require.NoError(w, err)
}

// use counts units of a feature at an instant.
func (w *world) use(account, feature string, units int64, at time.Time) {
	w.Helper()
	w.node.Use(account, feature, units, at)
}

func (w *world) fold() {
	w.Helper()
	usagetest.Fold(w, w.db)
}

// month spreads units of requests over the days of a period up to an instant, uneven as real use is.
func (w *world) month(account string, units int64, starts, until time.Time) {
	w.Helper()
	weights := []int64{7, 8, 10, 9, 8, 3, 2}
	var days []time.Time
	var all int64
	for d := starts; d.Before(until); d = d.AddDate(0, 0, 1) {
		days = append(days, d)
		all += weights[len(days)%7] * int64(20+len(days))
	}
	left := units
	for i, d := range days {
		part := units * weights[(i+1)%7] * int64(21+i) / all
		if i == len(days)-1 {
			part = left
		}
		w.use(account, "requests", part, d.Add(time.Hour))
		left -= part
	}
	w.fold()
}

func (w *world) link(account string) string {
	w.Helper()
	u, err := w.links.URL(w.url, account, time.Now().Add(time.Hour))
	require.NoError(w, err)
	return u
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func text(format string, args ...any) string { return fmt.Sprintf(format, args...) }
