package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever keeps a command from Stripe, its error names what to do next.
func TestAnErrorOfStripesSaysWhatToDo(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) *httptest.Server {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		s.Config.ErrorLog = nil
		t.Cleanup(s.Close)
		return s
	}
	plain := func(status int, body string) string {
		s := answer(status, body)
		s.Start()
		return s.URL
	}
	const refused = `{"error":{"message":"No.","type":"invalid_request_error"}}`
	down := answer(http.StatusOK, "")
	down.Start()
	down.Close()
	foreign := answer(http.StatusOK, "")
	foreign.StartTLS()
	for name, c := range map[string]struct {
		base, says string
		code       int
	}{
		"not there":         {down.URL, "see that this machine reaches Stripe", exitFailed},
		"no such name":      {"https://stripe.invalid", "see that this machine reaches Stripe", exitFailed},
		"no certificate":    {foreign.URL, "who answers does not prove to be Stripe", exitFailed},
		"no TLS":            {strings.Replace(plain(http.StatusOK, ""), "http:", "https:", 1), "mend STRIPE_API_BASE", exitFailed},
		"a page":            {plain(http.StatusOK, "<html>"), "who answers is not Stripe", exitFailed},
		"no such page":      {plain(http.StatusNotFound, "404 page not found"), "who answers is not Stripe", exitFailed},
		"a proxy's fault":   {plain(http.StatusBadGateway, "bad gateway"), "status.stripe.com", exitFailed},
		"wrong key":         {plain(http.StatusUnauthorized, refused), "set STRIPE_API_KEY to one", exitFailed},
		"missing right":     {plain(http.StatusForbidden, refused), "give the key of STRIPE_API_KEY this permission", exitFailed},
		"Stripe's fault":    {plain(http.StatusInternalServerError, refused), "status.stripe.com", exitFailed},
		"too many requests": {plain(http.StatusTooManyRequests, refused), "try again in a minute", exitFailed},
		"no scheme":         {"api.stripe.com", "write it as https://host", exitUsage},
		"no address":        {"http://a b", "write it as https://host", exitUsage},
	} {
		p := newFile(t)
		p.env["STRIPE_API_KEY"], p.env["STRIPE_API_BASE"] = "sk_test_abcdefghijklmnop", c.base
		for _, command := range []string{"check", "push"} {
			_, err := p.fails(c.code, "plans", command)
			require.ErrorContains(t, err, c.says, "%s: %s", name, command)
		}
	}
}
