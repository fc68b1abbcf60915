package enforcer_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

// A meter that is made before Start, or before a plan knows its feature, works from then on, as calls by names do.
func TestAMeterMayBeMadeBeforeItsNamesAreKnown(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e, err := enforcer.New(pool, &enforcer.Config{Plans: catalog(t, testPlans), NoJournal: true, MaxWait: 5 * time.Second})
	require.NoError(t, err)
	early, later, wrong := e.Meter("acme", "events"), e.Meter("acme", "later"), e.Meter(" ", "events")
	_, err = early.Consume(t.Context(), 1)
	require.ErrorIs(t, err, enforcer.ErrUnavailable)
	require.False(t, early.Take(1))

	require.NoError(t, e.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, e.Stop(context.Background())) })
	require.True(t, early.Take(2))
	d, err := early.Consume(t.Context(), 1)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Used)
	require.True(t, e.Meter("acme", "events").Take(1))
	d, err = early.Consume(t.Context(), 0)
	require.NoError(t, err)
	require.EqualValues(t, 4, d.Used)
	_, err = wrong.Consume(t.Context(), 1)
	require.ErrorIs(t, err, enforcer.ErrInvalidAccount)
	_, err = early.Consume(t.Context(), -1)
	require.ErrorIs(t, err, enforcer.ErrInvalidUnits)
	_, err = later.Consume(t.Context(), 1)
	require.ErrorIs(t, err, enforcer.ErrUnknownFeature)

	_, _, err = usage.Publish(t.Context(), pool, catalog(t, strings.Replace(testPlans, "features:\n", "features:\n  later: {}\n", 1)), "test", time.Now())
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := later.Consume(t.Context(), 1)
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
}
