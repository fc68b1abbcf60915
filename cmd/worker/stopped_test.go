package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that is told to stop says so, and finds nothing wrong with what it did not come to look at.
func TestACommandThatIsToldToStopSaysSo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	reached := make(chan struct{}, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			reached <- struct{}{} // and is never answered
		}
	}()
	stripe := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(stripe.Close)
	p := newFile(t)
	p.env["DATABASE_URL"] = "postgres://weir@" + l.Addr().String() + "/weir"
	p.env["STRIPE_API_KEY"], p.env["STRIPE_API_BASE"] = "sk_test_abcdefghijklmnop", stripe.URL
	for _, command := range [][]string{{"nodes"}, {"migrate"}, {"plans", "apply"}, {"doctor"}, {"plans", "check"}, {"plans", "push", "--yes"}} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		var out bytes.Buffer
		go func() { ended <- run(ctx, command, p.getenv, &out, &bytes.Buffer{}) }()
		<-reached
		cancel()
		err := <-ended
		require.ErrorContains(t, err, "it was told to stop before it was done", command)
		require.Equal(t, exitFailed, exitCode(err), command)
		require.Empty(t, out.String(), command)
	}
}
