package cmdtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/cmdtest"
)

type program struct {
	Map struct {
		Reason  string `required:""`
		Account string `arg:""`
	} `cmd:""`
	Nodes struct {
		GiveUp struct {
			Node int64 `arg:""`
		} `cmd:"" name:"give-up"`
	} `cmd:""`
	Books struct {
		Month string `required:""`
		Check bool
	} `cmd:""`
}

// Commands are found wherever they are shown, up to where the sentence goes on; names of commands are told apart.
func TestCommandsAreFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file, text string
		want       []string
	}{
		"a shell block":          {"a.md", "```sh\nA=1 tool map --reason \"an outage\" acme # why\ntool books \\\n  --month 2026-01 | head\n```\n", []string{"map|--reason|an outage|acme", "books|--month|2026-01"}},
		"its lines are whole":    {"a.md", "```sh\ntool map\n```\n", []string{"map"}},
		"another block":          {"a.md", "```yaml\ntool map x\n```\n", nil},
		"code in a text":         {"a.md", "Say `tool map ACCOUNT`, or `tool map`, tool map x.", []string{"map|ACCOUNT", "name map"}},
		"a command that is gone": {"a.md", "`tool frobnicate it`", []string{"frobnicate|it"}},
		"a message":              {"a.go", "package a\n// tool map x\nvar s = \"Run tool nodes give-up %d. Or tool map ACCOUNT, see tool books by hand: the tool is old\"\n", []string{"nodes|give-up|1", "map|ACCOUNT", "name books"}},
		"a message's code":       {"a.go", "package a\nvar s = \"run `tool books --check` (tool books --month \"\n", []string{"books|--check", "books|--month|a=1"}},
		"an alert":               {"a.yaml", "text: tool map --reason TEXT ACCOUNT, then (tool nodes)\n", []string{"map|--reason|TEXT|ACCOUNT", "name nodes"}},
		"a page":                 {"a.html", "<code>tool books --month {{.Month}}</code>", []string{"books|--month|2026-01"}},
		"another program":        {"a.yaml", "mytool map x, a-tool map x", nil},
		"a test":                 {"a_test.go", "package a\nvar s = \"tool map ACCOUNT\"\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(root, c.file), []byte(c.text), 0o600))
			p, err := kong.New(new(program), kong.Name("tool"))
			require.NoError(t, err)
			var got []string
			for _, l := range cmdtest.Find(t, root, p.Model) {
				require.Equal(t, c.file, l.File)
				text := strings.Join(l.Args, "|")
				if l.Name {
					text = "name " + text
				}
				got = append(got, text)
			}
			require.Equal(t, c.want, got)
		})
	}
}
