package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const begin = `{"config":{"db":"file:///db"}}{"osv":{"id":"GO-1","summary":"a fault"}}`

func TestWhatIsCalledAndNotTheToolchainsCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in     string
		called int
		says   string
	}{
		"nothing":       {begin, 0, "0 in dependencies, 0 in the Go toolchain"},
		"only required": {begin + `{"finding":{"osv":"GO-1","trace":[{"module":"example.com/m","version":"v1.0.0"}]}}`, 0, "0 in dependencies"},
		"called": {begin + `{"finding":{"osv":"GO-1","fixed_version":"v1.0.1","trace":[{"module":"example.com/m","version":"v1.0.0","package":"example.com/m/p","function":"F","receiver":"T"}]}}`,
			1, "GO-1 in example.com/m v1.0.0, mended by v1.0.1: a fault (calls example.com/m/p.T.F)"},
		"toolchain": {begin + `{"finding":{"osv":"GO-1","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","package":"net/http","function":"Get"}]}}`,
			0, "BUILD WITH A NEWER GO"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			called, err := report(strings.NewReader(c.in), &out)
			require.NoError(t, err)
			require.Equal(t, c.called, called)
			require.Contains(t, out.String(), c.says)
		})
	}
}

func TestSilenceIsNoGoodNews(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "{", "no JSON"} {
		_, err := report(strings.NewReader(in), &strings.Builder{})
		require.Error(t, err, in)
	}
}
