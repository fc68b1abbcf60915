package billing_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
)

// Whatever Stripe asks for, a throttled call waits between a second and half a minute.
func FuzzRetryAfterIsBounded(f *testing.F) {
	for _, s := range []string{"", "0", "7", "-1", "31", "10000000000", "9223372036854775807", "Wed, 21 Oct 2026 07:28:00 GMT", "1.5", " 3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		wait, ok := billing.Throttled(&stripe.Error{
			HTTPStatusCode: http.StatusTooManyRequests,
			APIResource:    stripe.APIResource{LastResponse: &stripe.APIResponse{Header: http.Header{"Retry-After": {value}}}},
		})
		require.True(t, ok)
		require.GreaterOrEqual(t, wait, time.Second)
		require.LessOrEqual(t, wait, 30*time.Second)
	})
}
