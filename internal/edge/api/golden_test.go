package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenVariable, when set, writes the answers down instead of comparing them.
const goldenVariable = "WEIR_WRITE_GOLDEN"

// What is on the wire does not change by accident: every byte of these answers but their date is written down.
func TestAnswersKeepTheirBytes(t *testing.T) {
	t.Parallel()
	h := newHarness(t, testPlans)
	post := func(path, body string, headers ...string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s", path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
	}
	auth := func(target, account string) string {
		return "GET " + target + " HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: " + account + "\r\n\r\n"
	}
	one := `{"account":"acme","feature":"events"}`
	var out strings.Builder
	for _, request := range []string{
		post("/v1/consume", one),
		post("/v1/consume", `{ "units" : 3, "feature":"events","account":"acme" }`),
		post("/v1/consume", `{"account":"acme","feature":"events","units":0}`),
		post("/v1/consume", `{"account":"acme","feature":"tokens","units":9223372036,"rate":false}`),
		post("/v1/consume", `{"account":"acme","feature":"exports"}`),
		post("/v1/consume", `{"account":"acme","feature":"nothing"}`),
		post("/v1/consume", `{"account":"acme","feature":"events","units":7}`),
		post("/v1/consume", `{"account":"`+"j\u00f6rg \\u00e9 <b>"+`","feature":"events","units":2,"caller":"k\u00e9y"}`),
		post("/v1/consume", one, "Idempotency-Key: once"),
		post("/v1/consume", one, "Idempotency-Key: once"),
		post("/v1/consume", `{"account":"acme","feature":"events","units":2}`, "Idempotency-Key: once"),
		post("/v1/consume", `[`+one+`,{"account":"b","feature":"events","units":4},{"account":"acme","feature":"tokens","rate":false},{"account":"b","feature":"exports"},{"account":"b","feature":"x"},{"account":"b","feature":"events","units":99},{"account":"","feature":"events"},`+one+`]`),
		post("/v1/consume", `[]`), post("/v1/consume", ``), post("/v1/consume", `{"account":"acme","feature":"events","units":1.0}`),
		auth("/v1/auth?feature=events", "c"), auth("/v1/auth?feature=events&units=0", "c"), auth("/v1/auth?feature=events&units=11", "c"),
		auth("/v1/auth?feature=events&units=11&nginx=1", "c"), auth("/v1/auth?feature=events&rate=0", "c"), auth("/v1/auth", "c"),
		auth("/v1/auth/events/any/path?x=1", "c"), auth("/v1/auth?feature=exports", "c"), auth("/v1/auth?feature=events", ""),
		"HEAD /v1/auth?feature=events HTTP/1.1\r\nHost: weir\r\nX-Weir-Account: d\r\n\r\n",
		"GET /v1/usage/acme HTTP/1.1\r\nHost: weir\r\n\r\n",
		"GET /v1/consume HTTP/1.1\r\nHost: weir\r\n\r\n", "GET /nothing HTTP/1.1\r\nHost: weir\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n", "GET /readyz HTTP/1.1\r\nHost: weir\r\n\r\n",
		post("/v1/consume", one, "Origin: https://evil.example"), post("/v1/reservations/none/settle", `{"units":1}`),
	} {
		fmt.Fprintf(&out, "> %s\n%s\n\n", strings.ReplaceAll(strings.TrimSpace(request), "\r\n", "\n> "), exchange(t, h, request))
	}
	file := filepath.Join("testdata", "answers.txt")
	if os.Getenv(goldenVariable) != "" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(out.String()), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), out.String(), "set "+goldenVariable+" to write them anew, where the change is meant")
}

// exchange sends a request's bytes and returns the answer's, without its date.
func exchange(t *testing.T, h *harness, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(h.server.URL, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	var raw strings.Builder
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), &http.Request{Method: method})
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	var kept []string
	for _, line := range strings.Split(raw.String(), "\r\n") {
		if !strings.HasPrefix(line, "Date: ") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}
