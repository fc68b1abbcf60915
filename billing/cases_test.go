package billing_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// mark sends a node's mark, and the keys under which it holds reservations over their period's end.
func (n *node) mark(held ...int64) {
	n.w.Helper()
	n.Send(usage.Batch{At: n.w.sim.Now(), Sealed: n.w.sim.Now(), Held: held})
}

func TestCase07WorkThatEndsAfterTheBoundaryIsBilledInThePeriodOfAdmission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.toEnd()
	end := start.AddDate(0, 1, 0)
	n := w.node
	w.node = nil // the test marks by itself
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(-time.Millisecond)))
	n.mark(key) // admitted, and running
	for _, after := range []time.Duration{time.Minute, 20 * time.Minute, 35 * time.Minute} {
		require.NoError(t, w.sim.Advance(t.Context(), end.Add(after)))
		n.mark(key)
		w.work()
		require.Equal(t, "closing", w.text("SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", key), "it waits for what is held")
	}
	n.used[key] += 7 // settled after the end
	n.flush(key)
	w.work()
	require.Equal(t, "closed", w.text("SELECT p.state FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", key))
	w.node = n
	w.finish()
	require.EqualValues(t, 47, w.billed(customer))
	require.Equal(t, book{Overage: 47, Invoiced: 47}, w.book(key))
}

func TestCase20NamesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	for account, customer := range map[string]string{
		"": "cus_1", " ": "cus_1", strings.Repeat("a", 300): "cus_1", "a\x00": "cus_1", "a\xff": "cus_1", "acme ": "cus_1", "ac\nme": "cus_1", "acme": "sub_1", "umbrella": "", "initech": "cus_\n",
	} {
		require.True(t, billing.IsPermanent(w.b.Link(t.Context(), account, customer, "tester")), "%q %q", account, customer)
	}
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers"))
	require.Zero(t, w.number("SELECT count(*) FROM weir.accounts"))

	// What the host tells Stripe is no better.
	for _, name := range []string{" ", strings.Repeat("a", 300), " acme", "acme\u2028"} {
		customer, _ := w.subscribe(name, "pro_monthly", "usage")
		w.soon()
		require.Contains(t, w.findings()["bad_reference"], customer)
	}
	customer := w.customer("")
	w.sim.CompleteCheckout(stripesim.CheckoutSession{Customer: customer, ClientReferenceID: strings.Repeat("b", 300)})
	w.soon()
	require.Contains(t, w.findings()["bad_reference"], customer)
	require.Zero(t, w.number("SELECT count(*) FROM weir.accounts"))

	// Features are names, not guesses.
	w.over("acme", 1)
	for _, feature := range []string{"", "Events", "EVENTS", "event", "events\x00"} {
		_, err := w.b.Adjust(t.Context(), "acme", feature, w.sim.Now(), 5, "tester", "a guess")
		require.Error(t, err, feature)
	}
	for _, account := range []string{"", "ACME", "acme ", "nobody", strings.Repeat("a", 300)} {
		_, err := w.b.Adjust(t.Context(), account, "events", w.sim.Now(), 5, "tester", "a guess")
		require.Error(t, err, account)
		_, err = w.b.Settle(t.Context(), account)
		require.Error(t, err, account)
	}
	require.Zero(t, w.number("SELECT count(*) FROM weir.adjustments"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.accounts"))
}

func TestCase41eARefusedReportIsReplacedAndCountedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.sim.Faults().RejectMeterEvents("archived_meter", 1, func(stripesim.MeterEvent) bool { return true })
	w.hour()
	w.soon()
	require.NoError(t, w.b.ReadMeterErrors(t.Context()))
	require.Equal(t, "rejected", w.states())
	require.NoError(t, w.b.Reconcile(t.Context())) // the meter is active
	w.hour()
	require.Equal(t, "rejected replaced, delivered", w.states())
	require.EqualValues(t, 2, w.number("SELECT count(DISTINCT (identifier, stamp)) FROM weir.reports WHERE seq = 1"), "a new identifier, a minute of its own")
	w.toEnd()
	w.finish()
	require.EqualValues(t, 40, w.billed(customer))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
}

func TestCase41eACached500IsNotReplayedForADay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	fault := w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: eventsPath, Count: 1}, stripesim.FailAndKeep(500))
	customer, _ := w.over("acme", 40)
	w.hour()
	require.Equal(t, 1, fault.Hits())
	w.patience()
	w.work()
	require.Equal(t, "delivered", w.states(), "the next attempt has another Idempotency-Key")
	require.EqualValues(t, 40, w.reported(customer))
	require.EqualValues(t, 2, w.number("SELECT count(DISTINCT idempotency) FROM weir.report_attempts"))
	require.EqualValues(t, 1, w.number("SELECT count(DISTINCT identifier) FROM weir.reports"))
}

// withoutPeriods takes the periods out of every subscription that Stripe answers.
type withoutPeriods struct{ on bool }

func (p *withoutPeriods) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !p.on || r.URL.Path != "/v1/subscriptions" {
		return res, err
	}
	defer res.Body.Close()
	body := map[string]any{}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return nil, err
	}
	strip(body)
	text, err := json.Marshal(body)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return res, err
}

func strip(v any) {
	switch x := v.(type) {
	case map[string]any:
		delete(x, "current_period_start")
		delete(x, "current_period_end")
		for _, each := range x {
			strip(each)
		}
	case []any:
		for _, each := range x {
			strip(each)
		}
	}
}

// A subscription without any period is stored as read, changes nothing, and holds up nobody else.
func TestCase05ASubscriptionWithoutAPeriodIsRefused(t *testing.T) {
	t.Parallel()
	bare := &withoutPeriods{on: true}
	w := newWorld(t, setup{tune: func(c *billing.ClientConfig) { c.HTTPClient = &http.Client{Transport: bare} }})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	require.Contains(t, w.findings()["no_period"], sub.ID)
	require.Zero(t, w.number("SELECT count(*) FROM weir.periods"), "nothing is made of it")
	require.Zero(t, w.number("SELECT count(*) FROM weir.segments"))
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers WHERE wanted > synced"), "it is not read again and again")
	bare.on = false
	w.subscribe("other", "pro_monthly", "usage")
	w.soon()
	require.Equal(t, "pro yes", w.plan("other")+" "+w.billability("other"))
	require.NoError(t, w.b.SyncCustomer(t.Context(), customer, true))
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Empty(t, w.findings())
	w.node.use("acme", 1_040)
	w.hour()
	bare.on = true
	require.NoError(t, w.b.SyncCustomer(t.Context(), customer, true))
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"), "a known account stays as it is")
	require.Contains(t, w.findings()["no_period"], sub.ID)
}

// Every event of a list that somebody else's integration may cause is answered, and the queue goes on behind it.
func TestEventsOfAnybodyElseHoldUpNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	foreign := w.customer("")
	w.subscribeCustomer(foreign, w.licensed("", 900, "month"))
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	for i, c := range []struct{ kind, object string }{
		{"customer.subscription.created", `{"id":"sub_x","object":"subscription","customer":"` + foreign + `"}`},
		{"customer.subscription.created", `{"id":"sub_gone","object":"subscription","customer":"cus_gone"}`},
		{"invoice.created", `{"id":"in_gone","object":"invoice","customer":"` + foreign + `"}`},
		{"invoice.finalized", `{"id":"in_gone","object":"invoice","customer":"cus_gone"}`},
		{"customer.deleted", `{"id":"cus_gone","object":"customer"}`},
		{"customer.subscription.created", `{"id":"` + sub.ID + `","object":"subscription","customer":"` + customer + `"}`},
	} {
		body := eventBody("evt_"+string(rune('a'+i)), c.kind, c.object)
		require.Equal(t, 200, w.post(body, w.sign(body, secret, 0)), c.kind)
	}
	w.work()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers WHERE wanted > synced"))
	require.Zero(t, w.number("SELECT count(*) FROM weir.invoices WHERE wanted > read"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.accounts"))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.webhook_events WHERE customer = $1 AND state = 'foreign' AND type LIKE 'customer.%'", foreign))
}

// What a month used, corrections included, each in the month in which it was made.
func TestAccrualsFollowCorrections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 40)
	w.hour()
	_, err := w.b.Adjust(t.Context(), "acme", "events", w.sim.Now(), -15, "tester", "a refund")
	require.NoError(t, err)
	w.advance(at("2026-02-05T00:00:00Z"), 10*day)
	_, err = w.b.Adjust(t.Context(), "acme", "events", w.sim.Now(), -5, "tester", "another, of January's units")
	require.NoError(t, err)
	w.node.use("acme", 3)
	w.fold()
	accruals := func(month time.Time) books.CloseAccrual {
		r := w.closeReport(month)
		require.Len(t, r.Accruals, 1)
		return r.Accruals[0]
	}
	require.Equal(t, books.CloseAccrual{Account: "acme", Feature: "events", Units: 1_025, Overage: 25}, accruals(at("2026-01-15T00:00:00Z")))
	require.Equal(t, books.CloseAccrual{Account: "acme", Feature: "events", Units: -2, Overage: -2}, accruals(at("2026-02-15T00:00:00Z")))
	require.EqualValues(t, 23, w.number("SELECT overage FROM weir.totals WHERE used > 0"), "both months together")
}

// Prorations, credits and one-time items on an invoice are nobody's usage.
func TestOtherLinesOfAnInvoiceAreNotUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	key := w.node.use("acme", 1_040)
	w.change(sub, "scale_monthly") // prorated
	_, err := w.api.InvoiceItems.New(&stripe.InvoiceItemParams{Customer: stripe.String(customer), Amount: stripe.Int64(77), Currency: stripe.String("usd")})
	require.NoError(t, err)
	w.toEnd()
	w.finish()
	require.Greater(t, w.number("SELECT count(*) FROM weir.invoice_lines"), int64(4))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	require.NotContains(t, w.findings(), "foreign_line")
}
