package billing_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

// A call that makes an invoice item and hangs at Stripe may make it at any time. Until that is over no attempt has
// another Idempotency-Key, whatever the ones after it were told: there is one item in the end.
func TestAnItemThatHangsAtStripeIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	limited, unauthorized, gateway := stripesim.RateLimited("endpoint-rate"), stripesim.Unauthorized(), stripesim.Unavailable(503)
	for name, effect := range map[string]*stripesim.Effect{
		"the key is in use":  nil,
		"too many calls":     &limited,
		"unauthorized":       &unauthorized,
		"a gateway's answer": &gateway,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
			customer, key := w.over("acme", 40)
			w.toEnd()
			w.lateBy(key, 7)
			items := stripesim.Match{Method: "POST", Path: "/v1/invoiceitems", Count: 1}
			stall := w.sim.Faults().Inject(items, stripesim.StallBefore(0))
			t.Cleanup(stall.Release)
			transport := &http.Transport{}
			t.Cleanup(transport.CloseIdleConnections)
			c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: transport}, EventsPerSecond: 1000, ReadsPerSecond: 1000})
			require.NoError(t, err)
			b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			gone := make(chan error, 1)
			go func() { gone <- b.Late(ctx) }()
			require.NoError(t, stall.Wait(t.Context(), 1))
			cancel()
			require.Error(t, <-gone, "nobody waits for its answer")

			if effect != nil {
				w.sim.Faults().Inject(items, *effect)
			}
			again := func() {
				w.exec("DELETE FROM weir.stops")
				// Half a minute passes, no more.
				w.exec("UPDATE weir.late SET retry_at = '-infinity' WHERE retry_at < clock_timestamp() + interval '31 seconds'")
				_ = b.Late(t.Context())
			}
			w.exec("UPDATE weir.late SET retry_at = '-infinity'")
			again()
			again()
			stall.Release()
			w.sim.Faults().Clear()
			require.Eventually(t, func() bool { return w.items(customer) > 0 }, 10*time.Second, 10*time.Millisecond)
			w.patience()
			require.NoError(t, b.Late(t.Context()))
			require.Equal(t, "sent", w.text("SELECT state FROM weir.late"))
			require.Equal(t, 1, w.items(customer))
		})
	}
}

// items counts a customer's invoice items at Stripe.
func (w *world) items(customer string) (n int) {
	w.Helper()
	list := w.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(customer)})
	for list.Next() {
		n++
	}
	require.NoError(w, list.Err())
	return n
}

// Where a period's overage went to two subscriptions, and no webhook came of the second one's invoice, the first one's
// writes nothing off: what ended hours ago may be on an invoice that nobody here has seen. The sweep lists it.
func TestNothingIsWrittenOffBeforeTheSecondInvoiceIsLookedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: forgive")})
	first, _ := w.subscribe("acme", "pro_monthly", "usage")
	second, _ := w.subscribe("", "pro_monthly", "usage") // at the same instant: the period goes on
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	key := w.node.use("acme", 1_300)
	w.hour()
	require.NoError(t, w.b.Link(t.Context(), "acme", second, "tester"))
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	require.Equal(t, key, w.node.use("acme", 200))
	w.hour()
	w.toEnd()
	require.EqualValues(t, 300, w.reported(first))
	require.EqualValues(t, 200, w.reported(second))
	w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{}, stripesim.DropWebhook())
	end := start.AddDate(0, 1, 0)
	w.advance(end.Add(24*time.Hour), 2*time.Hour)
	require.EqualValues(t, 200, w.billed(second))
	for _, inv := range w.sim.Invoices(first) {
		w.exec("INSERT INTO weir.invoices (invoice, customer, livemode, seen_at) VALUES ($1, $2, false, $3) ON CONFLICT (invoice) DO UPDATE SET wanted = weir.invoices.wanted + 1", inv.ID, first, w.sim.Now())
	}
	w.work()
	require.Equal(t, book{Overage: 500, Invoiced: 300, Pending: 200}, w.book(key))
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	require.Equal(t, book{Overage: 500, Invoiced: 500}, w.book(key))
	require.Zero(t, w.number("SELECT count(*) FROM weir.late")+w.number("SELECT count(*) FROM weir.forgiven"))
}
