package journal_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// The test binary is also the process that is killed, or runs out of disk.
const childEnv = "WEIR_JOURNAL_TEST_CHILD"

func TestMain(m *testing.M) {
	children := volumeChildren()
	children["count"] = countUntilKilled
	if child, ok := children[os.Getenv(childEnv)]; ok {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is this binary as one of the children above, in the given folder.
func child(t *testing.T, kind, dir string, more ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, append([]string{dir}, more...)...)
	cmd.Env = append(os.Environ(), childEnv+"="+kind)
	cmd.Stderr = os.Stderr
	return cmd
}
