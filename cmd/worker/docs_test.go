package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/cmdtest"
)

// Each worker command that documents, pages, alerts and messages show is one that the program takes as it stands there.
func TestCommandsThatAreShownExist(t *testing.T) {
	t.Parallel()
	helped := false
	parser := func() *kong.Kong {
		p, err := newParser(new(commands), func(string) string { return "" }, io.Discard, io.Discard, &helped)
		require.NoError(t, err)
		return p
	}
	complete := map[string]int{} // by kind of file
	for _, l := range cmdtest.Find(t, "../..", parser().Model) {
		if l.Name {
			continue
		}
		helped = false
		if _, err := parser().Parse(l.Args); !helped {
			assert.NoError(t, err, "%s: %s", l.File, l.Text)
		}
		complete[filepath.Ext(l.File)]++
	}
	require.Greater(t, complete[".md"], 30)
	require.Greater(t, complete[".go"], 10)
	require.NotZero(t, complete[".yaml"])
	require.NotZero(t, complete[".html"])
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
