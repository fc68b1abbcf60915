package billing_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/webhook"

	"github.com/weirhq/weir/internal/stripesim"
)

// post sends a body to the webhook, signed as told, and returns the status.
func (w *world) post(body []byte, header string) int {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.hookAt, bytes.NewReader(body))
	require.NoError(w, err)
	if header != "" {
		r.Header.Set("Stripe-Signature", header)
	}
	res, err := http.DefaultClient.Do(r)
	require.NoError(w, err)
	text, err := io.ReadAll(res.Body)
	require.NoError(w, err)
	require.NoError(w, res.Body.Close())
	require.NotContains(w, string(text), "weir.", "no internal text reaches a stranger")
	return res.StatusCode
}

func (w *world) sign(body []byte, secret string, age time.Duration) string {
	return webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: secret, Timestamp: w.sim.Now().Add(-age)}).Header
}

func eventBody(id, kind, object string) []byte {
	return fmt.Appendf(nil, `{"id":%q,"object":"event","type":%q,"livemode":false,"created":1,"api_version":"2024-06-20","data":{"object":%s}}`, id, kind, object)
}

func TestCase19Signatures(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	good := eventBody("evt_1", "customer.subscription.updated", `{"id":"sub_1","object":"subscription","customer":"cus_1"}`)
	right, wrong := w.sign(good, secret, 0), w.sign(good, "whsec_wrong", 0)
	_, v1, _ := strings.Cut(right, ",v1=")
	old, fresh := w.sign(good, secret, 6*time.Minute), fmt.Sprintf("t=%d,", w.sim.Now().Unix())
	large := eventBody("evt_2", "x.y", `{"pad":"`+strings.Repeat("x", 2<<20)+`"}`)
	for name, c := range map[string]struct {
		body   []byte
		header string
	}{
		"missing": {good, ""}, "wrong secret": {good, wrong}, "six minutes old": {good, w.sign(good, secret, 6*time.Minute)},
		"six minutes ahead": {good, w.sign(good, secret, -6*time.Minute)}, "one byte changed": {bytes.Replace(good, []byte("cus_1"), []byte("cus_2"), 1), right},
		"replayed with a fresh stamp before":        {good, fresh + old},
		"replayed with a fresh stamp and a blank":   {good, " " + fresh + old},
		"replayed with a fresh stamp after a blank": {good, strings.Replace(old, ",", ", "+fresh, 1)},
		"2 MiB": {large, w.sign(large, secret, 0)}, "no header at all": {good, "nonsense"},
		"not JSON":     {[]byte("hello"), w.sign([]byte("hello"), secret, 0)},
		"not UTF-8":    {[]byte("{\"id\":\"\xff\"}"), w.sign([]byte("{\"id\":\"\xff\"}"), secret, 0)},
		"no id":        {eventBody("", "x.y", `{}`), w.sign(eventBody("", "x.y", `{}`), secret, 0)},
		"an array":     {[]byte(`[1]`), w.sign([]byte(`[1]`), secret, 0)},
		"NUL in an id": {eventBody("evt_\u0000", "x.y", `{}`), w.sign(eventBody("evt_\u0000", "x.y", `{}`), secret, 0)},
	} {
		require.Equal(t, 400, w.post(c.body, c.header), name)
	}
	live := bytes.Replace(good, []byte(`"livemode":false`), []byte(`"livemode":true`), 1)
	require.Equal(t, 400, w.post(live, w.sign(live, secret, 0)), "case 43: the other mode")
	require.Zero(t, w.number("SELECT count(*) FROM weir.webhook_events"), "nothing stored")
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers"))

	require.Equal(t, 200, w.post(good, strings.Replace(wrong, ",v1=", ",v1="+strings.Repeat("0", 64)+",v1="+v1+",v1=", 1)), "two v1 values, the second right")
	other := eventBody("evt_3", "customer.subscription.updated", `{"id":"sub_1","object":"subscription","customer":"cus_1"}`)
	require.Equal(t, 200, w.post(other, w.sign(other, "whsec_old", 4*time.Minute)), "a rolled secret")
	require.EqualValues(t, 2, w.number("SELECT count(*) FROM weir.webhook_events"))
}

func TestWebhooksThatConcernNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	for i, c := range []struct{ kind, object string }{
		{"charge.succeeded", `{"id":"ch_1","object":"charge"}`}, {"invoice.upcoming", `{"object":"invoice","customer":"cus_1"}`},
		{"customer.subscription.updated", `{"id":"sub_1","customer":null}`}, {"customer.subscription.updated", `{"id":"sub_1","customer":"cus_\n\u0000"}`},
		{"customer.subscription.updated", `null`}, {"checkout.session.completed", `{"id":"cs_1","customer":"cus_1","client_reference_id":" "}`},
		{"invoice.created", `{"id":"` + strings.Repeat("i", 300) + `","object":"invoice","customer":"cus_1"}`},
	} {
		body := eventBody(fmt.Sprintf("evt_%d", i), c.kind, c.object)
		require.Equal(t, 200, w.post(body, w.sign(body, secret, 0)), c.kind)
	}
	r, err := http.Get(w.hookAt)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusMethodNotAllowed, r.StatusCode)
	w.work()
	require.Zero(t, w.number("SELECT count(*) FROM weir.customers WHERE account_id IS NOT NULL"))
}

func TestCase16DuplicatesAndOrderDoNotMatter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	customer, sub := w.subscribe("acme", "pro_monthly", "usage")
	body := eventBody("evt_1", "customer.subscription.created", fmt.Sprintf(`{"id":%q,"object":"subscription","customer":%q}`, sub.ID, customer))
	header := w.sign(body, secret, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got := w.post(body, header); got != 200 {
				t.Errorf("status %d", got)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.webhook_events"))
	require.EqualValues(t, 8, w.number("SELECT deliveries FROM weir.webhook_events"))
	require.EqualValues(t, 1, w.number("SELECT wanted FROM weir.customers"), "one effect")
	w.work()
	before := w.number("SELECT number FROM weir.changes")
	// What the events say of it differs; they come in all orders, one at a time and all at once.
	states := []string{`"status":"incomplete"`, `"status":"active"`, `"status":"canceled"`}
	for i, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for j, s := range order {
			kind := []string{"created", "updated", "updated"}[s]
			b := eventBody(fmt.Sprintf("evt_1%d%d", i, j), "customer.subscription."+kind, fmt.Sprintf(`{"id":%q,"object":"subscription","customer":%q,%s}`, sub.ID, customer, states[s]))
			require.Equal(t, 200, w.post(b, w.sign(b, secret, 0)))
			if i%2 == 0 {
				w.work()
			}
		}
		w.work()
		require.Equal(t, before, w.number("SELECT number FROM weir.changes"), "reading the same state again changes nothing")
		require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"), "order %v", order)
	}
}

func TestMappingByClientReference(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, sub := w.subscribe("", "pro_monthly", "usage")
	w.soon()
	w.sim.CompleteCheckout(stripesim.CheckoutSession{Customer: customer, Subscription: sub.ID, ClientReferenceID: "acme"})
	w.soon()
	require.Equal(t, "pro yes", w.plan("acme")+" "+w.billability("acme"))
	require.Equal(t, "client_reference_id", w.text("SELECT source FROM weir.customers WHERE customer = $1", customer))
	w.sim.CompleteCheckout(stripesim.CheckoutSession{Customer: customer, Subscription: sub.ID, ClientReferenceID: "somebody-else"})
	w.soon()
	require.Contains(t, w.findings()["mapping_conflict"], "somebody-else")
	require.Equal(t, "acme", w.text("SELECT a.account FROM weir.customers c JOIN weir.accounts a ON a.id = c.account_id"))
	m, err := w.b.Mappings(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, m, 1)
	require.Equal(t, customer, m[0].Customer)
}

func TestARemapEndsTheSegment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, key := w.over("acme", 40)
	w.hour()
	w.node.use("acme", 5)
	other, _ := w.subscribe("", "pro_monthly", "usage")
	require.NoError(t, w.b.Link(t.Context(), "acme", other, "tester"))
	w.soon()
	w.advance(w.sim.Now().Add(10*time.Minute), 10*time.Minute)
	w.node.use("acme", 7)
	w.advance(w.sim.Now().Add(2*time.Hour), time.Hour)
	require.EqualValues(t, 45, w.reported(customer), "links keep their customer")
	require.EqualValues(t, 7, w.reported(other))
	require.EqualValues(t, 3, w.number("SELECT count(*) FROM weir.mapping_log"), "mapped, unmapped, mapped")
	_ = key
}

// No event waits once what it asked for was done: of a price, which belongs to no customer, of an invoice that is gone,
// and of a customer that is.
func TestNoEventWaitsForEver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	_, err := w.api.Prices.Update(w.price("usage"), &stripe.PriceParams{Nickname: stripe.String("usage")})
	require.NoError(t, err)
	inv, err := w.api.Invoices.New(&stripe.InvoiceParams{Customer: stripe.String(customer), AutoAdvance: stripe.Bool(false)})
	require.NoError(t, err)
	w.soon()
	_, err = w.api.Invoices.Del(inv.ID, nil)
	require.NoError(t, err)
	w.soon()
	require.Equal(t, "deleted", w.text("SELECT status FROM weir.invoices WHERE invoice = $1", inv.ID))
	require.EqualValues(t, 3, w.number("SELECT count(*) FROM weir.webhook_events WHERE type IN ('price.updated', 'invoice.created', 'invoice.deleted') AND object IN ($1, $2)", w.price("usage"), inv.ID))
	const waiting = "SELECT string_agg(type, ', ') FROM weir.webhook_events WHERE state = 'stored'"
	require.Equal(t, "NULL", w.text(waiting))
	gone := w.customer("")
	require.NoError(t, w.b.Link(t.Context(), "gone", gone, "tester"))
	w.soon()
	held := w.sim.Faults().InjectWebhook(stripesim.WebhookMatch{Type: "customer.updated"}, stripesim.HoldWebhook())
	_, err = w.api.Customers.Update(gone, &stripe.CustomerParams{Description: stripe.String("on its way out")})
	require.NoError(t, err)
	_, err = w.api.Customers.Del(gone, nil)
	require.NoError(t, err)
	w.soon()
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.customers WHERE customer = $1 AND deleted", gone))
	held.Remove()
	held.Release()
	w.soon()
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.webhook_events WHERE type = 'customer.updated' AND customer = $1", gone))
	require.Equal(t, "NULL", w.text(waiting))
}
