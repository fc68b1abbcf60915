package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
)

func TestAnswersAreThoseThatAreDescribed(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	for i, c := range []struct {
		body   string
		status int
	}{
		{`{"account":"acme","feature":"events","units":8}`, 200},
		{`{"account":"acme","feature":"events","units":0}`, 200},
		{`{"account":"acme","feature":"tokens","units":123}`, 200},
		{`{"account":"acme","feature":"exports"}`, 402},
		{`{"account":"acme","feature":"events","units":3}`, 402},
		{`{"account":"acme","feature":"nothing"}`, 400},
		{`{"account":"acme","feature":"events","units":1,"idempotency_key":"k"}`, 200},
		{`{"account":"acme","feature":"events","units":2,"idempotency_key":"k"}`, 409},
		{`[{"account":"acme","feature":"events"},{"account":"acme","feature":"exports"},{"account":"","feature":"events"}]`, 200},
		{`nonsense`, 400},
	} {
		require.Equal(t, c.status, h.consume(c.body).status, "%d %s", i, c.body)
	}
	for range 20 {
		h.consume(`{"account":"acme","feature":"events","units":0}`)
	}
	fast := h.consume(`{"account":"acme","feature":"events"}`)
	require.Equal(t, 429, fast.status)
	require.Regexp(t, `^More calls than the limit of 20 a day allows\. Try again in \d+ seconds?\.$`, fast.json(t)["detail"])
	usage := h.do("/v1/usage/{account}", http.MethodGet, "/v1/usage/acme", "")
	require.Equal(t, 200, usage.status)
	require.Len(t, usage.json(t)["features"], 3)
	require.Equal(t, 400, h.do("/v1/usage/{account}", http.MethodGet, "/v1/usage/%20", "").status)
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/openapi.json"} {
		require.Equal(t, 200, h.do(path, http.MethodGet, path, "").status, path)
	}
}

func TestAReservationIsSettledOrCancelledOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	reserve := func(body string) answer {
		return h.do("/v1/reserve", http.MethodPost, "/v1/reserve", body)
	}
	end := func(a answer, how, body string) answer {
		id := fmt.Sprint(a.json(t)["reservation"])
		return h.do("/v1/reservations/{id}/"+how, http.MethodPost, "/v1/reservations/"+id+"/"+how, body)
	}
	first := reserve(`{"account":"acme","feature":"events","units":6}`)
	require.Equal(t, 200, first.status)
	require.Equal(t, "open", first.json(t)["state"])
	require.Equal(t, "19", first.header.Get("RateLimit-Remaining"))
	require.Equal(t, 402, reserve(`{"account":"acme","feature":"events","units":6}`).status, "4 are left")
	require.EqualValues(t, 0, h.used("acme"))

	for range 3 {
		done := end(first, "settle", `{"units":2}`)
		require.Equal(t, 200, done.status)
		require.Equal(t, "settled", done.json(t)["state"])
		require.EqualValues(t, 2, done.json(t)["used"])
	}
	require.Equal(t, "settled", end(first, "cancel", "").json(t)["state"], "the first one counts")
	require.EqualValues(t, 2, h.used("acme"))

	second := reserve(`{"account":"acme","feature":"events","units":8}`)
	require.Equal(t, "cancelled", end(second, "cancel", "{}").json(t)["state"])
	require.Equal(t, "cancelled", end(second, "settle", `{"units":8}`).json(t)["state"])
	require.EqualValues(t, 2, h.used("acme"))

	require.Equal(t, 404, h.do("/v1/reservations/{id}/settle", http.MethodPost, "/v1/reservations/none/settle", `{"units":1}`).status)
	require.Equal(t, 404, h.do("/v1/reservations/{id}/cancel", http.MethodPost, "/v1/reservations/none/cancel", "").status)
	third := reserve(`{"account":"acme","feature":"events","units":1}`)
	for _, body := range []string{"", "{}", `{"units":-1}`, `{"units":2147483648}`, `{"units":1,"account":"acme"}`, `[{"units":1}]`} {
		require.Equal(t, 400, end(third, "settle", body).status, body)
	}
	require.Equal(t, 400, end(third, "cancel", `{"units":1}`).status)
	for _, body := range []string{`{"account":"acme","feature":"events"}`, `{"account":"acme","feature":"events","units":0}`, `{"account":"acme","feature":"events","units":-1}`, `{"account":"acme","feature":"x","units":1}`} {
		require.Equal(t, 400, reserve(body).status, body)
	}
	require.Equal(t, 402, reserve(`{"account":"acme","feature":"exports","units":1}`).status)
	require.Equal(t, 200, end(third, "settle", `{"units":9}`).status, "the work is done: beyond the reservation, and beyond the quota")
	require.EqualValues(t, 11, h.used("acme"))
}

func TestTwentyCallersSettleOneReservationOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	id := fmt.Sprint(h.raw(http.MethodPost, "/v1/reserve", `{"account":"acme","feature":"events","units":3}`).json(t)["reservation"])
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if a := h.raw(http.MethodPost, "/v1/reservations/"+id+"/settle", `{"units":3}`); a.status != 200 {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 3, h.used("acme"))
}

// Middleware and sidecar answer the same refusal with the same bytes.
func TestMiddlewareAndSidecarAnswerAlike(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	stoppedOne := serve(t, newEnforcer(t, testPlans))
	behind := func(e *enforcer.Enforcer, feature string) *httptest.Server {
		s := httptest.NewServer(e.Middleware(enforcer.MiddlewareConfig{
			Account: func(r *http.Request) string { return r.Header.Get("Account") },
			Feature: enforcer.Always(feature), Units: enforcer.Always[int64](3),
			Caller: func(r *http.Request) string { return r.Header.Get("Caller") },
		})(http.NotFoundHandler()))
		t.Cleanup(s.Close)
		return s
	}
	for range 3 {
		h.consume(`{"account":"acme","feature":"events","units":3}`)
	}
	for range 20 {
		h.consume(`{"account":"acme","feature":"events","units":0,"caller":"fast"}`)
	}
	for name, c := range map[string]struct {
		h                        *harness
		account, feature, caller string
		status                   int
	}{
		"quota":       {h, "acme", "events", "", 402},
		"not in plan": {h, "acme", "exports", "", 402},
		"rate":        {h, "acme", "events", "fast", 429},
		"unavailable": {stoppedOne, "acme", "events", "", 503},
		"unknown":     {h, "acme", "nothing", "", 400},
		"bad account": {h, " ", "events", "", 400},
	} {
		fromSidecar := c.h.consume(fmt.Sprintf(`{"account":%q,"feature":%q,"units":3,"caller":%q}`, c.account, c.feature, c.caller))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, behind(c.h.enforcer, c.feature).URL, nil)
		require.NoError(t, err)
		r.Header["Account"] = []string{strings.ReplaceAll(c.account, " ", "\u00a0")}
		r.Header["Caller"] = []string{c.caller}
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		fromMiddleware := read(t, res)
		require.Equal(t, c.status, fromMiddleware.status, name)
		require.Equal(t, fromSidecar.status, fromMiddleware.status, name)
		require.Equal(t, fromSidecar.body, fromMiddleware.body, name)
		for _, a := range []answer{fromSidecar, fromMiddleware} {
			a.header.Del("Date")
			if name != "rate" && a.header.Get("RateLimit-Remaining") != "" { // each call counts
				a.header.Set("RateLimit-Remaining", "some")
			}
		}
		require.Equal(t, fromSidecar.header, fromMiddleware.header, name)
	}
}
