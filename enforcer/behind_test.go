package enforcer

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// Rows that were read before a change, and arrive after this node has applied it, must not stay.
func TestWhatWasReadBeforeAChangeIsReadAgain(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := startHere(t, pool, strings.ReplaceAll(idlePlans, "100_000", "1_000"))
	for _, known := range []bool{false, true} { // a first contact, and a load of the next period beside it
		name := map[bool]string{false: "new", true: "known"}[known]
		if known {
			_, err := e.Consume(t.Context(), name, "events", 1)
			require.NoError(t, err)
		}
		a := e.accountOf(name)
		read, err := e.contacts.fetch([]*loading{{account: a, feature: "events"}})
		require.NoError(t, err)
		old := read[name]

		negotiated := int64(5_000)
		require.NoError(t, usage.SetOverride(t.Context(), pool, old[0].AccountID, "events",
			usage.Override{Included: &negotiated, Reason: "test", Actor: "test"}, e.clock.time()))
		latest, _, err := usage.Changes(t.Context(), pool, 0)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return e.applied.Load() >= latest }, 20*time.Second, time.Millisecond)

		a.mu.Lock()
		err = e.adoptKeys(a, old)
		a.mu.Unlock()
		require.NoError(t, err)
		require.Eventually(t, func() bool { return a.at(0).cur.Load().view.Load().limit == negotiated }, 5*time.Second, time.Millisecond, name)
	}
}
