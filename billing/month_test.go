package billing_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// op is something that happened to an account: units that were admitted, or a plan that came into force.
type op struct {
	at       time.Time
	units    int64     // below 0: a refund
	included int64     // of the plan from here on; -1: no change
	known    time.Time // when the database had it
}

// tenant is an account of the random months, and the list from which its invoices are computed independently.
type tenant struct {
	name, customer string
	sub            *stripe.Subscription
	scale          bool
	ops            []op
	ended          bool // its subscription was canceled
	trialUntil     time.Time
}

// months drives accounts through periods with everything at random.
type months struct {
	*world
	r       *rand.Rand
	second  *billing.Biller // of another worker process
	tenants []*tenant
	waiting map[*tenant][]int64 // keys counted on the slow node and not flushed
	lines   int                 // metered lines that were compared
}

// A month in seconds: every invoice equals what is computed from the list of admitted units, and the books hold.
// WEIR_CHAOS=1 runs it with 200 accounts, WEIR_SEED repeats a run.
func TestMonthsInSeconds(t *testing.T) {
	t.Parallel()
	accounts, seed := 8, seeded(t)
	if chaos() {
		accounts = 200
	}
	m := &months{world: newWorld(t, setup{sim: stripesim.Config{Seed: seed}}), r: rand.New(rand.NewPCG(seed, 1)), waiting: map[*tenant][]int64{}}
	m.second = m.biller(m.db)
	m.faults()
	for i := range accounts {
		m.tenants = append(m.tenants, m.newTenant(fmt.Sprintf("tenant-%d", i)))
		m.step(time.Duration(m.r.Int64N(int64(4*time.Hour) / int64(accounts))))
	}
	for month := 1; month <= 3; month++ {
		boundary := start.AddDate(0, month, 0)
		for m.sim.Now().Before(boundary.Add(-2 * time.Hour)) {
			m.live()
			m.step(min(boundary.Add(-time.Hour).Sub(m.sim.Now()), time.Duration(20+m.r.Int64N(90))*time.Hour))
		}
		for m.sim.Now().Before(boundary.Add(5*time.Hour + 30*time.Minute)) {
			m.live()
			m.step(10 * time.Minute) // one of them lies between the last reports and the finalization
		}
	}
	m.sim.Faults().Clear()
	for range 6 {
		m.step(time.Hour)
	}
	require.NoError(t, m.b.Sweep(t.Context()))
	m.step(time.Hour)
	m.verify()
}

func chaos() bool { return os.Getenv("WEIR_CHAOS") == "1" }

// seeded is the seed of a random test: WEIR_SEED, or a new one when that is 0 or not set. It is printed.
func seeded(t *testing.T) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("WEIR_SEED"); s != "" && s != "0" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seed = n
	}
	t.Logf("WEIR_SEED=%d", seed)
	return seed
}

func (m *months) newTenant(name string) *tenant {
	t := &tenant{name: name, scale: m.r.IntN(3) == 0, customer: m.customer(name)}
	p := &stripe.SubscriptionParams{Customer: stripe.String(t.customer)}
	base := map[bool]string{true: "scale_monthly", false: "pro_monthly"}[t.scale]
	items := []string{base, "usage"}
	m.r.Shuffle(2, func(i, j int) { items[i], items[j] = items[j], items[i] })
	for _, i := range items {
		p.Items = append(p.Items, &stripe.SubscriptionItemsParams{Price: stripe.String(m.price(i))})
	}
	if m.r.IntN(6) == 0 {
		t.trialUntil = start.AddDate(0, 1, 0).Add(time.Duration(m.r.IntN(180)) * time.Minute)
		p.TrialEnd = stripe.Int64(t.trialUntil.Unix())
	}
	sub, err := m.api.Subscriptions.New(p)
	require.NoError(m, err)
	t.sub = sub
	m.sync(t)
	t.ops = append(t.ops, op{at: m.sim.Now().Add(-time.Hour), included: t.included()})
	return t
}

func (t *tenant) included() int64 {
	if t.scale {
		return 20_000
	}
	return 1_000
}

// faults makes Stripe refuse, fail, forget to answer and repeat itself, now and then.
func (m *months) faults() {
	f := m.sim.Faults()
	events := "/v1/billing/meter_events"
	for _, e := range []stripesim.Effect{
		stripesim.RateLimited("endpoint-concurrency"), stripesim.LockTimeout(), stripesim.Unavailable(503), stripesim.FailAndKeep(500),
		stripesim.ExecuteAndFail(500), stripesim.DropAnswer(), stripesim.Truncate(), stripesim.CutBody(),
	} {
		f.Inject(stripesim.Match{Method: "POST", Path: events, When: m.oneIn(40)}, e)
	}
	f.Inject(stripesim.Match{Method: "GET", Path: "/v1/(subscriptions|invoices|customers)(/.*)?", When: m.oneIn(30)}, stripesim.RateLimited("endpoint-rate"))
	f.Inject(stripesim.Match{Method: "GET", Path: "/v1/(subscriptions|invoices)(/.*)?", When: m.oneIn(40)}, stripesim.DropAnswer())
	f.ShuffleWebhooks(true)
	f.InjectWebhook(stripesim.WebhookMatch{Type: "(customer|invoice).*"}, stripesim.RepeatWebhook(2))
}

// oneIn decides by the request's own text, so that it does not depend on the order of calls.
func (m *months) oneIn(n int) func(stripesim.Call) bool {
	salt := m.r.IntN(1 << 30)
	digits := regexp.MustCompile(`[0-9a-f]`)
	return func(c stripesim.Call) bool {
		h := salt
		for _, d := range digits.FindAllString(c.IdempotencyKey+c.RequestID, -1) {
			h = (h*31 + int(d[0])) & 0xffffff
		}
		return h%n == 0
	}
}

// sync makes a change known before anything else is counted: what is in flight at a plan change may fall on either side.
func (m *months) sync(t *tenant) {
	require.NoError(m, m.sim.Advance(m.Context(), m.sim.Now().Add(time.Second)))
	for range 20 {
		m.patience()
		if m.b.SyncCustomer(m.Context(), t.customer, true) == nil {
			return
		}
	}
	require.FailNow(m, "the customer could not be read")
}

// live lets each account do something.
func (m *months) live() {
	for _, t := range m.tenants {
		switch x := m.r.IntN(100); {
		case x < 45:
			m.use(t)
		case x < 55:
			m.useLate(t)
		case x < 62:
			m.changePlan(t)
		case x < 64:
			m.cancel(t)
		case x < 70:
			m.flushLate(t)
		case x < 74:
			m.refund(t)
		}
	}
	if m.r.IntN(12) == 0 {
		m.replaceNode()
	}
}

func (m *months) units(t *tenant) int64 {
	n := 1 + m.r.Int64N(900)
	if t.scale {
		n *= 12
	}
	return n
}

// use counts what the database admits of a random amount.
func (m *months) use(t *tenant) {
	n := m.units(t)
	for range 3 {
		a, err := usage.ConsumeStrict(m.Context(), m.db, usage.StrictCall{Account: t.name, Feature: "events", Units: n, At: m.sim.Now()})
		require.NoError(m, err)
		if a.Status == usage.StrictOK {
			t.ops = append(t.ops, op{at: m.sim.Now(), units: n, included: -1, known: m.sim.Now()})
			return
		}
		n = n/4 + 1
	}
}

// useLate counts on a node that sends its batch some steps later. Only who is surely billable does: a node whose batch
// is late has a lease for it.
func (m *months) useLate(t *tenant) {
	if t.ended || !m.sim.Now().After(t.trialUntil) {
		return
	}
	n := m.units(t)
	key := m.node.keyAt(t.name, m.sim.Now())
	m.node.used[key] += n
	m.waiting[t] = append(m.waiting[t], key)
	t.ops = append(t.ops, op{at: m.sim.Now(), units: n, included: -1})
}

// flushLate sends what the node has counted for an account.
func (m *months) flushLate(t *tenant) {
	if keys := m.waiting[t]; len(keys) > 0 {
		b := usage.Batch{Node: m.node.id, At: m.sim.Now(), Sealed: at("2000-01-01T00:00:00Z")}
		for _, k := range keys {
			b.Keys, b.Upto = append(b.Keys, k), append(b.Upto, m.node.used[k])
		}
		_, err := usage.Flush(m.Context(), m.db, b)
		require.NoError(m, err)
		m.isKnown(t)
	}
}

// isKnown notes that the database has everything of an account.
func (m *months) isKnown(t *tenant) {
	delete(m.waiting, t)
	for i := range t.ops {
		if t.ops[i].known.IsZero() {
			t.ops[i].known = m.sim.Now()
		}
	}
}

// refund takes units back, with nothing of the account in flight.
func (m *months) refund(t *tenant) {
	if t.ended {
		return
	}
	m.flushLate(t)
	n := 1 + m.r.Int64N(300)
	_, err := m.b.Adjust(m.Context(), t.name, "events", m.sim.Now(), -n, "tester", "a refund")
	if errors.Is(err, usage.ErrRefund) {
		return // less is counted
	}
	require.NoError(m, err)
	t.ops = append(t.ops, op{at: m.sim.Now(), units: -n, included: -1, known: m.sim.Now()})
}

// changePlan swaps the base item, with nothing of the account in flight.
func (m *months) changePlan(t *tenant) {
	if t.ended {
		return
	}
	m.flushLate(t)
	items, err := m.api.Subscriptions.Get(t.sub.ID, nil)
	require.NoError(m, retry(m, err, func() error { items, err = m.api.Subscriptions.Get(t.sub.ID, nil); return err }))
	t.scale = !t.scale
	for _, it := range items.Items.Data {
		if it.Price.Recurring.UsageType == stripe.PriceRecurringUsageTypeMetered {
			continue
		}
		_, err := m.api.Subscriptions.Update(t.sub.ID, &stripe.SubscriptionParams{Items: []*stripe.SubscriptionItemsParams{
			{ID: stripe.String(it.ID), Price: stripe.String(m.price(map[bool]string{true: "scale_monthly", false: "pro_monthly"}[t.scale]))},
		}})
		require.NoError(m, err)
	}
	m.sync(t)
	t.ops = append(t.ops, op{at: m.sim.Now(), included: t.included()})
}

func retry(m *months, err error, again func() error) error {
	for i := 0; err != nil && i < 20; i++ {
		err = again()
	}
	return err
}

// cancel settles the account, then cancels its subscription with an invoice, or sets it to end with its period.
func (m *months) cancel(t *tenant) {
	if t.ended || !m.sim.Now().After(t.trialUntil) {
		return
	}
	m.flushLate(t)
	t.ended = true
	if m.r.IntN(2) == 0 {
		_, err := m.api.Subscriptions.Update(t.sub.ID, &stripe.SubscriptionParams{CancelAtPeriodEnd: stripe.Bool(true)})
		require.NoError(m, err)
		m.sync(t)
		return
	}
	for i := 0; ; i++ {
		require.Less(m, i, 30, "the account could not be settled")
		m.patience()
		ctx, stop := context.WithTimeout(m.Context(), 20*time.Second)
		out, err := m.b.Settle(ctx, t.name)
		stop()
		if err == nil && (len(out) == 0 || out[0].Waiting == 0) {
			break
		}
	}
	// What was settled was known before the invoice of the same instant, whose time Stripe gives in whole seconds.
	for i, o := range t.ops {
		if o.known.Equal(m.sim.Now()) {
			t.ops[i].known = o.known.Truncate(time.Second).Add(-time.Nanosecond)
		}
	}
	_, err := m.api.Subscriptions.Cancel(t.sub.ID, &stripe.SubscriptionCancelParams{InvoiceNow: stripe.Bool(true)})
	require.NoError(m, err)
	m.sync(t)
}

// replaceNode kills the node with everything that it has not flushed, and recovers its journal.
func (m *months) replaceNode() {
	var entries []usage.Recovered
	for k, n := range m.node.used {
		entries = append(entries, usage.Recovered{Key: k, Upto: n, Matches: func(string, string, time.Time) bool { return true }})
	}
	_, err := usage.RecoverNode(m.Context(), m.db, m.node.id, entries, m.sim.Now())
	require.NoError(m, err)
	for t := range m.waiting {
		m.isKnown(t)
	}
	m.node = m.newNode()
}

// step moves time; nodes flush what waits before a boundary's deadline, and the worker works, killed now and then.
func (m *months) step(d time.Duration) {
	require.NoError(m, m.sim.Advance(m.Context(), m.sim.Now().Add(d)))
	for _, t := range m.tenants {
		if m.r.IntN(2) == 0 || d > time.Hour {
			m.flushLate(t)
		}
	}
	if len(m.waiting) == 0 || m.r.IntN(2) == 0 {
		for _, t := range m.tenants {
			m.flushLate(t)
		}
		m.node.flush()
	}
	for range 1 + m.r.IntN(3) {
		m.patience()
		var both sync.WaitGroup
		for _, b := range []*billing.Biller{m.b, m.second} {
			ctx, kill := context.WithTimeout(m.Context(), time.Duration(5+m.r.IntN(200))*time.Millisecond)
			both.Go(func() {
				defer kill()
				_ = m.tryWorkWith(ctx, b) // it was killed
			})
		}
		both.Wait()
	}
	for range 8 {
		m.patience()
		if m.tryWork(m.Context()) == nil && m.number("SELECT count(*) FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced") == 0 {
			break
		}
	}
}

// tryWork is a worker's pass that may end anywhere.
func (m *months) tryWork(ctx context.Context) error { return m.tryWorkWith(ctx, m.b) }

func (m *months) tryWorkWith(ctx context.Context, b *billing.Biller) error {
	for {
		n, err := usage.Fold(ctx, m.db, 5000)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	again := 1
	for again > 0 {
		var err error
		if again, err = b.SyncDue(ctx, 100); err != nil {
			return err
		}
	}
	if _, err := b.Close(ctx); err != nil {
		return err
	}
	if err := b.Report(ctx); err != nil {
		return err
	}
	_, err := b.ReadDueInvoices(ctx, 200)
	return err
}

// patience lets all waits of wall time pass: claims of workers that were killed, and back-off.
func (w *world) patience() {
	w.Helper()
	w.exec("UPDATE weir.reports SET retry_at = '-infinity' WHERE state IN ('stored', 'unknown') AND retry_at < 'infinity' AND retry_at > '-infinity'")
	w.exec("UPDATE weir.streams SET claimed_until = '-infinity'")
	w.exec("UPDATE weir.customers SET claimed_until = '-infinity'")
	w.exec("UPDATE weir.invoices SET claimed_until = '-infinity'")
	w.exec("UPDATE weir.late SET retry_at = '-infinity' WHERE state = 'stored'")
}

// verify compares every finalized line with what the list of admitted units says, and the books with themselves. What
// the database had before an invoice was final is on it; the rest is late, to the unit.
func (m *months) verify() {
	late := map[string]int64{}
	for _, t := range m.tenants {
		for _, inv := range m.sim.Invoices(t.customer) {
			if inv.Status == "draft" {
				continue
			}
			for _, l := range inv.Lines {
				if l.Meter != m.meter || l.Free {
					continue
				}
				m.lines++
				want := t.overage(l.Start, l.End, inv.FinalizedAt)
				require.Equal(m, want, l.Quantity, "%s, %s – %s, invoice %s", t.name, l.Start, l.End, inv.ID)
				late[t.name] += t.overage(l.Start, l.End, m.sim.Now()) - want
			}
		}
	}
	require.NotZero(m, m.lines)
	booked := map[string]int64{}
	for month := range 4 {
		r := m.closeReport(start.AddDate(0, month, 0))
		require.Empty(m, r.Breaks)
		for _, row := range r.Rows {
			booked[row.Account] += row.Late
			require.Equal(m, row.Overage, row.Invoiced+row.Pending+row.Late+row.Forgiven+row.NotBillable, "%+v", row)
		}
	}
	for _, t := range m.tenants {
		require.Equal(m, late[t.name], booked[t.name], "%s: what is late", t.name)
	}
	m.reportedOnce()
}

// reportedOnce checks that no identifier was accepted twice.
func (w *world) reportedOnce() {
	w.Helper()
	seen := map[string]bool{}
	for _, e := range w.sim.MeterEvents() {
		require.False(w, seen[e.Identifier], "identifier %s was accepted twice", e.Identifier)
		seen[e.Identifier] = true
	}
}

// overage counts forward what was admitted in a period and known before an instant, in the order of admission.
func (t *tenant) overage(from, to, before time.Time) int64 {
	var included, free, over int64
	for _, o := range t.ops {
		if o.included >= 0 && o.at.Before(to) {
			included = o.included
		}
		if o.units == 0 || o.at.Before(from) || !o.at.Before(to) || !o.known.Before(before) {
			continue
		}
		f := min(o.units, max(0, included-free))
		if o.units < 0 { // of overage first
			f = min(0, over+o.units)
		}
		free += f
		over += o.units - f
	}
	return over
}
