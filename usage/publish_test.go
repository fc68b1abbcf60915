package usage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

var errDied = errors.New("the process died")

// mortal is a database whose process dies before the statement or transaction outside of others after so many.
type mortal struct {
	usage.DB
	left int
}

func (m *mortal) lives() bool { m.left--; return m.left >= 0 }

func (m *mortal) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if !m.lives() {
		return pgconn.CommandTag{}, errDied
	}
	return m.DB.Exec(ctx, sql, args...)
}

func (m *mortal) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if !m.lives() {
		return deadRow{}
	}
	return m.DB.QueryRow(ctx, sql, args...)
}

func (m *mortal) Begin(ctx context.Context) (pgx.Tx, error) {
	if !m.lives() {
		return nil, errDied
	}
	return m.DB.Begin(ctx)
}

type deadRow struct{}

func (deadRow) Scan(...any) error { return errDied }

// A publication that broke off, wherever, is completed and told by the next one of the same file; one more of it tells
// nobody anything.
func TestAPublicationThatBrokeOffIsToldByTheNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro", noon.AddDate(0, 0, 1), noon.AddDate(0, 1, 1), noon)
	latest := func(after int64) (int64, bool) {
		n, accounts, err := usage.Changes(t.Context(), w.db, after)
		require.NoError(t, err)
		return n, accounts == nil
	}
	deaths := 0
	for steps := 0; ; steps++ {
		file := planFile
		if steps%2 == 0 {
			file += "anonymous: {limit: 3, window: 1h}\n"
		}
		c, err := plans.Parse([]byte(file))
		require.NoError(t, err)
		_, _, err = usage.Publish(t.Context(), &mortal{w.db, steps}, c, "test", noon)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDied)
		deaths++
		died, _ := latest(0)
		w.publish(file, noon)
		completed, all := latest(died)
		require.True(t, all, "after %d steps", steps)
		w.publish(file, noon)
		again, _ := latest(completed)
		require.Equal(t, completed, again, "after %d steps", steps)
	}
	require.Equal(t, 3, deaths)
}
