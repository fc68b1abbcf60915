package api_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a stranger sends is answered with what to do, and counts nothing.
func TestWhatStrangersSend(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	one := `{"account":"acme","feature":"events"}`
	for name, c := range map[string]struct {
		path, body string
		headers    []string
		status     int
		want       string
	}{
		"two slashes":            {"//v1/consume", one, nil, 404, "There is no such route"},
		"dots":                   {"/v1/x/../consume", one, nil, 404, "There is no such route"},
		"a slash at the end":     {"/v1/consume/", one, nil, 404, "There is no such route"},
		"compressed":             {"/v1/consume", "\x1f\x8b\x08", []string{"Content-Encoding", "gzip"}, 400, "which this server does not undo: send it as it is"},
		"a byte order mark":      {"/v1/consume", "\ufeff" + one, nil, 400, "begins with a byte order mark: send it without"},
		"no units once":          {"/v1/consume", `{"account":"acme","feature":"events","units":0}`, []string{"Idempotency-Key", "k"}, 400, "with an idempotency key: use 1 or more."},
		"fewer than none":        {"/v1/consume", `{"account":"acme","feature":"events","units":-1}`, nil, 400, "Units must not be negative."},
		"more than can be":       {"/v1/consume", `{"account":"acme","feature":"tokens","units":9223372036854775807}`, nil, 402, "There is no limit on tokens, but this call takes more units than a period can count."},
		"no units reserved":      {"/v1/reserve", `{"account":"acme","feature":"events","units":0}`, nil, 400, "Reserve 0 units: use 1 to 2147483647."},
		"a reservation once":     {"/v1/reserve", `{"account":"acme","feature":"events","units":1}`, []string{"Idempotency-Key", "k"}, 400, "A reservation takes no Idempotency-Key"},
		"forward-auth by semi;":  {"/v1/auth?feature=events;units=2", "", []string{"X-Weir-Account", "acme"}, 400, "The query of /v1/auth can't be read"},
		"forward-auth for twice": {"/v1/auth?feature=events&feature=tokens", "", []string{"X-Weir-Account", "acme"}, 400, `The query of /v1/auth has "feature" 2 times: give each once.`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := h.raw(http.MethodPost, c.path, c.body, c.headers...)
			require.Equal(t, c.status, a.status, a.body)
			require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
			require.Contains(t, a.json(t)["message"], c.want)
		})
	}
	t.Cleanup(func() { require.EqualValues(t, 0, h.used("acme")) })
}
