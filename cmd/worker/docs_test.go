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
