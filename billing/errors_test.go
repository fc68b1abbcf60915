package billing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"
)

// Only what is certain not to have been executed is taken for that.
func TestWhatAnAnswerToAMeterEventMeans(t *testing.T) {
	t.Parallel()
	refusal := func(status int, message string) error {
		return fmt.Errorf("POST: %w", &stripe.Error{HTTPStatusCode: status, Msg: message, Type: stripe.ErrorTypeInvalidRequest})
	}
	for _, c := range []struct {
		err  error
		want outcome
	}{
		{nil, delivered},
		{refusal(400, "An event already exists with identifier weir:1."), delivered},
		{refusal(400, "An event already exists with identifier weir:1"), delivered},
		{refusal(400, "An event already exists with identifier weir:12."), rejected},
		{refusal(400, "An event already exists with identifier xweir:1."), rejected},
		{refusal(400, "Something else: An event already exists with identifier weir:1."), rejected},
		{refusal(400, "No active meter found for event_name x"), later},
		{&stripe.Error{HTTPStatusCode: 400, Type: stripe.ErrorTypeIdempotency}, unknown},
		{refusal(401, ""), stopped},
		{refusal(402, ""), rejected},
		{refusal(403, ""), stopped},
		{refusal(404, ""), rejected},
		{refusal(409, ""), unknown}, // the key is in use: by whom, and with what result, nobody here knows
		{refusal(429, ""), later},
		{refusal(500, ""), unknown},
		{refusal(502, ""), unknown},
		{refusal(503, ""), unknown},
		{refusal(307, ""), unknown},
		{io.ErrUnexpectedEOF, unknown},
		{context.DeadlineExceeded, unknown},
		{errors.New("Couldn't deserialize JSON"), unknown},
		{&errBudget{wait: time.Second}, later},
		{&errBudget{wait: time.Second, cause: context.Canceled}, later},
	} {
		require.Equal(t, c.want, judge(c.err, "weir:1"), "%v", c.err)
	}
	require.False(t, IsPermanent(refusal(409, "")))
	_, throttled := Throttled(refusal(409, ""))
	require.False(t, throttled)
}
