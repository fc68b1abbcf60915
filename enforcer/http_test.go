package enforcer_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/enforcer"
)

// answersOf returns the answers of an enforcer that was not started: no catalog, the clock of the test.
func answersOf(t testing.TB, now time.Time, draft bool) enforcer.Answers {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	e, err := enforcer.New(pool, &enforcer.Config{NoJournal: true, Clock: stopped(now)})
	require.NoError(t, err)
	return e.Answers(draft)
}

type stopped time.Time

func (c stopped) Now() time.Time { return time.Time(c) }

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestRetryAfterIsWholeSecondsAndNeverBelowOne(t *testing.T) {
	t.Parallel()
	a := answersOf(t, noon, false)
	for wait, want := range map[time.Duration]string{
		-time.Hour: "1", 0: "1", time.Millisecond: "1", 999 * time.Millisecond: "1", time.Second: "1",
		1001 * time.Millisecond: "2", time.Minute: "60", 24 * time.Hour: "86400",
	} {
		for _, reason := range []enforcer.Reason{enforcer.RateLimited, enforcer.Unavailable} {
			w := httptest.NewRecorder()
			a.Refuse(w, enforcer.Decision{Reason: reason, RetryAfter: wait})
			require.Equal(t, want, w.Header().Get("Retry-After"), "%s %s", reason, wait)
			var body struct {
				RetryAfter json.Number `json:"retry_after"`
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &body))
			require.Equal(t, want, body.RetryAfter.String())
		}
	}
	w := httptest.NewRecorder()
	a.Refuse(w, enforcer.Decision{Reason: enforcer.QuotaExceeded, RetryAfter: time.Hour})
	require.Empty(t, w.Header().Get("Retry-After"), "no wait of seconds refills a month")
}

func TestARefusalSaysWhatTheContractSays(t *testing.T) {
	t.Parallel()
	a := answersOf(t, noon, false)
	terms := &enforcer.Terms{Plan: "free", Feature: "events", ResetsAt: noon.Add(12 * time.Hour), UpgradeURL: "https://example.com/up"}
	w := httptest.NewRecorder()
	d := enforcer.Decision{Reason: enforcer.QuotaExceeded, Used: 50, Limit: 50, Terms: terms}
	a.Headers(w.Header(), enforcer.Decision{Allowed: true, Reason: enforcer.OK, Limit: 60, Remaining: 9}, d)
	a.Refuse(w, d)
	require.Equal(t, http.StatusPaymentRequired, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	for name, want := range map[string]string{
		"RateLimit-Limit": "60", "RateLimit-Remaining": "9",
		"Quota-Limit": "50", "Quota-Remaining": "0", "Quota-Reset": "43200",
		"RateLimit": "", "RateLimit-Policy": "",
	} {
		require.Equal(t, want, w.Header().Get(name), name)
	}
	require.JSONEq(t, `{
		"type": "https://github.com/weirhq/weir/blob/main/docs/http.md#quota_exceeded",
		"title": "Quota exceeded", "status": 402, "error": "quota_exceeded",
		"detail": "The 50 events of this period are used. The next period begins at 2026-12-01T00:00:00Z.",
		"message": "The 50 events of this period are used. The next period begins at 2026-12-01T00:00:00Z.",
		"plan": "free", "feature": "events", "limit": 50, "used": 50, "remaining": 0, "overage": 0,
		"resets_at": "2026-12-01T00:00:00Z", "upgrade_url": "https://example.com/up"
	}`, w.Body.String())
}

func TestTheDraftsFieldsAreThereByOption(t *testing.T) {
	t.Parallel()
	a := answersOf(t, noon, true)
	h := http.Header{}
	a.Headers(h,
		enforcer.Decision{Reason: enforcer.RateLimited, Limit: 60, RetryAfter: 1500 * time.Millisecond},
		enforcer.Decision{Allowed: true, Reason: enforcer.OK, Limit: 50, Remaining: 7, Terms: &enforcer.Terms{
			Feature: "a\"\\é\r\nx", ResetsAt: noon.Add(time.Minute + time.Nanosecond),
		}})
	require.Equal(t, `"rate";q=60, "quota-a\"\\???x";q=50`, h.Get("RateLimit-Policy"))
	require.Equal(t, `"rate";r=0;t=2, "quota-a\"\\???x";r=7;t=61`, h.Get("RateLimit"))
}

func TestWhatHasNoLimitHasNoHeader(t *testing.T) {
	t.Parallel()
	a := answersOf(t, noon, true)
	h := http.Header{}
	a.Headers(h, enforcer.Decision{}, enforcer.Decision{})
	a.Headers(h, enforcer.Decision{Allowed: true, Reason: enforcer.OK, Unlimited: true}, enforcer.Decision{Reason: enforcer.NotInPlan, Terms: &enforcer.Terms{Feature: "x"}})
	require.Empty(t, h)
	a.Headers(h, enforcer.Decision{}, enforcer.Decision{Allowed: true, Reason: enforcer.OK, Unlimited: true, Terms: &enforcer.Terms{ResetsAt: noon}})
	require.Equal(t, http.Header{"Quota-Reset": {"0"}}, h)
}

func TestAppendedJSONIsTheMarshaledOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := enforcer.Decision{
			Allowed: rapid.Bool().Draw(t, "allowed"), Reason: enforcer.Reason(rapid.String().Draw(t, "reason")),
			Used: rapid.Int64().Draw(t, "used"), Limit: rapid.Int64().Draw(t, "limit"),
			Remaining: rapid.Int64().Draw(t, "remaining"), Overage: rapid.Int64().Draw(t, "overage"),
			Unlimited:  rapid.Bool().Draw(t, "unlimited"),
			RetryAfter: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "retry")),
		}
		if rapid.Bool().Draw(t, "terms") {
			d.Terms = &enforcer.Terms{Plan: rapid.String().Draw(t, "plan"), Feature: rapid.String().Draw(t, "feature")}
			if rapid.Bool().Draw(t, "resets") {
				d.Terms.ResetsAt = time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 0)
			}
		}
		want, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		got := d.AppendJSON(nil)
		var a, b map[string]any
		if err := json.Unmarshal(want, &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &b); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		require.Equal(t, a, b)
	})
}
