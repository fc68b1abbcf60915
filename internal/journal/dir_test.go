package journal_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
)

func TestTheDefaultFolder(t *testing.T) { // not parallel: it sets the environment
	for _, tc := range []struct{ name, service, state, home, want, refused string }{
		{name: "systemd", service: "/var/lib/weir", state: "/s", home: "/h", want: "/var/lib/weir"},
		{name: "the first of several", service: "/var/lib/weir:/var/lib/other", home: "/h", want: "/var/lib/weir"},
		{name: "state home", state: "/s", home: "/h", want: "/s/weir"},
		{name: "home", home: "/h", want: "/h/.local/state/weir"},
		{name: "relative", service: "weir", home: "/h", refused: "$STATE_DIRECTORY"},
		{name: "relative state home", state: "s", home: "/h", refused: "$XDG_STATE_HOME"},
		{name: "relative home", home: "h", refused: "$HOME"},
		{name: "nothing", refused: "name one in the configuration"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("STATE_DIRECTORY", tc.service)
			t.Setenv("XDG_STATE_HOME", tc.state)
			t.Setenv("HOME", tc.home)
			dir, err := journal.DefaultDir()
			if tc.refused != "" {
				var problem *journal.Problem
				require.ErrorAs(t, err, &problem)
				require.Equal(t, journal.NoFolder, problem.Reason)
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, filepath.FromSlash(tc.want), dir)
		})
	}
}
