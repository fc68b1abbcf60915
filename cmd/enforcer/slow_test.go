package main

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

func TestSlowClientsAreCutOff(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	for name, c := range map[string]struct {
		sent  string
		after time.Duration
		says  string
	}{
		"header": {"POST /v1/consume HTTP/1.1\r\nHost: x\r\nX-Slow: ", headerTime, ""},
		"body":   {"POST /v1/consume HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"account\":", readTime, "did not arrive in time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, err = io.WriteString(conn, c.sent)
			require.NoError(t, err)
			began := time.Now()
			require.NoError(t, conn.SetReadDeadline(began.Add(c.after+20*time.Second)))
			rest, err := io.ReadAll(conn) // until the server closes
			require.NoError(t, err)
			require.GreaterOrEqual(t, time.Since(began), c.after-time.Second)
			require.Contains(t, string(rest), c.says)
		})
	}
}

func TestACallInFlightIsAnsweredBeforeTheProcessEnds(t *testing.T) {
	t.Parallel()
	s := boot(t, map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans)}).ready()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	body := `{"account":"acme","feature":"events","units":7}`
	_, err = io.WriteString(conn, "POST /v1/consume HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 47\r\n\r\n")
	require.NoError(t, err)
	require.Len(t, body, 47)
	first := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	_, err = io.ReadFull(conn, first) // the handler reads the body now
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	require.Eventually(t, func() bool { // no new connection is taken
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond)
	_, err = io.WriteString(conn, body)
	require.NoError(t, err)
	rest, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Contains(t, string(rest), "HTTP/1.1 200 OK")
	require.Contains(t, string(rest), `"used":7`)
	require.NoError(t, <-ended)
}

func TestReservationsCanBeSettledWhileTheProcessEnds(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans), "WEIR_JOURNAL_DIR": t.TempDir(), "WEIR_STOP_TIMEOUT": "2m"}
	s := boot(t, env).ready()
	const call = `{"account":"acme","feature":"events","units":5}`
	id := s.post("/v1/reserve", call).json(t)["reservation"].(string)
	ended := make(chan error, 1)
	go func() { ended <- s.stop() }()
	require.Eventually(t, func() bool { return s.get("/readyz").status == 503 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return s.post("/v1/consume", call).status == 503 }, 20*time.Second, time.Millisecond)
	for _, path := range []string{"/v1/consume", "/v1/reserve", "/v1/auth?feature=events"} {
		a := s.post(path, call)
		require.Equal(t, 503, a.status, path)
		require.Equal(t, "unavailable", a.json(t)["error"])
	}
	used := s.get("/v1/usage/acme").json(t)["features"].(map[string]any)["events"].(map[string]any)["used"].(float64)
	a := s.post("/v1/reservations/"+id+"/settle", `{"units":3}`)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, <-ended)

	again := boot(t, env).ready()
	after := again.get("/v1/usage/acme").json(t)["features"].(map[string]any)["events"].(map[string]any)["used"].(float64)
	require.InDelta(t, used+3, after, 0)
}

func TestAForgottenReservationGoesBackAtTheEnd(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_PLANS": planFile(t, testPlans), "WEIR_JOURNAL_DIR": t.TempDir(), "WEIR_STOP_TIMEOUT": "1s"}
	s := boot(t, env).ready()
	require.Equal(t, 200, s.post("/v1/reserve", `{"account":"acme","feature":"events","units":50}`).status)
	_ = s.stop() // a loaded machine may need more than the second
	env["WEIR_STOP_TIMEOUT"] = "20s"
	again := boot(t, env).ready()
	require.Equal(t, 200, again.post("/v1/consume", `{"account":"acme","feature":"events","units":50}`).status)
}
