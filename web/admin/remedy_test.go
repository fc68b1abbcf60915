package admin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/web/admin"
)

// raised are the ways in which a finding is written down.
var raised = regexp.MustCompile(`weir\.find\('([a-z_]+)'|finding\{kind: "([a-z_]+)"|\.say\("([a-z_]+)"|WHEN x\.late < 0 THEN '([a-z]+)' ELSE '([a-z]+)' END`)

// Each kind that the code raises has a remedy, and each remedy a kind in the document that people read.
func TestEachKindOfFindingHasARemedy(t *testing.T) {
	t.Parallel()
	all := admin.Remedies()
	seen := 0
	for _, pattern := range []string{"../../billing/*.go", "../../internal/schema/migrations/*.sql"} {
		sources, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, source := range sources {
			if strings.HasSuffix(source, "_test.go") {
				continue
			}
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			for _, m := range raised.FindAllStringSubmatch(string(text), -1) {
				for _, kind := range m[1:] {
					if kind != "" {
						seen++
						require.Contains(t, all, kind, "%s raises it", source)
					}
				}
			}
		}
	}
	require.Greater(t, seen, 25)
	document, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	for kind, words := range all {
		require.Contains(t, string(document), "`"+kind+"`")
		for _, s := range words {
			require.NotEmpty(t, s, kind)
		}
	}
}

// Each cause of a conflict has its words.
func TestTheRemedyOfAMappingConflictNamesEachCause(t *testing.T) {
	t.Parallel()
	words := admin.Remedies()["mapping_conflict"]
	for _, cause := range []string{"Two customers claim one account", "one customer two", "that a person unmapped"} {
		require.Contains(t, words[0], cause)
	}
	require.Contains(t, words[2], "metadata")
}
