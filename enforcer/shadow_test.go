package enforcer_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

const shadowPlans = `
default_plan: free
features: {events: {}, jobs: {}}
plans:
  free:
    rate: {limit: 2, window: 24h}
    quota: {events: 5, jobs: {included: 5, enforce: strict}}
    on_exceeded: block
`

// Shadow mode refuses neither by quota nor by rate, says what it would have refused, and ends at once: by the plan, and
// by the account's own flag.
func TestShadowModeRefusesNothing(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]bool{"by account": false, "by plan": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := schematest.Pool(t)
			e := start(t, pool, enforcer.Config{Plans: catalog(t, shadowPlans)})
			ask := func() (all [4]enforcer.Decision) {
				var err error
				for i, call := range []func() (enforcer.Decision, error){
					func() (enforcer.Decision, error) { return e.Consume(t.Context(), "acme", "events", 6) },
					func() (enforcer.Decision, error) { return e.Consume(t.Context(), "acme", "jobs", 6) },
					func() (enforcer.Decision, error) { return e.ConsumeOnce(t.Context(), "acme", "events", 6, "once") },
					func() (enforcer.Decision, error) { return e.Allow(t.Context(), "acme", "") },
				} {
					all[i], err = call()
					require.NoError(t, err)
				}
				return all
			}
			for range 2 {
				d, err := e.Allow(t.Context(), "acme", "")
				require.NoError(t, err)
				require.True(t, d.Allowed)
			}
			turn := func(on bool) {
				if plan {
					file := shadowPlans
					if on {
						file = "shadow: true" + file
					}
					_, _, err := usage.Publish(t.Context(), pool, catalog(t, file), "test", time.Now())
					require.NoError(t, err)
				} else {
					id, err := usage.FindAccount(t.Context(), pool, "acme", false, time.Now())
					require.NoError(t, err)
					require.NoError(t, usage.SetShadow(t.Context(), pool, id, on))
				}
				require.Eventually(t, func() bool {
					d, err := e.Allow(t.Context(), "acme", "")
					return err == nil && d.Allowed == on
				}, 20*time.Second, 10*time.Millisecond)
			}
			for _, on := range []bool{true, false} {
				turn(on)
				for i, d := range ask() {
					require.Equal(t, on, d.Allowed, "call %d: %+v", i, d)
					require.NotEqual(t, enforcer.OK, d.Reason, "call %d", i)
				}
			}
		})
	}
}

// A node whose first call for an account carries an idempotency key knows of its shadow mode too.
func TestShadowModeHoldsForANodesFirstCall(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	e := start(t, pool, enforcer.Config{Plans: catalog(t, "shadow: true"+shadowPlans)})
	for _, key := range []string{"first", "second"} {
		d, err := e.ConsumeOnce(t.Context(), "acme", "events", 6, key)
		require.NoError(t, err)
		require.True(t, d.Allowed, "%+v", d)
		require.Equal(t, enforcer.QuotaExceeded, d.Reason)
	}
}
