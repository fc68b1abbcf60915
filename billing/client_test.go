package billing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
)

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"", "pk_live_1", "whsec_1", "sk_prod_1"} {
		_, err := billing.NewClient(billing.ClientConfig{Key: key})
		require.ErrorContains(t, err, "no secret or restricted key", key)
	}
	for key, live := range map[string]bool{"sk_live_1": true, "rk_live_1": true, "sk_test_1": false, "rk_test_1": false} {
		c, err := billing.NewClient(billing.ClientConfig{Key: key})
		require.NoError(t, err)
		require.Equal(t, live, c.Live(), key)
	}
}
