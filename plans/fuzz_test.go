package plans_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
)

// FuzzParse: any bytes give a catalog that survives JSON, or errors that are safe to print.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../testdata/plans/*/*.yaml")
	require.NoError(f, err)
	for _, name := range append(files, designFile) {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := plans.Parse(data)
		if err == nil {
			requireSurvivesJSON(t, c)
			return
		}
		require.Nil(t, c)
		requireSafe(t, err)
	})
}

// FuzzDecode: any bytes give a catalog that encodes to itself, or an error.
func FuzzDecode(f *testing.F) {
	c, err := plans.Load(designFile)
	require.NoError(f, err)
	data, err := c.MarshalJSON()
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := plans.Decode(data)
		if err == nil {
			requireSurvivesJSON(t, c)
		}
	})
}

func requireSurvivesJSON(t require.TestingT, c *plans.Catalog) {
	data, err := c.MarshalJSON()
	require.NoError(t, err)
	back, err := plans.Decode(data)
	require.NoError(t, err)
	require.Equal(t, c.Hash(), back.Hash())
	require.Equal(t, c.Plans(), back.Plans())
	require.Equal(t, c.Features(), back.Features())
	require.Empty(t, c.Diff(back))
}

// requireSafe checks that an error is one line per problem and holds nothing that a terminal or a
// log would take for something else.
func requireSafe(t require.TestingT, err error) {
	var all *plans.Errors
	require.True(t, errors.As(err, &all))
	require.NotEmpty(t, all.Problems)
	lines := strings.Split(err.Error(), "\n")
	want := len(all.Problems)
	if all.More > 0 {
		want++
	}
	require.Len(t, lines, want)
	for _, line := range lines {
		require.LessOrEqual(t, len(line), 2000)
		for _, r := range line {
			require.True(t, unicode.IsPrint(r), "%q in %q", r, line)
		}
	}
	for _, p := range all.Problems {
		require.NotEmpty(t, p.Message)
		require.GreaterOrEqual(t, p.Line, 0)
	}
}
