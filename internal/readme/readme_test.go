package readme_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

func TestTheGoSampleCompiles(t *testing.T) {
	t.Parallel()
	for _, code := range blocks(t, "go") {
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(code), 0o600))
		cmd := exec.CommandContext(t.Context(), "go", "vet", file)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestThePlanFileIsOne(t *testing.T) {
	t.Parallel()
	for _, text := range blocks(t, "yaml") {
		_, err := plans.Parse([]byte(text))
		require.NoError(t, err)
	}
}

func TestTheMakeTargetsExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, block := range blocks(t, "sh") {
		for _, m := range regexp.MustCompile(`(?m)^make ([a-z-]+)`).FindAllStringSubmatch(block, -1) {
			require.Regexp(t, regexp.MustCompile(`(?m)^`+m[1]+`:`), string(makefile))
		}
	}
}

func TestTheLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		_, err := os.Stat(filepath.Join(root, m[1]))
		require.NoError(t, err)
	}
}
