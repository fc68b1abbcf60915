package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// A batch that its node had given up for lost is stored after the next one: what that one holds stays held.
func TestALateBatchDropsNoHold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n, key := w.node(), w.key("acme", "events", noon).Key
	flush := func(sealed time.Time, held ...int64) int64 {
		_, err := usage.Flush(t.Context(), w.db, usage.Batch{Node: n, At: sealed, Sealed: sealed, Held: held})
		require.NoError(t, err)
		return w.number("SELECT count(*) FROM weir.held WHERE node = $1 AND key = $2", n, key)
	}
	require.EqualValues(t, 1, flush(noon.Add(time.Second), key))
	require.EqualValues(t, 1, flush(noon), "it was sent before")
	require.EqualValues(t, 1, flush(noon.Add(time.Second), key))
	require.Zero(t, flush(noon.Add(2*time.Second)))
	require.Zero(t, flush(noon.Add(time.Second), key), "and brings none back")
}
