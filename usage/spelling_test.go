package usage_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

func TestAnAccountsIDHasOneRule(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"acme", "a b", "Ärger & Söhne", "A\u0308rger", "~acme", "a/b", "..", "<b>", strings.Repeat("a", 255), "a\u200bb"} {
		require.NoError(t, usage.CheckAccount(id), "%q", id)
	}
	for _, id := range []string{
		"", " ", " acme", "acme ", "acme\u00a0", "\u3000acme", "acme\n", "ac\nme", "ac\tme", "ac\x00me", "ac\x7fme", "ac\u0085me", "ac\u2028me", "ac\u2029me",
		"ac\xffme", strings.Repeat("a", 256),
	} {
		require.Error(t, usage.CheckAccount(id), "%q", id)
	}
}
