package readme_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

const root = "../.."

// blocks returns the README's code blocks of a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	var out []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		out = append(out, m[1])
	}
	require.NotEmpty(t, out)
	return out
}

func TestThePlanFileIsOne(t *testing.T) {
	t.Parallel()
	for _, text := range blocks(t, "yaml") {
		_, err := plans.Parse([]byte(text))
		require.NoError(t, err)
	}
}
