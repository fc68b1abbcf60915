package billing_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

// tired is a way to Stripe on which one list of a path in each round is answered; the caller's time is over then.
type tired struct {
	next http.RoundTripper
	path string
	left atomic.Int64
	over atomic.Pointer[context.CancelFunc]
}

func (t *tired) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Path == t.path && t.left.Add(-1) < 0 {
		(*t.over.Load())()
		<-r.Context().Done()
	}
	return t.next.RoundTrip(r)
}

// rounds sweeps again and again with time for one such list each, until a sweep has come to its end.
func (w *world) rounds(path string, most int) (n int) {
	w.Helper()
	transport := &http.Transport{}
	w.Cleanup(transport.CloseIdleConnections)
	road := &tired{next: transport, path: path}
	c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: road}, EventsPerSecond: 1000, ReadsPerSecond: 1000})
	require.NoError(w, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), Readers: 1})
	require.NoError(w, err)
	for n = 1; n <= most; n++ {
		ctx, cancel := context.WithCancel(w.Context())
		road.left.Store(1)
		road.over.Store(&cancel)
		_ = b.Sweep(ctx)
		cancel()
		due, err := b.Due(w.Context())
		require.NoError(w, err)
		if !due.Sweep {
			return n
		}
	}
	return n
}

// A sweep that is longer than a job's time goes on where the last one ended.
func TestASweepGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer := w.customer("")
	for range 350 {
		w.subscribeCustomer(customer, "scale_monthly")
	}
	require.LessOrEqual(t, w.rounds("/v1/subscriptions", 10), 6)
}

// The same while it lists the invoices of many subscriptions, which stay drafts for days.
func TestASweepOfInvoicesGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.crowd(5)
	w.toEnd()
	w.hook.Serve(nil)
	w.advance(start.AddDate(0, 1, 1), 2*time.Hour)
	const open = "SELECT count(DISTINCT s.subscription) FROM weir.books b JOIN weir.segments s ON s.key = b.key WHERE NOT b.final"
	subs := int(w.number(open))
	require.GreaterOrEqual(t, subs, 5)
	require.LessOrEqual(t, w.rounds("/v1/invoices", 3*subs), subs+2)
	require.EqualValues(t, subs, w.number(open), "they are drafts")
}

// An invoice is voided days after it was final, and no webhook comes of it: the sweep finds it.
func TestAVoidedInvoiceIsFoundWithoutAWebhook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.sim.DeclinePayments(customer, true)
	w.toEnd()
	w.finish()
	require.NoError(t, w.b.Sweep(t.Context()))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.DropWebhook())
	w.advance(w.sim.Now().Add(3*day), day)
	_, err := w.api.Invoices.VoidInvoice(w.sim.Invoices(customer)[1].ID, nil)
	require.NoError(t, err)
	w.advance(w.sim.Now().Add(day), day)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 40, Late: 40}, w.book(key))
}

// Late usage whose item was deleted at Stripe, and that is released again within the day, is put on an invoice again.
func TestALateItemThatWasDeletedIsMadeAgainOnTheSameDay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7)
	require.NoError(t, w.b.Late(t.Context()))
	_, err := w.api.InvoiceItems.Del(w.text("SELECT object FROM weir.late"), nil)
	require.NoError(t, err)
	require.NoError(t, w.b.Sweep(t.Context()))
	require.NoError(t, w.b.LateRelease(t.Context(), w.number("SELECT id FROM weir.late"), "invoice_item", "tester", "it was a slip"))
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, "sent", w.text("SELECT state FROM weir.late"))
	require.Equal(t, 1, w.items(customer))
}

// A customer is deleted, and its subscription with it: no invoice comes of what was counted, which is late within hours.
func TestADeletedCustomersUsageIsLateSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.hour()
	_, err := w.api.Customers.Del(customer, nil)
	require.NoError(t, err)
	w.soon()
	w.advance(w.sim.Now().Add(4*time.Hour), 30*time.Minute)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 40, Late: 40}, w.book(key))
}

// Stripe answers nothing for hours, for sweeps neither: renewals that nobody can confirm stop all the same, however many
// they are.
func TestRenewalsStopUnconfirmedWhateverStripeDoes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 10)
	w.toEnd()
	w.sim.Faults().Inject(stripesim.Match{}, stripesim.Unavailable(503))
	end := start.AddDate(0, 1, 0)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(time.Minute)))
	key := w.node.use("acme", 1_200)
	w.fold()
	w.exec(`WITH made AS (
			INSERT INTO weir.periods (account_id, starts, ends, planned, plan, catalog, source, created_at)
			SELECT p.account_id, p.starts + g * interval '1 s', p.ends, p.ends, p.plan, p.catalog, 'subscription', $2
			FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id, generate_series(1, 700) g WHERE k.key = $1 RETURNING id)
		SELECT weir.copy_terms(array_agg(m.id), '{}', (SELECT array_agg(f.id) FROM weir.features f), NULL) FROM made m`, key, w.sim.Now())
	work := func(after time.Duration) {
		require.NoError(t, w.sim.Advance(t.Context(), end.Add(after)))
		require.Error(t, w.b.Sweep(t.Context()))
		_ = w.b.Reconcile(t.Context())
	}
	work(5 * time.Hour)
	require.Equal(t, "awaiting", w.text("SELECT billability FROM weir.keys WHERE key = $1", key))
	work(7 * time.Hour)
	require.Equal(t, "no", w.text("SELECT billability FROM weir.keys WHERE key = $1", key))
	require.Contains(t, w.findings()["unconfirmed_period"], "not confirmed")
	require.EqualValues(t, 0, w.number("SELECT count(*) FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id WHERE k.billability = 'awaiting' AND p.starts < $1", end.Add(time.Hour)))
}

// refusing is a way to Stripe on which requests whose URL has a text are always answered with a status.
type refusing struct {
	next   http.RoundTripper
	part   string
	status int
}

func (b *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.URL.String(), b.part) {
		return b.next.RoundTrip(r)
	}
	body := io.NopCloser(strings.NewReader(`{"error": {"type": "api_error", "message": "broken"}}`))
	return &http.Response{StatusCode: b.status, Header: http.Header{}, Body: body, Request: r}, nil
}

// brokenSweep sweeps once while Stripe answers so.
func (w *world) brokenSweep(part string, status int) error {
	w.Helper()
	transport := &http.Transport{}
	w.Cleanup(transport.CloseIdleConnections)
	c, err := billing.NewClient(billing.ClientConfig{
		Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: &refusing{transport, part, status}}, EventsPerSecond: 1000, ReadsPerSecond: 1000,
	})
	require.NoError(w, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(w, err)
	return b.Sweep(w.Context())
}

// One object that Stripe always answers with an error keeps no sweep from its end: it is found and passed over.
func TestASweepPassesOverWhatAlwaysFails(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"500": 500, "404": 404} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
			customer, key := w.over("acme", 40)
			w.over("other", 40)
			w.toEnd()
			w.hook.Serve(nil)
			w.advance(start.AddDate(0, 1, 4), 12*time.Hour)
			sub := w.text("SELECT subscription FROM weir.segments WHERE key = $1", key)
			require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.books WHERE NOT final"))
			require.NoError(t, w.brokenSweep("subscription="+sub, status))
			require.Contains(t, w.findings()["sweep_skipped"], sub)
			require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.books WHERE NOT final"), "the other one's invoice was read")
			due, err := w.b.Due(t.Context())
			require.NoError(t, err)
			require.False(t, due.Sweep)
			// The next one finds it well.
			require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(day)))
			require.NoError(t, w.b.Sweep(t.Context()))
			require.NotContains(t, w.findings(), "sweep_skipped")
			require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
			require.EqualValues(t, 40, w.billed(customer))
		})
	}
}

// The same for an item of late usage; and where Stripe answers nothing at all, nobody is passed over.
func TestASweepPassesOverAnItemButNotOverAnOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	_, key := w.over("acme", 40)
	w.toEnd()
	w.lateBy(key, 7)
	require.NoError(t, w.b.Late(t.Context()))
	item := w.text("SELECT object FROM weir.late")
	require.Error(t, w.brokenSweep("/v1/invoice", 503))
	require.NotContains(t, w.findings(), "sweep_skipped")
	require.NoError(t, w.brokenSweep("/v1/invoiceitems/"+item, 503))
	require.Contains(t, w.findings()["sweep_skipped"], item)
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.late WHERE state = 'sent' AND read_at = $1", w.sim.Now()))
}

// A list that fails keeps nothing of what comes after it.
func TestASweepGoesOnBehindAListThatFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40)
	w.toEnd()
	w.hook.Serve(nil)
	w.advance(start.AddDate(0, 1, 4), 12*time.Hour)
	require.Error(t, w.brokenSweep("/v1/subscriptions", 500))
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	due, err := w.b.Due(t.Context())
	require.NoError(t, err)
	require.True(t, due.Sweep)
}
