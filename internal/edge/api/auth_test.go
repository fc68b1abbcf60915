package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func read(t testing.TB, res *http.Response) answer {
	t.Helper()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return answer{res.StatusCode, res.Header, string(b)}
}

func (h *harness) auth(query string, headers ...string) answer {
	h.t.Helper()
	return h.do("/v1/auth", http.MethodGet, "/v1/auth?"+query, "", headers...)
}

func TestAProxyAsksBeforeItPassesARequestOn(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	for range 5 {
		a := h.auth("feature=events&units=2", "X-Weir-Account", "acme")
		require.Equal(t, 200, a.status)
		require.Equal(t, "10", a.header.Get("Quota-Limit"))
		require.Equal(t, "20", a.header.Get("RateLimit-Limit"))
	}
	plain := h.auth("feature=events&units=2", "X-Weir-Account", "acme")
	require.Equal(t, 402, plain.status)
	nginx := h.auth("feature=events&units=2&nginx=1", "X-Weir-Account", "acme")
	require.Equal(t, 403, nginx.status)
	require.Equal(t, "402", nginx.header.Get("X-Weir-Status"))
	require.Equal(t, strings.TrimSpace(plain.body), nginx.header.Get("X-Weir-Body"), "the true answer's bytes")
	require.Equal(t, "0", nginx.header.Get("Quota-Remaining"))
	require.EqualValues(t, 10, h.used("acme"))
	require.Equal(t, 200, h.auth("feature=events&units=0", "X-Weir-Account", "acme").status, "a free request asks the rate only")
	require.Equal(t, 402, h.auth("feature=exports", "X-Weir-Account", "acme").status)

	for range 20 {
		h.auth("feature=events&units=0", "X-Weir-Account", "acme")
	}
	a := h.auth("feature=events&nginx=1", "X-Weir-Account", "acme")
	require.Equal(t, 403, a.status)
	require.Equal(t, "429", a.header.Get("X-Weir-Status"))
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, 429, h.auth("feature=events", "X-Weir-Account", "acme").status)
	require.Equal(t, 402, h.auth("feature=events&rate=0", "X-Weir-Account", "acme").status)
	require.Equal(t, 402, h.auth("feature=events&caller_header=X-Api-Key", "X-Weir-Account", "acme", "X-Api-Key", "k").status)

	other := h.auth("feature=events&account_header=X-User", "X-User", "b", "X-Weir-Account", "acme")
	require.Equal(t, 200, other.status)
	posted := h.raw(http.MethodPost, "/v1/auth?feature=events", "body", "X-Weir-Account", "b", "Origin", "https://elsewhere.example", "Sec-Fetch-Site", "cross-site")
	require.Equal(t, 200, posted.status, "the headers are a client's, whose call it is not")
	require.EqualValues(t, 2, h.used("b"))
}

func TestAProxyThatAppendsItsClientsPathAsksByPath(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	const route = "/v1/auth/{feature}/{path}"
	for i, path := range []string{"/", "/some/path", "/a//b/../c?units=0&feature=tokens&nginx=1", "/%2e%2e/%00?%zz", "/v1/consume", "/x?rate=0"} {
		a := h.do(route, http.MethodGet, "/v1/auth/events"+path, "", "X-Weir-Account", "acme")
		require.Equal(t, 200, a.status, "%s %s", path, a.body)
		require.EqualValues(t, i+1, h.used("acme"), path)
	}
	require.Equal(t, 400, h.do(route, http.MethodGet, "/v1/auth/nothing/", "", "X-Weir-Account", "acme").status)
	for range 4 {
		require.Equal(t, 200, h.raw(http.MethodPost, "/v1/auth/events/x", "body", "X-Weir-Account", "acme", "Origin", "https://elsewhere.example").status)
	}
	require.Equal(t, 402, h.do(route, http.MethodGet, "/v1/auth/events/x", "", "X-Weir-Account", "acme").status)
}

func TestWhatAClientMayWriteDecidesNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	a := h.auth("feature=events", "X-Weir-Account", "acme", "X-Weir-Units", "0", "X-Weir-Feature", "tokens", "X-Weir-Caller", "x", "Idempotency-Key", "k")
	require.Equal(t, 200, a.status)
	require.EqualValues(t, 1, h.used("acme"))
	a = h.auth("feature=events", "X-Weir-Account", "acme", "X-Weir-Account", "victim")
	require.Equal(t, 400, a.status)
	require.Contains(t, a.json(t)["message"], "the proxy must set it")
}

func TestAnonymousCallersAreKnownByTheAddressThatTheProxySaw(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	for range 3 {
		require.Equal(t, 200, h.auth("feature=events", "X-Forwarded-For", "6.6.6.6, 2.2.2.2").status)
	}
	a := h.auth("feature=events", "X-Forwarded-For", "7.7.7.7, 2.2.2.2")
	require.Equal(t, 429, a.status, "what stands left of the proxy's own entry is the client's claim")
	require.Equal(t, "3", a.header.Get("RateLimit-Limit"))
	require.Equal(t, 200, h.auth("feature=events", "X-Forwarded-For", "2.2.2.3").status)
}

func TestAWrongQuestionIsToldToTheProxy(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	for query, want := range map[string]string{
		"":                             "needs a feature",
		"feature=nothing":              "No plan knows this feature",
		"feature=events&units=-1":      "use a whole number",
		"feature=events&units=x":       "use a whole number",
		"feature=events&nginx=maybe":   "use 1 or 0",
		"feature=events&account=acme":  `has "account", which is unknown`,
		"feature=events&feature=other": "2 times",
		"feature=%zz":                  "can't be read",
	} {
		a := h.auth(query, "X-Weir-Account", "acme")
		require.Equal(t, 400, a.status, query)
		require.Contains(t, a.json(t)["message"], want, query)
	}
	require.Equal(t, 400, h.auth("feature=events", "X-Weir-Account", strings.Repeat("a", 256)).status)
	require.EqualValues(t, 0, h.used("acme"))
}

// Whatever names and values a caller sends, an answer's headers are the API's own, and its body is one JSON value.
func FuzzNoHeaderIsInjected(f *testing.F) {
	h := newHarness(f, testPlans)
	for _, s := range []string{"acme", "a\r\nSet-Cookie: x=1", "\"}\r\n\r\n<script>", "é\u2028", "\x00", "a%0d%0aX: y"} {
		f.Add(s, s, s)
	}
	known := map[string]bool{"Content-Type": true, "Content-Length": true, "Cache-Control": true, "Date": true, "X-Content-Type-Options": true,
		"Ratelimit-Limit": true, "Ratelimit-Remaining": true, "Quota-Limit": true, "Quota-Remaining": true, "Quota-Reset": true, "Retry-After": true}
	f.Fuzz(func(t *testing.T, account, feature, key string) {
		body, err := json.Marshal(map[string]any{"account": account, "feature": feature, "idempotency_key": key, "rate": false})
		if err != nil {
			t.Skip()
		}
		mine := *h
		mine.t = t
		a := mine.raw(http.MethodPost, "/v1/consume", string(body))
		for name, values := range a.header {
			if !known[name] || len(values) != 1 {
				t.Fatalf("%s: %q", name, values)
			}
		}
		if !json.Valid([]byte(a.body)) || !utf8.ValidString(a.body) || strings.Contains(a.body, "<script>") {
			t.Fatalf("%q", a.body)
		}
		if a.status != 200 && a.status != 400 && a.status != 402 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	})
}
