package stripesim_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
)

// direct calls the handler without a socket.
func direct(t testing.TB, sim *stripesim.Server, method, path string, form url.Values) string {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(form.Encode()))
	r.Header.Set("Authorization", "Bearer "+sim.APIKey())
	w := httptest.NewRecorder()
	sim.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	var out struct{ ID string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &out))
	return out.ID
}

func shop(t testing.TB, sim *stripesim.Server) (base, usage string) {
	meter := direct(t, sim, "POST", "/v1/billing/meters", url.Values{
		"display_name": {"calls"}, "event_name": {"calls"}, "default_aggregation[formula]": {"sum"},
	})
	product := direct(t, sim, "POST", "/v1/products", url.Values{"name": {"API"}})
	base = direct(t, sim, "POST", "/v1/prices", url.Values{
		"product": {product}, "currency": {"usd"}, "unit_amount": {"1000"}, "recurring[interval]": {"month"},
	})
	usage = direct(t, sim, "POST", "/v1/prices", url.Values{
		"product": {product}, "currency": {"usd"}, "unit_amount_decimal": {"0.04"}, "recurring[interval]": {"month"},
		"recurring[usage_type]": {"metered"}, "recurring[meter]": {meter},
	})
	return base, usage
}

func subscribed(t testing.TB, sim *stripesim.Server, base, usage string) string {
	cus := direct(t, sim, "POST", "/v1/customers", nil)
	direct(t, sim, "POST", "/v1/subscriptions", url.Values{"customer": {cus}, "items[0][price]": {base}, "items[1][price]": {usage}})
	return cus
}

// Every customer's events end on that customer's invoice, also when all renew at
// one instant.
func TestManyRenewalsAtOneInstant(t *testing.T) {
	t.Parallel()
	sim := stripesim.New(stripesim.Config{HistorySize: 1000})
	base, usage := shop(t, sim)
	customers := make([]string, 500)
	for i := range customers {
		customers[i] = subscribed(t, sim, base, usage)
		direct(t, sim, "POST", "/v1/billing/meter_events", url.Values{
			"event_name": {"calls"}, "payload[stripe_customer_id]": {customers[i]}, "payload[value]": {strconv.Itoa(i)},
		})
	}
	require.NoError(t, sim.Advance(t.Context(), date("2026-02-01T01:00:00Z")))
	for i, cus := range customers {
		all := sim.Invoices(cus)
		require.Len(t, all, 2)
		require.Equal(t, "paid", all[1].Status)
		require.EqualValues(t, i, usageLine(t, all[1]).Quantity)
	}
}

// At its bounds the store refuses with a 500 that names the bound; it never
// forgets an event or wraps a sum.
func TestBoundsOfTheMeterEventStore(t *testing.T) {
	t.Parallel()
	send := func(sim *stripesim.Server, customer, value string) *httptest.ResponseRecorder {
		form := url.Values{"event_name": {"calls"}, "payload[stripe_customer_id]": {customer}, "payload[value]": {value}}
		r := httptest.NewRequest("POST", "/v1/billing/meter_events", strings.NewReader(form.Encode()))
		r.Header.Set("Authorization", "Bearer "+sim.APIKey())
		w := httptest.NewRecorder()
		sim.ServeHTTP(w, r)
		return w
	}
	sim := stripesim.New(stripesim.Config{MaxMeterEvents: 1})
	base, usage := shop(t, sim)
	cus := subscribed(t, sim, base, usage)
	require.Equal(t, http.StatusOK, send(sim, cus, "1").Code)
	full := send(sim, cus, "1")
	require.Equal(t, http.StatusInternalServerError, full.Code)
	require.Contains(t, full.Body.String(), "MaxMeterEvents")

	sim = stripesim.New(stripesim.Config{})
	base, usage = shop(t, sim)
	cus = subscribed(t, sim, base, usage)
	for range 9223 {
		require.Equal(t, http.StatusOK, send(sim, cus, "999999999999999").Code)
	}
	full = send(sim, cus, "999999999999999")
	require.Equal(t, http.StatusInternalServerError, full.Code)
	require.Contains(t, full.Body.String(), "64 bits")
}

func BenchmarkMeterEvents(b *testing.B) {
	sim := stripesim.New(stripesim.Config{})
	base, usage := shop(b, sim)
	customers := make([]string, 1000)
	for i := range customers {
		customers[i] = subscribed(b, sim, base, usage)
	}
	stamp := strconv.FormatInt(sim.Now().Unix(), 10)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		form := url.Values{
			"event_name": {"calls"}, "identifier": {"id-" + strconv.Itoa(i)}, "timestamp": {stamp},
			"payload[stripe_customer_id]": {customers[i%len(customers)]}, "payload[value]": {"5"},
		}
		r := httptest.NewRequest("POST", "/v1/billing/meter_events", strings.NewReader(form.Encode()))
		r.Header.Set("Authorization", "Bearer "+sim.APIKey())
		r.Header.Set("Idempotency-Key", "key-"+strconv.Itoa(i))
		w := httptest.NewRecorder()
		sim.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Fatal(w.Body.String())
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkRenewals(b *testing.B) {
	sim := stripesim.New(stripesim.Config{HistorySize: 1000})
	base, usage := shop(b, sim)
	const customers = 1000
	for range customers {
		subscribed(b, sim, base, usage)
	}
	for b.Loop() {
		if err := sim.Advance(b.Context(), sim.Now().AddDate(0, 1, 0).Add(time.Hour)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*customers)/b.Elapsed().Seconds(), "renewals/s")
}
