package settings_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/settings"
)

func TestSecretsThatCouldBeGuessedAreRefused(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "0123456789abcdef", strings.Repeat("~!", 500)} {
		require.NoError(t, settings.Token("WEIR_ADMIN_TOKEN", good), good)
	}
	for _, bad := range []string{"a", "0123456789abcde", "0123456789 abcdef", "0123456789abcdef\n", "0123456789abcdéf"} {
		err := settings.Token("WEIR_ADMIN_TOKEN", bad)
		require.ErrorContains(t, err, "WEIR_ADMIN_TOKEN must be at least 16 characters")
		require.NotContains(t, err.Error(), bad+" ")
	}
	require.NoError(t, settings.SigningSecret("whsec_0123456789"))
	require.ErrorContains(t, settings.SigningSecret("whsec_012345678"), "at least 16 are needed")
	require.ErrorContains(t, settings.SigningSecret("we_0123456789abcdef"), "does not begin with whsec_")
}
