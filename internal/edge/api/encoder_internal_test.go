package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/enforcer"
)

// Whatever it appended before, the encoder appends what the decision itself does.
func TestTheEncoderWritesWhatDecisionsWrite(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	terms := []*enforcer.Terms{
		nil, {Plan: "free", Feature: "events", ResetsAt: at}, {Plan: "pro", Feature: "events", ResetsAt: at}, {Plan: "free"}, {},
		{Plan: `,"used":7`, Feature: `,"overage":8`, ResetsAt: at},
	}
	rapid.Check(t, func(t *rapid.T) {
		var e encoder
		for range rapid.IntRange(1, 12).Draw(t, "decisions") {
			d := enforcer.Decision{
				Allowed: rapid.Bool().Draw(t, "allowed"), Reason: enforcer.Reason(rapid.SampledFrom([]string{"ok", "quota_exceeded", ""}).Draw(t, "reason")),
				Used: rapid.Int64().Draw(t, "used"), Limit: rapid.Int64Range(-2, 2).Draw(t, "limit"), Remaining: rapid.Int64().Draw(t, "remaining"),
				Overage: rapid.Int64().Draw(t, "overage"), Unlimited: rapid.Bool().Draw(t, "unlimited"), Terms: rapid.SampledFrom(terms).Draw(t, "terms"),
				RetryAfter: time.Duration(rapid.SampledFrom([]int64{0, 0, 0, 1500e6}).Draw(t, "retry")),
			}
			require.Equal(t, "x"+string(d.AppendJSON(nil)), string(e.append([]byte("x"), &d)))
		}
	})
}
