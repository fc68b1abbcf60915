package stripesim_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/stripesim"
)

type sent struct {
	stamp, received time.Time
	value           int64
}

// Whatever the order of sending: a unit is on the invoice of the period that
// holds its stamp if it came in before that invoice was finalized, and else on
// none; a total below zero bills as zero.
func TestEveryUnitIsBilledOnceOrLate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		grace := time.Duration(rapid.IntRange(1, 72).Draw(rt, "grace hours")) * time.Hour
		anchor := date("2026-01-01T00:00:00Z").Add(time.Duration(rapid.IntRange(0, 59*24*3600).Draw(rt, "anchor")) * time.Second)
		sim := stripesim.New(stripesim.Config{Start: anchor, GracePeriod: grace})
		base, usage := shop(t, sim)
		cus := subscribed(t, sim, base, usage)
		var all []sent
		for range rapid.IntRange(0, 40).Draw(rt, "events") {
			require.NoError(rt, sim.Advance(t.Context(), sim.Now().Add(time.Duration(rapid.IntRange(0, 6*24*3600).Draw(rt, "wait"))*time.Second)))
			one := sent{received: sim.Now(), value: rapid.Int64Range(-500, 1000).Draw(rt, "value")}
			one.stamp = one.received.Add(-time.Duration(rapid.IntRange(0, 35*24*3600).Draw(rt, "age")) * time.Second)
			all = append(all, one)
			report(rt, sim, cus, one)
		}
		require.NoError(rt, sim.Advance(t.Context(), sim.Now().AddDate(0, 2, 0)))

		for _, inv := range sim.Invoices(cus)[1:] {
			if inv.Status == "draft" {
				continue
			}
			l := usageLine(t, inv)
			var want int64
			for _, e := range all {
				if !e.stamp.Before(l.Start) && e.stamp.Before(l.End) && e.received.Before(l.End.Add(grace)) {
					want += e.value
				}
			}
			require.Equal(rt, max(0, want), l.Quantity)
			require.Equal(rt, l.End.Add(grace), inv.FinalizedAt)
		}
	})
}

func report(t *rapid.T, sim *stripesim.Server, customer string, e sent) {
	form := url.Values{
		"event_name": {"calls"}, "payload[stripe_customer_id]": {customer}, "payload[value]": {strconv.FormatInt(e.value, 10)},
		"timestamp": {strconv.FormatInt(e.stamp.Unix(), 10)},
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/billing/meter_events", strings.NewReader(form.Encode()))
	r.Header.Set("Authorization", "Bearer "+sim.APIKey())
	w := httptest.NewRecorder()
	sim.ServeHTTP(w, r)
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
}

// Whatever comes in as parameters, the answer is JSON in Stripe's format.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		"a=1", "items[0][price]=p&items[]=x", "a[b=1", "a[b]c=1", "[=]", "metadata[k]=%zz", "a[[[]]]=1", "expand[]=data.x", "limit=-1", "%5B%5D=",
		strings.Repeat("a[", 50), "event_name=calls&payload[value]=9&payload[stripe_customer_id]=c",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		sim := stripesim.New(stripesim.Config{})
		for _, path := range []string{"/v1/customers", "/v1/subscriptions", "/v1/prices", "/v1/billing/meter_events", "/v1/invoiceitems", "/v1/credit_notes"} {
			r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+sim.APIKey())
			w := httptest.NewRecorder()
			sim.ServeHTTP(w, r)
			require.Contains(t, []int{200, 400}, w.Code, w.Body.String())
			require.True(t, strings.HasPrefix(w.Body.String(), `{"`), w.Body.String())
		}
	})
}

func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	sim := stripesim.New(stripesim.Config{})
	for name, tc := range map[string]struct {
		method, path, body string
		header             map[string]string
		want               int
	}{
		"no key":                 {"GET", "/v1/customers", "", map[string]string{"Authorization": ""}, 401},
		"basic authentication":   {"GET", "/v1/customers", "", map[string]string{"Authorization": "Basic c2tfdGVzdF9zaW11bGF0b3I6"}, 200},
		"a version that is none": {"GET", "/v1/customers", "", map[string]string{"Stripe-Version": "latest"}, 400},
		"unknown path":           {"GET", "/v1/refunds", "", nil, 404},
		"unknown method":         {"PUT", "/v1/customers", "", nil, 404},
		"too long a key":         {"POST", "/v1/customers", "", map[string]string{"Idempotency-Key": strings.Repeat("k", 256)}, 400},
		"too large a body":       {"POST", "/v1/customers", "name=" + strings.Repeat("x", 1<<20), nil, 400},
		"too many parameters":    {"POST", "/v1/customers", strings.Repeat("a=1&", 1001), nil, 400},
		"two cursors":            {"GET", "/v1/customers?starting_after=a&ending_before=b", "", nil, 400},
		"an unknown cursor":      {"GET", "/v1/customers?starting_after=cus_none", "", nil, 400},
		"no integer":             {"GET", "/v1/customers?limit=ten", "", nil, 400},
		"no boolean":             {"GET", "/v1/prices?active=yes", "", nil, 400},
		"too many lookup keys":   {"GET", "/v1/prices?" + strings.Repeat("lookup_keys[]=k&", 11), "", nil, 400},
	} {
		r := httptest.NewRequest(tc.method, tc.path, strings.NewReader(tc.body))
		r.Header.Set("Authorization", "Bearer "+sim.APIKey())
		for k, v := range tc.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		sim.ServeHTTP(w, r)
		require.Equal(t, tc.want, w.Code, "%s: %s", name, w.Body.String())
		if tc.want >= 400 {
			require.Contains(t, w.Body.String(), `"error":{`, name)
		}
	}
}
