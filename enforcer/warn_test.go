package enforcer_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/usage"
)

const warnPlans = `
default_plan: free
upgrade_url: https://example.com/upgrade
features: {events: {}}
plans: {free: {quota: {events: 50}, on_exceeded: block}}
`

// listenTo returns a configuration whose callback passes on what it is told.
func listenTo(t *testing.T) (enforcer.Config, <-chan enforcer.Warning) {
	told := make(chan enforcer.Warning, 10)
	return enforcer.Config{Plans: catalog(t, warnPlans), OnWarning: func(_ context.Context, w enforcer.Warning) { told <- w }}, told
}

func next(t *testing.T, told <-chan enforcer.Warning) enforcer.Warning {
	t.Helper()
	select {
	case w := <-told:
		return w
	case <-time.After(20 * time.Second):
		require.FailNow(t, "nobody told of a warning")
		return enforcer.Warning{}
	}
}

func TestEveryNodeIsToldOfAThresholdOnce(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	var nodes []*enforcer.Enforcer
	var told []<-chan enforcer.Warning
	for range 3 {
		cfg, c := listenTo(t)
		nodes, told = append(nodes, start(t, pool, cfg)), append(told, c)
	}
	for i, e := range nodes {
		for range []int{14, 13, 13}[i] {
			require.True(t, consume(t, e, "acme", "events", 1).Allowed)
		}
		require.NoError(t, e.Flush(t.Context()))
	}
	fold(t, pool)
	for _, c := range told {
		w := next(t, c)
		require.Equal(t, "acme", w.Account)
		require.Equal(t, "events", w.Feature)
		require.Equal(t, "free", w.Plan)
		require.Equal(t, 80, w.Threshold)
		require.EqualValues(t, 50, w.Allowance)
		require.EqualValues(t, 40, w.Used)
		require.False(t, w.BillsOverage)
		require.False(t, w.Shadow)
		require.Equal(t, "https://example.com/upgrade", w.UpgradeURL)
		require.True(t, w.ResetsAt.After(w.At))
	}
	require.True(t, consume(t, nodes[0], "acme", "events", 10).Allowed)
	require.NoError(t, nodes[0].Flush(t.Context()))
	fold(t, pool)
	for _, c := range told {
		require.Equal(t, 100, next(t, c).Threshold, "the next one it is told, nothing in between")
		require.Empty(t, c)
	}

	cfg, late := listenTo(t)
	e := start(t, pool, cfg)
	require.True(t, consume(t, e, "umbrella", "events", 50).Allowed)
	id, err := usage.FindAccount(t.Context(), pool, "umbrella", false, time.Now())
	require.NoError(t, err)
	require.NoError(t, usage.SetShadow(t.Context(), pool, id, true))
	require.NoError(t, e.Flush(t.Context()))
	fold(t, pool)
	w := next(t, late)
	require.Equal(t, "umbrella", w.Account, "what was before a node's time is not told to it")
	require.True(t, w.Shadow)
}

func TestACallbackThatHangsEndsWithTheNode(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	entered := make(chan struct{})
	e := start(t, pool, enforcer.Config{Plans: catalog(t, warnPlans), OnWarning: func(ctx context.Context, _ enforcer.Warning) {
		close(entered)
		<-ctx.Done()
	}})
	require.True(t, consume(t, e, "acme", "events", 50).Allowed)
	require.NoError(t, e.Flush(t.Context()))
	fold(t, pool)
	select {
	case <-entered:
	case <-time.After(20 * time.Second):
		require.FailNow(t, "the callback was not called")
	}
	require.False(t, consume(t, e, "acme", "events", 1).Allowed, "it holds up no call")
	require.NoError(t, e.Stop(t.Context()))
}
