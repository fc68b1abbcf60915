package enforcer_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What imports the library must not drag in the worker's side.
func TestTheLibraryLinksNeitherStripeNorRiver(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/weirhq/weir/enforcer").Output()
	require.NoError(t, err)
	for _, pkg := range strings.Fields(string(out)) {
		for _, no := range []string{
			"stripe", "riverqueue", "weirhq/weir/jobs", "weirhq/weir/billing", "weirhq/weir/web", "weirhq/weir/internal/stripesim", "testing",
		} {
			require.NotContains(t, pkg, no)
		}
	}
}
