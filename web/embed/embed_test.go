package embed_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/embed"
)

const origin = "https://app.example.com"

func ask(t *testing.T, h http.Handler, method, path string, headers ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func newElements(t *testing.T, origins ...string) *embed.Elements {
	t.Helper()
	e, err := embed.New(origins)
	require.NoError(t, err)
	return e
}

func TestScriptsAreServedToEveryOrigin(t *testing.T) {
	t.Parallel()
	e := newElements(t)
	for _, path := range []string{"/embed/meter.js", "/embed/pricing.js"} {
		res := ask(t, e, http.MethodGet, path, "Origin", "https://anywhere.example.org")
		require.Equal(t, http.StatusOK, res.StatusCode, path)
		for name, want := range map[string]string{
			"Content-Type": "text/javascript; charset=utf-8", "Cache-Control": "public, max-age=300, stale-while-revalidate=86400",
			"X-Content-Type-Options": "nosniff", "Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin",
		} {
			require.Equal(t, want, res.Header.Get(name), name)
		}
		tag := res.Header.Get("ETag")
		require.NotEmpty(t, tag)
		require.Equal(t, http.StatusNotModified, ask(t, e, http.MethodGet, path, "If-None-Match", tag).StatusCode)
		body, err := io.ReadAll(ask(t, e, http.MethodHead, path).Body)
		require.NoError(t, err)
		require.Empty(t, body)
	}
	for _, path := range []string{"/embed/base.js", "/embed/", "/embed/../embed.go", "/embed/meter.js/"} {
		require.Equal(t, http.StatusNotFound, ask(t, e, http.MethodGet, path).StatusCode, path)
	}
}

// What a strict policy would stop, or what would make markup of text, is not in the scripts.
func TestScriptsNeedNothingThatAStrictPolicyForbids(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|setHTMLUnsafe|document\.write|DOMParser|\beval\b|new Function|\.style\b|"style"|cssText|import\(|parseFloat|toFixed`)
	for _, path := range []string{"/embed/meter.js", "/embed/pricing.js"} {
		text, err := io.ReadAll(ask(t, newElements(t), http.MethodGet, path).Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "customElements.define(")
		require.Less(t, len(text), 20_000, path)
		require.Empty(t, forbidden.FindAllString(string(text), -1), path)
	}
}

func TestOnlyNamedOriginsReadUsage(t *testing.T) {
	t.Parallel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	for name, c := range map[string]struct {
		origins []string
		path    string
		sent    []string
		want    string
		vary    bool
	}{
		"named":             {[]string{"https://other.example.com", origin}, "/usage/t.json", []string{"Origin", origin}, origin, true},
		"with a port":       {[]string{"http://localhost:3000"}, "/usage/t.json", []string{"Origin", "http://localhost:3000"}, "http://localhost:3000", true},
		"another":           {[]string{origin}, "/usage/t.json", []string{"Origin", "https://app.example.com.evil.org"}, "", true},
		"another scheme":    {[]string{origin}, "/usage/t.json", []string{"Origin", "http://app.example.com"}, "", true},
		"another port":      {[]string{origin}, "/usage/t.json", []string{"Origin", origin + ":8443"}, "", true},
		"a sandboxed frame": {[]string{origin}, "/usage/t.json", []string{"Origin", "null"}, "", true},
		"two origins":       {[]string{origin}, "/usage/t.json", []string{"Origin", origin, "Origin", origin}, "", true},
		"no origin":         {[]string{origin}, "/usage/t.json", nil, "", true},
		"none named":        {nil, "/usage/t.json", []string{"Origin", origin}, "", true},
		"the page":          {[]string{origin}, "/usage/t", []string{"Origin", origin}, "", false},
		"the stream":        {[]string{origin}, "/usage/t/live", []string{"Origin", origin}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res := ask(t, newElements(t, c.origins...).Share(next), http.MethodGet, c.path, c.sent...)
			require.Equal(t, http.StatusForbidden, res.StatusCode, "the answer is next's, and a refusal is readable too")
			require.Equal(t, c.want, res.Header.Get("Access-Control-Allow-Origin"))
			require.Equal(t, c.vary, res.Header.Get("Vary") == "Origin")
			require.Empty(t, res.Header.Get("Access-Control-Allow-Credentials"))
		})
	}
}

func TestOriginsThatNoBrowserSendsAreRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []string{
		"", "*", "null", "app.example.com", "https://app.example.com/", "https://*.example.com", "https://App.example.com", "https://app.example.com:443",
		"http://app.example.com:80", "ftp://app.example.com", "https://user@app.example.com", "https://a.example.com, https://b.example.com", "https://",
	} {
		_, err := embed.New([]string{origin, o})
		require.ErrorContains(t, err, "use an origin as browsers write it", o)
	}
}
