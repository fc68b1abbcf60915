package billing_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
)

// taxed is a way to a Stripe that adds a fifth to each credit note, and takes none on a paid invoice that gives back
// another amount than that.
type taxed struct {
	t    *testing.T
	next http.RoundTripper
	took int64
}

func (x *taxed) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/credit_notes/preview"):
		amount, err := strconv.ParseInt(r.URL.Query().Get("lines[0][amount]"), 10, 64)
		require.NoError(x.t, err)
		return x.answer(r, http.StatusOK, map[string]any{"total": amount * 6 / 5}), nil
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/credit_notes"):
		body, err := io.ReadAll(r.Body)
		require.NoError(x.t, err)
		form, err := url.ParseQuery(string(body))
		require.NoError(x.t, err)
		amount, err := strconv.ParseInt(form.Get("lines[0][amount]"), 10, 64)
		require.NoError(x.t, err)
		if form.Get("credit_amount") != strconv.FormatInt(amount*6/5, 10) {
			return x.answer(r, http.StatusBadRequest, map[string]any{"error": map[string]string{"type": "invalid_request_error", "message": "The sum must equal the total."}}), nil
		}
		x.took = amount * 6 / 5
		return x.answer(r, http.StatusOK, map[string]any{"id": "cn_taxed"}), nil
	}
	return x.next.RoundTrip(r)
}

func (x *taxed) answer(r *http.Request, status int, body any) *http.Response {
	text, err := json.Marshal(body)
	require.NoError(x.t, err)
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}
}

// On a paid invoice what goes to the customer's balance is the note's total, which has tax where the line's amount has none.
func TestACreditOnAPaidInvoiceGivesTheTaxBackToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, key := w.over("acme", 40_000)
	w.toEnd()
	w.finish()
	_, err := w.b.Adjust(t.Context(), "acme", "events", start.AddDate(0, 1, 0).Add(-time.Minute), -2_500, "tester", "an outage")
	require.NoError(t, err)
	w.work()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	road := &taxed{t: t, next: transport}
	c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: road}, EventsPerSecond: 1000, ReadsPerSecond: 1000})
	require.NoError(t, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, b.Late(t.Context()))
	require.NotContains(t, w.findings(), "late_refused")
	require.EqualValues(t, 120, road.took)
	require.Equal(t, "credited cn_taxed", w.text("SELECT state || ' ' || object FROM weir.late"))
	require.Equal(t, book{Overage: 37_500, Invoiced: 37_500}, w.book(key))
}

// One invoice is voided while another bills the same usage, and the other is read first: the customer looks billed
// twice, and is given nothing back.
func TestNothingIsCreditedForAnInvoiceThatIsVoidByNow(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"a_again", "z_again"} { // whose line the credit would be on
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			creditNothing(t, line)
		})
	}
}

func creditNothing(t *testing.T, line string) {
	t.Helper()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.sim.DeclinePayments(customer, true)
	w.toEnd()
	w.finish()
	first := w.sim.Invoices(customer)[1].ID
	w.hook.Serve(nil)
	_, err := w.api.Invoices.VoidInvoice(first, nil)
	require.NoError(t, err)
	// The one that replaces it, as it would be read.
	w.exec(`INSERT INTO weir.invoices (invoice, customer, livemode, status, billing_reason, currency, created, read, seen_at)
		SELECT 'in_again', customer, livemode, 'open', 'manual', currency, $2, 1, $2 FROM weir.invoices WHERE invoice = $1`, first, w.sim.Now())
	w.exec(`INSERT INTO weir.invoice_lines (line, invoice, subscription, item, price, meter, quantity, amount, starts, ends)
		SELECT $2, 'in_again', subscription, item, price, meter, quantity, amount, starts, ends FROM weir.invoice_lines WHERE invoice = $1 AND meter IS NOT NULL`, first, line)
	w.exec("SELECT weir.settle_invoice('in_again', $1)", w.sim.Now())
	require.Equal(t, book{Overage: 40, Invoiced: 80, Late: -40}, w.book(key))
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	names := strings.NewReplacer(first, "in_again", `"void"`, `"open"`, w.text("SELECT line FROM weir.invoice_lines WHERE invoice = $1 AND meter IS NOT NULL", first), line, `"il_`, `"il_again_`)
	c, err := billing.NewClient(billing.ClientConfig{
		Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: again{transport, first, names}}, EventsPerSecond: 1000, ReadsPerSecond: 1000,
	})
	require.NoError(t, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, b.Late(t.Context()))
	notes := w.api.CreditNotes.List(nil)
	require.False(t, notes.Next(), "no credit note")
	require.NoError(t, notes.Err())
	require.Equal(t, book{Overage: 40, Invoiced: 40}, w.book(key))
	require.NotContains(t, w.findings(), "overbilled")
	require.EqualValues(t, 0, w.number("SELECT count(*) FROM weir.late WHERE state IN ('held', 'stored', 'sent', 'credited')"))
}

// again answers for the second invoice what it answers for the first, with other names.
type again struct {
	next  http.RoundTripper
	first string
	names *strings.Replacer
}

func (a again) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/in_again") {
		return a.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.URL.Path = strings.Replace(r.URL.Path, "in_again", a.first, 1)
	res, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	res.Body, res.ContentLength = io.NopCloser(strings.NewReader(a.names.Replace(string(text)))), -1
	return res, err
}

// An invoice is voided by hand: whatever the policy, its usage goes on no other one until a person says so.
func TestUsageOfAVoidedInvoiceWaitsForAPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: invoice_item")})
	customer, key := w.over("acme", 40)
	w.sim.DeclinePayments(customer, true)
	w.toEnd()
	w.finish()
	_, err := w.api.Invoices.VoidInvoice(w.sim.Invoices(customer)[1].ID, nil)
	require.NoError(t, err)
	w.soon()
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, book{Overage: 40, Late: 40}, w.book(key))
	require.Zero(t, w.items(customer))
	require.Equal(t, "held", w.text("SELECT state FROM weir.late"))
	require.NoError(t, w.b.LateRelease(t.Context(), w.number("SELECT id FROM weir.late"), "invoice_item", "tester", "it was a slip"))
	require.NoError(t, w.b.Late(t.Context()))
	require.Equal(t, 1, w.items(customer))
}
