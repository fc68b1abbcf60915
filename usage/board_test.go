package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

func TestPressingAccountsAreFoundAndForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	read := func(at time.Time) usage.Pressure {
		p, err := usage.ReadPressure(t.Context(), w.db, at, 20)
		require.NoError(t, err)
		return p
	}
	pass := func(at time.Time) {
		looked, err := usage.RefreshPressing(t.Context(), w.db, at, 0)
		require.NoError(t, err)
		require.True(t, looked)
	}
	require.True(t, read(noon).AsOf.IsZero(), "nobody has looked yet")
	for account, units := range map[string]int64{"calm": 79, "near": 80, "full": 100, "over": 103} {
		w.flush(n, noon, w.key(account, "events", noon).Key, units)
	}
	w.fold()
	pass(noon)
	p := read(noon)
	require.Equal(t, noon, p.AsOf.UTC())
	require.EqualValues(t, 3, p.Near)
	require.EqualValues(t, 2, p.Over)
	names := func(p usage.Pressure) (out []string) {
		for _, x := range p.Worst {
			out = append(out, fmt.Sprint(x.Account, " ", x.Used, "/", x.Most))
		}
		return out
	}
	require.Equal(t, []string{"over 103/100", "full 100/100", "near 80/100"}, names(p))

	// What is still in the inbox counts; a correction relieves; a period that is over is forgotten.
	w.flush(n, noon, w.key("near", "events", noon).Key, 90)
	require.Equal(t, "near 90/100", names(read(noon))[2])
	w.fold()
	w.exec("SELECT weir.adjust($1, -60, 'r', 'a', $2)", w.key("full", "events", noon).Key, noon)
	require.Equal(t, []string{"over 103/100", "near 90/100"}, names(read(noon)), "as it is now")
	pass(noon)
	require.EqualValues(t, 2, read(noon).Near)
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	require.Empty(t, read(april).Worst)
	pass(april)
	require.Zero(t, read(april).Near)

	looked, err := usage.RefreshPressing(t.Context(), w.db, april, time.Hour)
	require.NoError(t, err)
	require.False(t, looked, "somebody has looked just now")
}

func TestThePaceIsOfWholeMinutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon).Key
	upto := int64(0)
	for i, units := range []int64{5, 7, 0, 11, 2} {
		upto += units
		w.flush(n, noon.Add(time.Duration(i)*30*time.Second), k, upto)
		w.fold()
	}
	now := noon.Add(2*time.Minute + 10*time.Second)
	all, err := usage.ReadPace(t.Context(), w.db, now, 5)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "events", all[0].Feature)
	require.Equal(t, []int64{0, 12, 11}, all[0].Units[usage.PaceMinutes-3:], "the minute that runs is left out")
	require.EqualValues(t, 11, all[0].Last())
	require.EqualValues(t, 23, all[0].Hour())
	all, err = usage.ReadPace(t.Context(), w.db, now.Add(2*time.Hour), 5)
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = usage.RefreshPressing(t.Context(), w.db, noon.AddDate(0, 0, 3), 0)
	require.NoError(t, err)
	require.Empty(t, numbers(w, w.db, "SELECT 1::bigint FROM weir.pace"), "kept for two days")
}

func TestANodesSheet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.node()
	k := w.key("acme", "events", noon)
	w.ask(n, call(k, 0, 10))
	w.flush(n, noon, k.Key, 4)
	w.fold()
	s, err := usage.ReadNode(t.Context(), w.db, n, noon.Add(time.Hour), 100)
	require.NoError(t, err)
	require.Equal(t, "live", s.State)
	require.EqualValues(t, 1, s.Leases)
	require.Equal(t, time.Hour, s.Behind)
	require.Zero(t, s.Holds)
	require.False(t, s.Lost(2*time.Minute))
	leases, err := usage.NodeLeases(t.Context(), w.db, n, noon, 10)
	require.NoError(t, err)
	require.Len(t, leases, 1)
	require.Equal(t, "acme", leases[0].Account)
	require.EqualValues(t, 4, leases[0].Used)
	april := time.Date(2026, 4, 1, 1, 0, 0, 0, time.UTC)
	s, err = usage.ReadNode(t.Context(), w.db, n, april, 100)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Holds, "March waits for its mark")
	leases, err = usage.NodeLeases(t.Context(), w.db, n, april, 10)
	require.NoError(t, err)
	require.Empty(t, leases)
	_, err = usage.ReadNode(t.Context(), w.db, 12345, noon, 1)
	require.ErrorIs(t, err, usage.ErrNotFound)
	_, err = usage.ReadNode(t.Context(), w.db, -1, noon, 1)
	require.ErrorIs(t, err, usage.ErrNotFound, "not one of the database's own")
}
