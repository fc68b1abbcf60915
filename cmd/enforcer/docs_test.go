package main

import (
	"io"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/cmdtest"
	"github.com/weirhq/weir/internal/settings"
)

// Each command line of the enforcer that documents and messages show is one that the program takes.
func TestCommandsThatAreShownExist(t *testing.T) {
	t.Parallel()
	helped := false
	parser := func() *kong.Kong {
		p, err := kong.New(new(options), kong.Name("enforcer"), kong.Writers(io.Discard, io.Discard), kong.Exit(func(int) { helped = true }),
			kong.Resolvers(settings.Environment(func(string) string { return "" })))
		require.NoError(t, err)
		return p
	}
	complete := 0
	for _, l := range cmdtest.Find(t, "../..", parser().Model) {
		if l.Name {
			continue
		}
		helped = false
		if _, err := parser().Parse(l.Args); !helped {
			assert.NoError(t, err, "%s: %s", l.File, l.Text)
		}
		complete++
	}
	require.Greater(t, complete, 3)
}
