package web_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web"
)

func nilLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

type message struct {
	Period string
	Parts  map[string]string
}

func decode(t *testing.T, data string) message {
	t.Helper()
	var m message
	require.NoError(t, json.Unmarshal([]byte(data), &m), data)
	return m
}

func TestNumbersMoveWithoutAReload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	next := w.stream("/usage/" + w.token("acme") + "/live")
	other := w.stream("/usage/" + w.token("acme") + "/live")
	m := decode(t, next())
	require.Contains(t, m.Parts["live-f0"], "<strong>0</strong>")
	require.Contains(t, m.Parts["live-head"], "As of")
	require.Contains(t, m.Parts["announce"], "Within your plan")
	w.use("acme", "events", 1_234)
	for _, stream := range []func() string{next, other} {
		for !strings.Contains(m.Parts["live-f0"], "<strong>1,234</strong>") {
			m = decode(t, stream())
		}
		require.Contains(t, m.Parts["announce"], "In overage")
		m.Parts["live-f0"] = ""
	}
}

func TestStreamsAreBoundedAndEndWithThePages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *web.Config) { c.MaxStreams = 2 })
	a := w.stream("/usage/" + w.token("acme") + "/live")
	b := w.stream("/usage/" + w.token("umbrella") + "/live")
	require.NotEmpty(t, a())
	require.NotEmpty(t, b())
	refused := w.get("/usage/" + w.token("acme") + "/live")
	require.Equal(t, http.StatusServiceUnavailable, refused.status)
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		w.pages.Close()
		w.pages.Close()
		for a() != "" {
		}
	}()
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "a stream outlives its pages")
	}
}

func TestAStreamOutlivesAServersLimitsOfARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := http.Server{Handler: w.pages, ReadTimeout: 100 * time.Millisecond, WriteTimeout: 100 * time.Millisecond}
	w.url = listen(t, &server)
	next := w.stream("/usage/" + w.token("acme") + "/live")
	began := time.Now()
	for time.Since(began) < time.Second {
		w.use("acme", "events", 1) // so that there is news
		require.NotEmpty(t, next())
	}
}
