package problem_test

import (
	"encoding/json"
	"net/http/httptest"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/edge/problem"
)

func TestAProblemCarriesItsMembers(t *testing.T) {
	t.Parallel()
	p := problem.New(402, "quota_exceeded", "Quota exceeded", "All is used.")
	p.Int("used", 50)
	p.Null("limit")
	p.Text("upgrade_url", "https://example.com/?a=1&b=<2>")
	p.Time("resets_at", time.Date(2026, 12, 1, 1, 0, 0, 0, time.FixedZone("", 3600)))
	w := httptest.NewRecorder()
	p.Write(w)
	require.Equal(t, 402, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	require.JSONEq(t, `{
		"type": "https://github.com/weirhq/weir/blob/main/docs/http.md#quota_exceeded",
		"title": "Quota exceeded", "status": 402, "detail": "All is used.",
		"error": "quota_exceeded", "message": "All is used.",
		"used": 50, "limit": null, "upgrade_url": "https://example.com/?a=1&b=<2>", "resets_at": "2026-12-01T00:00:00Z"
	}`, w.Body.String())
}

func FuzzTextIsOneLineOfASCIIThatReadsBack(f *testing.F) {
	for _, s := range []string{"", "a", "\r\nSet-Cookie: x=1", "\"\\</script>&", "日本\u2028\U0001f600", "\xff\xfe", "\x7f\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out := problem.AppendString(nil, s)
		for _, c := range out {
			if c < ' ' || c > '~' {
				t.Fatalf("byte %#x in %q", c, out)
			}
		}
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		if utf8.ValidString(s) && back != s {
			t.Fatalf("%q read back as %q", s, back)
		}
	})
}
