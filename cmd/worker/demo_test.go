package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README's first promise: the demo's numbers agree, and its exit code says so.
func TestTheDemoAgrees(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"worker", "enforcer"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, name), "github.com/weirhq/weir/cmd/"+name)
		out, err := build.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "worker"), "demo", "--seed", "42")
	cmd.Env = append(os.Environ(), "NO_COLOR=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s", &out)
	require.NoError(t, err)
	require.Contains(t, out.String(), "all numbers agree")
	for _, row := range []string{
		`= fern +free +[\d,]+ +10,000 `, `= moss +free +4,321 +4,321 +0 `, `= birch +pro +1,234,567 +1,234,567 +0 +1,234,567 +234,567 +234,567 +234,567 `,
		`= cedar +pro +[\d,]+ +6,000,000 +[\d,]+ +6,000,000 +5,000,000 +5,000,000 +5,000,000 `,
	} {
		require.Regexp(t, row, out.String())
	}
}
