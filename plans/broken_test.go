package plans_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

// Each broken file lies beside the errors that it must give, all of them, to the letter.
// WEIR_GOLDEN=write writes them anew; read the difference before it is committed.
func TestBrokenFilesGiveEveryError(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../testdata/plans/broken/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 20)

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			c, err := plans.Load(file)
			require.Nil(t, c)
			var all *plans.Errors
			require.ErrorAs(t, err, &all)
			requireSafe(t, err)
			all.File = filepath.Base(file)

			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if os.Getenv("WEIR_GOLDEN") == "write" {
				require.NoError(t, os.WriteFile(golden, []byte(all.Error()+"\n"), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), all.Error()+"\n")
		})
	}
}
