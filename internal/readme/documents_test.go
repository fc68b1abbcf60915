package readme_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
)

// block is a fenced block of a document.
type block struct {
	file, language, text string
	before               string // the paragraph above it
}

func (b block) String() string { return b.file + ": ```" + b.language + "\n" + b.text }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// everywhere returns the blocks of all documents.
func everywhere(t *testing.T) []block {
	t.Helper()
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "examples/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		files = append(files, found...)
	}
	require.Greater(t, len(files), 20)
	var all []block
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Zero(t, strings.Count("\n"+string(text), "\n```")%2, "%s: a block has no end", file)
		name, err := filepath.Rel(root, file)
		require.NoError(t, err)
		for _, at := range fence.FindAllStringSubmatchIndex(string(text), -1) {
			paragraphs := strings.Split(strings.TrimSpace(string(text[:at[0]])), "\n\n")
			all = append(all, block{name, string(text[at[2]:at[3]]), string(text[at[4]:at[5]]), paragraphs[len(paragraphs)-1]})
		}
	}
	require.Greater(t, len(all), 20)
	return all
}

// elsewhere are languages that other tests run: what the pages' elements do is looked at with a browser (edge).
var elsewhere = map[string]bool{"html": true, "js": true}

// Each block of each document compiles, parses or runs. What would need a tool that is not here says "not run".
func TestEachBlockOfTheDocumentsHolds(t *testing.T) {
	t.Parallel()
	for _, b := range everywhere(t) {
		t.Run(b.file+" "+b.language, func(t *testing.T) {
			t.Parallel()
			switch b.language {
			case "", "text": // pictures and what a program printed
			case "go":
				compiles(t, b)
			case "sh":
				cmd := exec.CommandContext(t.Context(), "bash", "-n")
				cmd.Stdin = strings.NewReader(b.text)
				out, err := cmd.CombinedOutput()
				require.NoError(t, err, "%s%s", b, out)
			case "yaml":
				parses(t, b)
			case "json":
				require.True(t, json.Valid([]byte(b.text)), b)
			case "sql":
				runs(t, b)
			default:
				require.True(t, elsewhere[b.language] || strings.Contains(strings.ToLower(b.before), "not run"),
					"nothing looks at it, and the paragraph before it does not say that it was not run: %s", b)
			}
		})
	}
}

// compiles builds a program as though it were a package of this module, since samples may show internal packages; as no
// program, so that nothing is linked.
func compiles(t *testing.T, b block) {
	t.Helper()
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(top, "internal/readme/sample/main.go"): filepath.Join(dir, "main.go")}})
	require.NoError(t, err)
	text := strings.NewReplacer("package main\n", "package sample\n", "func main() {", "func Main() {").Replace(b.text)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "./internal/readme/sample")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s%s", b, out)
}

func parses(t *testing.T, b block) {
	t.Helper()
	for dec := yaml.NewDecoder(bytes.NewReader([]byte(b.text))); ; {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err, b)
	}
}

var errUndo = errors.New("undo")

// runs carries SQL out in a transaction that is undone. Documents call the role of Weir's programs weir.
func runs(t *testing.T, b block) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), schematest.Pool(t), func(tx pgx.Tx) error {
		if _, err := tx.Exec(context.Background(), `DO $$ BEGIN CREATE ROLE weir; EXCEPTION WHEN duplicate_object THEN NULL; END $$`); err != nil {
			return err
		}
		if _, err := tx.Exec(context.Background(), b.text); err != nil {
			return err
		}
		return errUndo
	})
	require.ErrorIs(t, err, errUndo, b)
}

var (
	target = regexp.MustCompile(`\bmake ([a-z][a-z-]+)`)
	script = regexp.MustCompile(`\bscripts/[a-z-]+`)
	link   = regexp.MustCompile(`\]\(([^)#\s]+)`)
)

// What documents name is there: make's targets, scripts, and where links lead.
func TestWhatTheDocumentsNameExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	require.NoError(t, err)
	targets := 0
	for _, file := range append(files, filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for code := range strings.SplitSeq(string(text), "`") {
			for _, m := range target.FindAllStringSubmatch(code, -1) {
				if strings.HasPrefix(code, "make ") || strings.Contains(code, "\nmake ") {
					require.Regexp(t, regexp.MustCompile(`(?m)^`+m[1]+`:`), string(makefile), "%s: make %s", file, m[1])
					targets++
				}
			}
		}
		for _, name := range script.FindAllString(string(text), -1) {
			require.FileExists(t, filepath.Join(root, name), file)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], ":") {
				_, err := os.Stat(filepath.Join(filepath.Dir(file), m[1]))
				require.NoError(t, err, "%s: a link leads nowhere", file)
			}
		}
	}
	require.Greater(t, targets, 10)
}
