package enforcer_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
)

// A feature's name and a plan's come from files that people write: whatever they hold, each header is one line of
// printable ASCII, and the body reads back.
func FuzzHeadersAreOneLineOfASCII(f *testing.F) {
	f.Add("free", "events", int64(50), int64(50))
	f.Add("a\r\nSet-Cookie: x=1", "\"\\\x00é\u2028", int64(-1), int64(1<<62))
	f.Fuzz(func(t *testing.T, plan, feature string, used, limit int64) {
		a := answersOf(t, noon, true)
		w := httptest.NewRecorder()
		d := enforcer.Decision{
			Reason: enforcer.QuotaExceeded, Used: used, Limit: limit,
			Terms: &enforcer.Terms{Plan: plan, Feature: feature, ResetsAt: noon.Add(time.Hour), UpgradeURL: "https://example.com/" + plan},
		}
		a.Headers(w.Header(), enforcer.Decision{Reason: enforcer.RateLimited, Limit: limit, RetryAfter: time.Second}, d)
		a.Refuse(w, d)
		for name, values := range w.Result().Header {
			for _, v := range values {
				for i := range len(v) {
					require.True(t, ' ' <= v[i] && v[i] <= '~', "%s: %q", name, v)
				}
			}
		}
		require.Equal(t, http.StatusPaymentRequired, w.Code)
		require.True(t, json.Valid(w.Body.Bytes()), "%q", w.Body)
	})
}
