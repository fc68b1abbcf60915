package frameworks_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/examples/frameworks"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const testPlans = `
currency: usd
default_plan: free
features: {events: {}}
plans:
  free:
    quota: {events: 10}
    on_exceeded: block
`

func TestEachFrameworkEnforces(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	catalog, err := plans.Parse([]byte(testPlans))
	require.NoError(t, err)
	e, err := enforcer.New(schematest.Pool(t), &enforcer.Config{
		Plans: catalog, NoJournal: true, MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })

	for name, router := range map[string]func(frameworks.Wrapper) http.Handler{
		"chi": frameworks.Chi, "echo": frameworks.Echo, "gin": frameworks.Gin,
	} {
		account := enforcer.Always(name)
		s := httptest.NewServer(router(e.Middleware(enforcer.MiddlewareConfig{
			Account: account, Feature: enforcer.Always("events"), Units: enforcer.Always[int64](5), Settle: true,
		})))
		t.Cleanup(s.Close)
		get := func(path string) (int, string, http.Header) {
			res, err := http.Get(s.URL + path)
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			return res.StatusCode, string(body), res.Header
		}
		used := func() int64 {
			d, err := e.Usage(t.Context(), name, "events")
			require.NoError(t, err)
			return d.Used
		}
		status, body, header := get("/words")
		require.Equal(t, 200, status, name)
		require.Equal(t, "hello", body, name)
		require.Equal(t, "10", header.Get("Quota-Limit"), name)
		require.EqualValues(t, 3, used(), name)
		status, _, _ = get("/hello")
		require.Equal(t, 200, status, name)
		require.EqualValues(t, 8, used(), name)
		status, body, header = get("/hello")
		require.Equal(t, 402, status, name)
		require.Equal(t, "application/problem+json", header.Get("Content-Type"), name)
		require.NotContains(t, body, "hello", name)
		status, _, _ = get("/free")
		require.Equal(t, 200, status, name)
		require.EqualValues(t, 8, used(), name)
	}
}
