package prom_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/enforcer/prom"
)

type fixed enforcer.Stats

func (f fixed) Stats() enforcer.Stats { return enforcer.Stats(f) }

var _ prom.Source = (*enforcer.Enforcer)(nil)

func TestCountsAreShownWithoutLabels(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(prom.New(fixed{
		Exchanges: 3, Contacts: 4, Flushes: 5, Recalls: 6, Refused: 7, Unavailable: 8, Timeouts: 9, Filled: 10, Overruns: 11, Expired: 12,
		Failovers: 13, ListenerLost: 14, Reserved: 15, Nodes: 16, Counters: 17, Accounts: 18, HeapCounters: 19, Away: true,
	})))
	families, err := registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		require.Len(t, f.GetMetric(), 1)
		require.Empty(t, f.GetMetric()[0].GetLabel(), f.GetName())
		m := f.GetMetric()[0]
		got[strings.TrimPrefix(f.GetName(), "weir_enforcer_")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	require.Equal(t, map[string]float64{
		"exchanges_total": 3, "contacts_total": 4, "flushes_total": 5, "recalls_total": 6, "refused_total": 7, "unavailable_total": 8,
		"timeouts_total": 9, "filled_units_total": 10, "overrun_units_total": 11, "expired_reservations_total": 12, "failovers_total": 13,
		"listener_lost_total": 14, "reservations": 15, "nodes": 16, "counters": 17, "accounts": 18, "heap_counters": 19, "database_away": 1,
	}, got)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	require.Empty(t, problems)
}
