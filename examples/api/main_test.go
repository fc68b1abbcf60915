package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

func TestTheExampleEnforces(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	catalog, err := plans.Load("../../testdata/plans.yaml")
	require.NoError(t, err)
	database := schematest.URL(t)
	cfg := &enforcer.Config{Plans: catalog, JournalDir: t.TempDir(), MaxWait: 5 * time.Second} // a loaded machine is not what this is about
	where, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, database, "127.0.0.1:0", cfg, func(addr string) { where <- addr })
	}()
	var base string
	select {
	case addr := <-where:
		base = "http://" + addr
	case err := <-ended:
		require.NoError(t, err)
	}
	do := func(method, path, key, form string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(form))
		require.NoError(t, err)
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res
	}
	res := do("GET", "/hello", "key-of-acme", "")
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, "9999", res.Header.Get("Quota-Remaining"))
	require.Equal(t, "59", res.Header.Get("RateLimit-Remaining"))
	require.Equal(t, 500, do("GET", "/fail", "key-of-acme", "").StatusCode)
	require.Equal(t, "9998", do("GET", "/hello", "key-of-acme", "").Header.Get("Quota-Remaining"), "the failed one cost nothing")
	require.Equal(t, 200, do("POST", "/words", "key-of-acme", url.Values{"text": {"one two three"}}.Encode()).StatusCode)
	require.Equal(t, "9994", do("GET", "/hello", "key-of-acme", "").Header.Get("Quota-Remaining"))
	require.Equal(t, 401, do("POST", "/words", "nobody", "").StatusCode)
	require.Equal(t, "30", do("GET", "/hello", "nobody", "").Header.Get("RateLimit-Limit"), "anonymous")
	cancel()
	require.NoError(t, <-ended)
}
