package enforcer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// A plan file that is published while a node registers is older than the node's change number: no notice tells of it.
func TestAPlanFilePublishedDuringTheStartCounts(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	_, _, err := usage.Publish(t.Context(), pool, catalog(t, testPlans), "test", time.Now())
	require.NoError(t, err)
	e, err := enforcer.New(pool, &enforcer.Config{NoJournal: true, MaxWait: 5 * time.Second})
	require.NoError(t, err)

	hold, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = hold.Exec(t.Context(), "LOCK TABLE weir.nodes")
	require.NoError(t, err)
	started := make(chan error, 1)
	go func() { started <- e.Start(t.Context()) }()
	require.Eventually(t, func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'weir.nodes'::regclass)").Scan(&waits)
		return err == nil && waits
	}, 30*time.Second, 5*time.Millisecond)
	_, _, err = usage.Publish(t.Context(), pool, catalog(t, strings.Replace(testPlans, "limit: 60", "limit: 61", 1)), "test", time.Now())
	require.NoError(t, err)
	require.NoError(t, hold.Rollback(t.Context()))
	require.NoError(t, <-started)
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	require.Eventually(t, func() bool {
		d, err := e.Allow(t.Context(), "acme", "")
		return err == nil && d.Limit == 61
	}, 10*time.Second, 5*time.Millisecond)
}

// A host may serve before there is a plan file: calls are answered 503 until Start, which may be called again, succeeds.
func TestAHostMayServeBeforeThePlansCome(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e, err := enforcer.New(pool, &enforcer.Config{NoJournal: true, MaxWait: 5 * time.Second})
	require.NoError(t, err)
	handler := e.Middleware(enforcer.MiddlewareConfig{Account: enforcer.Always("acme"), Feature: enforcer.Always("events")})(http.NotFoundHandler())
	call := func() *http.Response {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Result()
	}
	for range 2 {
		require.ErrorIs(t, e.Start(t.Context()), usage.ErrNoCatalog)
		answer := call()
		require.Equal(t, http.StatusServiceUnavailable, answer.StatusCode)
		require.Equal(t, "1", answer.Header.Get("Retry-After"))
	}
	_, _, err = usage.Publish(t.Context(), pool, catalog(t, testPlans), "test", time.Now())
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	require.Equal(t, http.StatusNotFound, call().StatusCode, "the handler's own answer")
	require.NoError(t, e.Stop(context.Background()))
	require.Equal(t, http.StatusServiceUnavailable, call().StatusCode)
}
