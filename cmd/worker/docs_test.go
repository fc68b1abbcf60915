package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// words splits a shell line that has plain and double-quoted words.
var words = regexp.MustCompile(`"([^"]*)"|(\S+)`)

// Each worker command that the documents show is one that the program has, with flags that it knows.
func TestCommandsInTheDocumentsExist(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, documents)
	seen := 0
	for _, document := range append(documents, "../../README.md") {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		for _, line := range shown(string(text)) {
			var args []string
			for _, m := range words.FindAllStringSubmatch(line, -1) {
				args = append(args, m[1]+m[2])
			}
			p, err := newParser(new(commands), func(string) string { return "" }, io.Discard, io.Discard, new(bool))
			require.NoError(t, err)
			_, err = p.Parse(args[1:])
			require.NoError(t, err, "%s: %s", document, line)
			seen++
		}
	}
	require.Greater(t, seen, 15)
}

// shown are the lines of shell blocks that call the worker.
func shown(text string) []string {
	var out []string
	for i, block := range strings.Split(text, "```") {
		if i%2 == 0 || !strings.HasPrefix(block, "sh\n") {
			continue
		}
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, " #")
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "worker ") && !slices.Contains(out, line) && !strings.ContainsAny(line, "$|;") {
				out = append(out, line)
			}
		}
	}
	return out
}

// Each kind of finding that the code raises is in the document that every finding points to.
func TestEachKindOfFindingIsExplained(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	kinds := map[string]bool{}
	for _, pattern := range []string{"../../billing/*.go", "../../usage/*.go", "../../jobs/*.go", "../../internal/schema/migrations/*.sql"} {
		sources, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, source := range sources {
			if strings.HasSuffix(source, "_test.go") {
				continue
			}
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			for _, m := range raised.FindAllStringSubmatch(string(text), -1) {
				kinds[m[1]+m[2]+m[3]] = true
			}
		}
	}
	require.Greater(t, len(kinds), 25)
	for kind := range kinds {
		require.Contains(t, string(document), "`"+kind+"`")
	}
}

// raised are the ways in which a finding is written down.
var raised = regexp.MustCompile(`weir\.find\('([a-z_]+)'|finding\{kind: "([a-z_]+)"|\.say\("([a-z_]+)"`)
