package settings_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/settings"
)

// What waiting mends is told from what it does not.
func TestAwayIsWhatPassesByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		away bool
	}{
		"starts up":         {&pgconn.PgError{Code: "57P03"}, true},
		"too many clients":  {&pgconn.PgError{Code: "53300"}, true},
		"serialization":     {&pgconn.PgError{Code: "40001"}, true},
		"wrong password":    {&pgconn.PgError{Code: "28P01"}, false},
		"no such database":  {&pgconn.PgError{Code: "3D000"}, false},
		"no such function":  {&pgconn.PgError{Code: "42883"}, false},
		"cut":               {io.ErrUnexpectedEOF, true},
		"closed by the way": {pgconn.ErrConnClosed, true},
		"no answer in time": {context.DeadlineExceeded, true},
		"told to end":       {context.Canceled, false},
		"something else":    {errors.New("a plan file is wrong"), false},
	} {
		require.Equal(t, c.away, settings.Away(fmt.Errorf("step: %w", c.err)), name)
	}
	require.ErrorContains(t, settings.Mend(&pgconn.PgError{Code: "3D000"}), "create the database")
	require.ErrorContains(t, settings.Mend(&pgconn.PgError{Code: "28P01"}), "mend the user or the password")
	require.ErrorContains(t, settings.Mend(io.ErrUnexpectedEOF), "see that it runs")
	twice := settings.Mend(fmt.Errorf("start: %w", settings.Mend(&pgconn.PgError{Code: "3D000"})))
	require.Equal(t, 1, strings.Count(twice.Error(), "create the database"))
	other := errors.New("other")
	require.Equal(t, other, settings.Mend(other))
}
