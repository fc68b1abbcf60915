package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

func TestUnitsPassUpToTheQuotaAndNotBeyond(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	var passed, refused atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 12 {
				switch a := s.post("/v1/consume", `{"account":"acme","feature":"events","units":1}`); a.status {
				case 200:
					passed.Add(1)
				case 402:
					refused.Add(1)
				default:
					t.Errorf("%d %s", a.status, a.body)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 50, passed.Load())
	require.EqualValues(t, 46, refused.Load())

	a := s.post("/v1/consume", `{"account":"acme","feature":"events","units":1}`)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	p := a.json(t)
	require.Equal(t, "quota_exceeded", p["error"])
	require.EqualValues(t, 50, p["used"])
	require.EqualValues(t, 50, p["limit"])
	require.NotEmpty(t, p["message"])
	require.NotEmpty(t, p["resets_at"])
	require.Empty(t, a.header.Get("Retry-After"))
	for name, want := range map[string]string{"RateLimit-Limit": "1000", "RateLimit-Remaining": "903", "Quota-Limit": "50", "Quota-Remaining": "0"} {
		require.Equal(t, want, a.header.Get(name), name)
	}
	require.NotEmpty(t, a.header.Get("Quota-Reset"))

	u := s.get("/v1/usage/acme").json(t)
	require.Equal(t, "acme", u["account"])
	events := u["features"].(map[string]any)["events"].(map[string]any)
	require.EqualValues(t, 50, events["used"])
	require.EqualValues(t, 0, events["remaining"])
	require.Equal(t, false, events["allowed"])
	tokens := u["features"].(map[string]any)["tokens"].(map[string]any)
	require.Nil(t, tokens["limit"])
	require.Equal(t, true, tokens["allowed"])
	exports := u["features"].(map[string]any)["exports"].(map[string]any)
	require.Equal(t, "not_in_plan", exports["reason"])

	a = s.post("/v1/consume", `{"account":"acme","feature":"exports"}`)
	require.Equal(t, 402, a.status)
	require.Equal(t, "not_in_plan", a.json(t)["error"])
	require.NoError(t, s.stop())
}

func TestTheRateIsAskedFirstAndSpendsNothingWhenItRefuses(t *testing.T) {
	t.Parallel()
	plans := strings.Replace(testPlans, "limit: 1000, window: 1h", "limit: 5, window: 24h", 1)
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, plans)}).ready()
	for range 5 {
		require.Equal(t, 200, s.post("/v1/consume", `{"account":"acme","feature":"events","units":2}`).status)
	}
	a := s.post("/v1/consume", `{"account":"acme","feature":"events","units":2}`)
	require.Equal(t, http.StatusTooManyRequests, a.status)
	require.Equal(t, "rate_limited", a.json(t)["error"])
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, "5", a.header.Get("RateLimit-Limit"))
	require.Equal(t, "0", a.header.Get("RateLimit-Remaining"))
	require.Equal(t, "40", a.header.Get("Quota-Remaining"))

	a = s.post("/v1/consume", `{"account":"acme","feature":"events","units":2,"rate":false}`)
	require.Equal(t, 200, a.status)
	require.EqualValues(t, 12, a.json(t)["used"], "the refused call counted nothing")
	require.Empty(t, a.header.Get("RateLimit-Limit"))
	require.Equal(t, 200, s.post("/v1/consume", `{"account":"acme","feature":"events","caller":"another key"}`).status)
}

func TestAListIsAnsweredCallByCall(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	a := s.post("/v1/consume", `[
		{"account":"acme","feature":"events","units":49},
		{"account":"acme","feature":"events","units":2},
		{"account":"acme","feature":"events","units":1},
		{"account":"acme","feature":"nothing"},
		{"account":" ","feature":"events"},
		{"account":"acme","feature":"events","units":-1},
		{"account":"b","feature":"events","units":7,"idempotency_key":"k"},
		{"account":"b","feature":"events","units":7,"idempotency_key":"k"},
		{"account":"b","feature":"events","units":8,"idempotency_key":"k"}]`)
	require.Equal(t, 200, a.status)
	var got []string
	list := decode[[]map[string]any](t, a.body)
	for _, x := range list {
		d, _ := x["decision"].(map[string]any)
		p, _ := x["problem"].(map[string]any)
		got = append(got, fmt.Sprintln(x["status"], d["reason"], d["used"], p["error"]))
	}
	require.Equal(t, []string{
		"200 ok 49 <nil>\n", "402 <nil> <nil> quota_exceeded\n", "200 ok 50 <nil>\n", "400 <nil> <nil> unknown_feature\n",
		"400 <nil> <nil> invalid_request\n", "400 <nil> <nil> invalid_request\n",
		"200 ok 7 <nil>\n", "200 ok 7 <nil>\n", "409 <nil> <nil> key_conflict\n",
	}, got)

	for _, call := range []string{`{"account":"c","feature":"events","units":51}`, `{"account":"c","feature":"exports"}`, `{"account":"c","feature":"nothing"}`} {
		alone := s.post("/v1/consume", call)
		listed := decode[[]map[string]any](t, s.post("/v1/consume", "["+call+"]").body)
		require.Equal(t, alone.json(t), listed[0]["problem"], "a call is answered alike alone and in a list")
	}
}

func TestBadInputIsRefusedClearlyAndCountsNothing(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	for body, want := range map[string]string{
		`{"account":"acme","feature":"nothing","units":1}`:                  "No plan knows this feature",
		`{"account":"acme","feature":"EVENTS","units":1}`:                   "No plan knows this feature",
		`{"account":"acme","feature":"events","units":-1}`:                  "must not be negative",
		`{"account":"","feature":"events","units":1}`:                       "An account id is 1 to 255 bytes",
		`{"account":"` + strings.Repeat("a", 300) + `","feature":"events"}`: "An account id is 1 to 255 bytes",
		`{"account":"a\r\nb","feature":"events"}`:                           "An account id is 1 to 255 bytes",
		`{"account":"acme","feature":"events","units":"1"}`:                 `line 1, column 46: "units" must be a number`,
		`{"account":"acme","feature":"events","units":1.5}`:                 "use a whole number",
		`{"account":"acme","feature":"events","price":1}`:                   "is unknown: this route takes",
		`{"account":"acme"}`:                                                `"feature" is missing`,
		`{"account":"acme","feature":"events"} x`:                           "something follows the JSON value",
		`{"account":"acme","feature":"events"`:                              "a comma or a closing brace is missing",
		``:                                                                  "the body is empty",
		strings.Repeat(" ", 300<<10):                                        "larger than 262144 bytes",
		`[` + strings.Repeat(`{"account":"acme","feature":"events"},`, 1000) + `{"account":"acme","feature":"events"}]`: "more than 1000 calls",
	} {
		a := s.post("/v1/consume", body)
		require.Equal(t, 400, a.status, "%.80s", body)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		p := a.json(t)
		require.Contains(t, p["message"], want, "%.80s", body)
		require.Contains(t, []string{"invalid_request", "unknown_feature"}, p["error"])
	}
	require.Equal(t, 400, s.get("/v1/usage/"+strings.Repeat("a", 300)).status)
	require.Equal(t, 404, s.get("/v1/nothing").status)
	a := s.get("/v1/consume")
	require.Equal(t, 405, a.status)
	require.Equal(t, "POST", a.header.Get("Allow"))
	a = s.post("/v1/consume", `{"account":"acme","feature":"events"}`, "Sec-Fetch-Site", "cross-site")
	require.Equal(t, 403, a.status)
	u := s.get("/v1/usage/acme").json(t)
	require.EqualValues(t, 0, u["features"].(map[string]any)["events"].(map[string]any)["used"])
}

func TestAKeyCountsOnce(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	call := func(units int, key string) answer {
		return s.post("/v1/consume", fmt.Sprintf(`{"account":"acme","feature":"events","units":%d}`, units), "Idempotency-Key", key)
	}
	first := call(5, "k1")
	require.Equal(t, 200, first.status)
	require.EqualValues(t, 5, first.json(t)["used"])
	require.Equal(t, 200, call(5, "k1").status)
	a := call(6, "k1")
	require.Equal(t, 409, a.status)
	require.Equal(t, "key_conflict", a.json(t)["error"])
	require.EqualValues(t, 10, call(5, "k2").json(t)["used"])
	a = s.post("/v1/consume", `[{"account":"acme","feature":"events"}]`, "Idempotency-Key", "k3")
	require.Equal(t, 400, a.status)
	require.Equal(t, 400, call(1, strings.Repeat("k", 300)).status)
}

func TestHealthAndMetricsAreServed(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	require.Equal(t, 200, s.get("/healthz").status)
	require.JSONEq(t, `{"status":"ready","database":"ok"}`, s.get("/readyz").body)
	s.post("/v1/consume", `{"account":"acme","feature":"events","units":51}`)
	page := s.get("/metrics").body
	require.Contains(t, page, `weir_http_answers_total{route="/v1/consume",status="402"} 1`)
	require.Contains(t, page, "weir_enforcer_accounts 1")
	require.Contains(t, page, "weir_enforcer_database_away 0")
}

// Plans may have rate limits alone: then nothing is used of anything, which is an answer.
func TestPlansWithoutFeaturesHaveNoUsage(t *testing.T) {
	t.Parallel()
	const plans = "currency: usd\ndefault_plan: free\nplans: {free: {rate: {limit: 2, window: 1h}}}\n"
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, plans)}).ready()
	a := s.get("/v1/usage/acme")
	require.Equal(t, 200, a.status, a.body)
	require.JSONEq(t, `{"account":"acme","features":{}}`, a.body)
	for _, want := range []int{200, 200, 429} {
		a = s.get("/v1/auth?feature=calls&units=0", "X-Weir-Account", "acme")
		require.Equal(t, want, a.status, a.body)
	}
	require.NotEmpty(t, a.header.Get("Retry-After"))
}
