package main

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

// behind boots a sidecar that proxies to an API. The test's own address is a trusted gateway's.
func behind(t testing.TB, plans string, h http.HandlerFunc, args ...string) *sidecar {
	t.Helper()
	upstream := httptest.NewServer(h)
	t.Cleanup(upstream.Close)
	s := boot(t, map[string]string{
		"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, plans), "WEIR_UPSTREAM": upstream.URL,
		"WEIR_PROXY_ADDR": "127.0.0.1:0", "WEIR_FEATURE": "events", "WEIR_TRUSTED_PROXIES": "127.0.0.0/8,::1/128",
	}, args...).ready()
	s.url = s.proxy
	return s
}

func TestTheProxyEnforcesInFrontOfAnAPIThatKnowsNothing(t *testing.T) {
	t.Parallel()
	plans := strings.Replace(testPlans, "limit: 1000, window: 1h", "limit: 60, window: 24h", 1)
	s := behind(t, plans, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Quota-Limit", "made up")
		_, _ = fmt.Fprintf(w, "hello %s %s", r.URL.Path, r.Header.Get("X-Forwarded-For"))
	})
	for i := range 50 {
		a := s.get("/path?q=1", "X-Weir-Account", "acme", "X-Forwarded-For", "9.9.9.9")
		require.Equal(t, 200, a.status, i)
		require.Equal(t, "hello /path 9.9.9.9, 127.0.0.1", a.body)
		require.Equal(t, []string{"50"}, a.header["Quota-Limit"], "one of each, and the enforcer's")
	}
	for range 10 {
		a := s.get("/path", "X-Weir-Account", "acme")
		require.Equal(t, 402, a.status)
		require.Equal(t, "quota_exceeded", a.json(t)["error"])
	}
	a := s.get("/path", "X-Weir-Account", "acme")
	require.Equal(t, 429, a.status)
	require.NotEmpty(t, a.header.Get("Retry-After"))

	for range 3 {
		require.Equal(t, 200, s.get("/", "X-Forwarded-For", "2.2.2.2").status, "anonymous")
	}
	require.Equal(t, 429, s.get("/", "X-Forwarded-For", "2.2.2.2").status)
	a = s.get("/v1/usage/acme", "X-Weir-Account", "b")
	require.Equal(t, "hello /v1/usage/acme 127.0.0.1", a.body, "the proxy has no routes of its own")
}

func TestAnAccountIsBelievedFromTrustedPeersOnly(t *testing.T) {
	t.Parallel()
	s := behind(t, testPlans, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%q %q", r.Header.Get("X-Weir-Account"), r.Header.Get("X-Forwarded-For"))
	}, "--trusted-proxies=10.0.0.0/8")
	a := s.get("/", "X-Weir-Account", "victim", "X-Forwarded-For", "10.0.0.1")
	require.Equal(t, 200, a.status)
	require.Equal(t, `"" "127.0.0.1"`, a.body)
	require.Equal(t, "3", a.header.Get("RateLimit-Limit"), "an anonymous caller")
	require.Empty(t, a.header.Get("Quota-Limit"))
}

// Servers of other languages can't tell X_Weir_Account from X-Weir-Account: what a client writes that way does not pass.
func TestNoHeaderPassesForTheAccounts(t *testing.T) {
	t.Parallel()
	s := behind(t, testPlans, func(w http.ResponseWriter, r *http.Request) {
		var names []string
		for name := range r.Header {
			names = append(names, strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		}
		slices.Sort(names)
		_, _ = fmt.Fprint(w, strings.Join(names, " "))
	})
	forged := []string{"X_Weir_Account", "victim", "x-weir_account", "victim", "X_Forwarded_For", "1.1.1.1", "X_forwarded-Host", "h", "An_Other", "1"}
	a := s.get("/", append([]string{"X-Weir-Account", "acme"}, forged...)...)
	require.Equal(t, 200, a.status)
	for _, once := range []string{"X_WEIR_ACCOUNT", "X_FORWARDED_FOR", "X_FORWARDED_HOST", "AN_OTHER"} {
		require.Equal(t, 1, strings.Count(a.body, once), a.body)
	}
	a = s.get("/", forged...)
	require.NotContains(t, a.body, "X_WEIR_ACCOUNT", "an anonymous caller has none")
}

func TestALargeBodyStreamsThroughTheProxy(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	began := make(chan struct{})
	s := behind(t, testPlans, func(w http.ResponseWriter, r *http.Request) {
		first := make([]byte, 1)
		if _, err := io.ReadFull(r.Body, first); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		close(began)
		digest := sha256.New()
		digest.Write(first)
		n, err := io.Copy(digest, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v %x", n+1, err, digest.Sum(nil))
	})
	out, in := io.Pipe()
	digest := sha256.New()
	go func() {
		both := io.MultiWriter(in, digest)
		chunk := make([]byte, 64<<10)
		for i := range chunk {
			chunk[i] = byte(i * 7)
		}
		for sent := 0; sent < size; sent += len(chunk) {
			if sent == len(chunk) {
				<-began // the upstream has the beginning before the end exists
			}
			if _, err := both.Write(chunk); err != nil {
				break
			}
		}
		_ = in.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/upload", out)
	require.NoError(t, err)
	r.Header.Set("X-Weir-Account", "acme")
	res, err := s.client.Do(r)
	require.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, fmt.Sprintf("%d <nil> %x", size, digest.Sum(nil)), string(body))
	require.Equal(t, "49", res.Header.Get("Quota-Remaining"))
}

func TestAnAnswerStreamsThroughTheProxy(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	s := behind(t, testPlans, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "data: 2\n\n")
	})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url, nil)
	require.NoError(t, err)
	r.Header.Set("X-Weir-Account", "acme")
	res, err := s.client.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	first := make([]byte, 9)
	_, err = io.ReadFull(res.Body, first)
	require.NoError(t, err)
	require.Equal(t, "data: 1\n\n", string(first))
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "data: 2\n\n", string(rest))
}

func TestAWebSocketPassesTheProxy(t *testing.T) {
	t.Parallel()
	s := behind(t, testPlans, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			w.WriteHeader(http.StatusUpgradeRequired)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
		_, _ = io.Copy(conn, buffered)
	}, "--give-back")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nX-Weir-Account: acme\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, 101, res.StatusCode)
	require.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", res.Header.Get("Sec-WebSocket-Accept"))
	require.Equal(t, "50", res.Header.Get("Quota-Limit"))
	for i := range 100 {
		frame := []byte{0x81, 0x84, 1, 2, 3, 4, byte(i), 'a', 'b', 'c'} // masked text of four bytes
		_, err = conn.Write(frame)
		require.NoError(t, err)
		echo := make([]byte, len(frame))
		_, err = io.ReadFull(in, echo)
		require.NoError(t, err)
		require.Equal(t, frame, echo)
	}
}

func TestWhatTheUpstreamFailsIsGivenBackByOption(t *testing.T) {
	t.Parallel()
	s := behind(t, testPlans, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/fail" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		}
	}, "--give-back", "--units=5")
	for range 20 {
		a := s.get("/fail", "X-Weir-Account", "acme")
		require.Equal(t, 502, a.status)
		require.Equal(t, "bad_gateway", a.json(t)["error"])
		require.NotContains(t, a.body, "127.0.0.1", "nothing internal is told")
	}
	for range 10 {
		require.Equal(t, 200, s.get("/", "X-Weir-Account", "acme").status)
	}
	require.Equal(t, 402, s.get("/", "X-Weir-Account", "acme").status)
}

func TestAProxyIsToldWhatItLacks(t *testing.T) {
	t.Parallel()
	for upstream, want := range map[string]string{
		"http://127.0.0.1:1": "--upstream needs --feature",
		"127.0.0.1:1":        "use a URL such as http://127.0.0.1:3000",
		"ftp://h":            "use a URL such as",
		"http://u:p@h":       "use a URL such as",
	} {
		_, err := tryBoot(t, map[string]string{"DATABASE_URL": "postgres://127.0.0.1:1/none", "WEIR_UPSTREAM": upstream})
		require.ErrorContains(t, err, want)
	}
}
