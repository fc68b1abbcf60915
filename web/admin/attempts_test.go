package admin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/admin"
)

// shown is the status that a token gets which comes through proxies.
func (w *world) shown(token string, forwarded ...string) int {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.url+"/admin/", nil)
	require.NoError(w, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header["X-Forwarded-For"] = forwarded
	res, err := http.DefaultClient.Do(r)
	require.NoError(w, err)
	require.NoError(w, res.Body.Close())
	return res.StatusCode
}

func behindProxies(c *admin.Config) { c.TrustedProxies = []string{"127.0.0.1", "10.0.0.0/8"} }

// Behind a trusted proxy wrong tokens count by whom it forwards for, and nobody can say that he is another.
func TestWrongTokensBehindAProxyAreCountedByClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, behindProxies)
	for n := range 10 {
		require.Equal(t, http.StatusUnauthorized, w.shown(fmt.Sprint("a", n), fmt.Sprintf("198.51.100.%d, 203.0.113.7", n), "10.1.2.3"), "the first entry is the attacker's own")
	}
	for _, same := range [][]string{{"203.0.113.7"}, {"203.0.113.7, 10.9.9.9"}, {"1.1.1.1", "203.0.113.7:4711"}, {"::ffff:203.0.113.7"}} {
		require.Equal(t, http.StatusTooManyRequests, w.shown(adminToken, same...), same)
	}
	for _, other := range [][]string{{"203.0.113.8"}, {"203.0.113.7, 203.0.113.9"}, {"203.0.113.7, unknown"}, nil} {
		require.Equal(t, http.StatusOK, w.shown(adminToken, other...), other)
	}
	for n := range 10 {
		require.Equal(t, http.StatusUnauthorized, w.shown(fmt.Sprint("b", n), fmt.Sprintf("2001:db8:7:7::%d", n+1)))
	}
	require.Equal(t, http.StatusTooManyRequests, w.shown(adminToken, "[2001:db8:7:7:8::9]:443"), "of one network")
	require.Equal(t, http.StatusOK, w.shown(adminToken, "2001:db8:7:8::1"))
}

// What somebody says who is no trusted proxy counts for nothing; the answer says what to set.
func TestAnUntrustedProxyIsOneAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for n := range 10 {
		require.Equal(t, http.StatusUnauthorized, w.shown(fmt.Sprint("a", n), fmt.Sprintf("198.51.100.%d", n)))
	}
	require.Equal(t, http.StatusTooManyRequests, w.shown(adminToken, "203.0.113.8"))
	require.Contains(t, w.browser("X-Forwarded-For", "203.0.113.8", "Authorization", "Bearer y").get("/admin/").body, "--admin-trusted-proxies")
	require.NotContains(t, w.browser("Authorization", "Bearer x").get("/admin/").body, "--admin-trusted-proxies")
}

// Many addresses together get no further than 100 wrong tokens, and one a second. They shut out nobody who is known.
func TestWrongTokensOfAllStrangersAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, behindProxies)
	require.Equal(t, http.StatusOK, w.shown(adminToken, "192.0.2.1"))
	ann := w.signedIn("Ann")
	looked := 0
	for n := range 150 {
		if w.shown(fmt.Sprint("a", n), fmt.Sprintf("198.51.100.%d", n)) == http.StatusUnauthorized {
			looked++
		}
	}
	require.Equal(t, 100, looked)
	require.Equal(t, http.StatusTooManyRequests, w.shown(adminToken, "192.0.2.2"), "a stranger, though it is right")
	require.Equal(t, http.StatusUnauthorized, w.shown("b", "192.0.2.1"), "a known address has its own bound")
	require.Equal(t, http.StatusOK, w.shown(adminToken, "192.0.2.1"))
	require.Equal(t, http.StatusOK, ann.get("/admin/").status, "a session is no attempt")
	w.wall = w.wall.Add(time.Second)
	require.Equal(t, http.StatusOK, w.shown(adminToken, "192.0.2.2"))
	w.wall = w.wall.Add(31 * 24 * time.Hour)
	for n := range 100 {
		require.Equal(t, http.StatusUnauthorized, w.shown(fmt.Sprint("c", n), fmt.Sprintf("198.51.100.%d", n)))
	}
	require.Equal(t, http.StatusTooManyRequests, w.shown(adminToken, "192.0.2.1"), "it was not seen for a month")
}

// However many wrong tokens come at once, no more of them are looked at.
func TestWrongTokensAtOnceAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var looked atomic.Int64
	var all sync.WaitGroup
	for n := range 40 {
		all.Go(func() {
			if w.shown(fmt.Sprint("a", n)) == http.StatusUnauthorized {
				looked.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 10, looked.Load())
}

// A wrong token that is shown again teaches nothing: a program that has an old one shuts nobody out.
func TestTheSameWrongTokenCountsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for range 30 {
		require.Equal(t, http.StatusUnauthorized, w.shown("old"))
		require.Equal(t, http.StatusUnauthorized, w.browser().post("/admin/login", login("Ada", "old")).status)
	}
	require.Equal(t, http.StatusOK, w.shown(adminToken))
}

// On the host's routes a known address may be wrong a thousand times, and ten times a second from then on; the right token
// passes all the while, and its bound on the admin's pages is not used up by it.
func TestGuessesOfAKnownAddressAreBoundedOnTheHostsRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, err := admin.New(w.cfg)
	require.NoError(t, err)
	host := a.Bounded(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	show := func(h http.Handler, token string) int {
		r := httptest.NewRequest(http.MethodGet, "/admin/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		return answer.Code
	}
	require.Equal(t, http.StatusNoContent, show(host, adminToken))
	for n := range 1000 {
		require.Equal(t, http.StatusNoContent, show(host, fmt.Sprint("a", n)), "it is looked at")
	}
	require.Equal(t, http.StatusTooManyRequests, show(host, "one more"))
	require.Equal(t, http.StatusNoContent, show(host, adminToken), "no flood keeps a host from settling")
	require.Equal(t, http.StatusTooManyRequests, show(host, "another one"))
	require.Equal(t, http.StatusOK, show(a, adminToken))
	w.wall = w.wall.Add(100 * time.Millisecond)
	require.Equal(t, http.StatusNoContent, show(host, "one more"))
	require.Equal(t, http.StatusTooManyRequests, show(host, "and one more"))
	require.Equal(t, http.StatusNoContent, show(host, adminToken))
}
