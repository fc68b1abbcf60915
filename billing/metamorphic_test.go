package billing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// script is what happened: who used how much when.
type script []struct {
	account string
	at      time.Duration // after the start
	units   int64
}

func newScript(r *rand.Rand, accounts int) script {
	var s script
	for i := range accounts {
		for range 12 {
			s = append(s, struct {
				account string
				at      time.Duration
				units   int64
			}{fmt.Sprintf("acme-%d", i), time.Hour + time.Duration(r.Int64N(int64(30*day))), 1 + r.Int64N(400)})
		}
	}
	slices.SortFunc(s, func(a, b struct {
		account string
		at      time.Duration
		units   int64
	},
	) int {
		return int(a.at - b.at)
	})
	return s
}

// The same admitted units, flushed at other times, in other orders, twice, by other nodes, under crashes of the worker:
// the same invoices. WEIR_CHAOS=1 compares more variants of more accounts, WEIR_SEED repeats a run.
func TestTheSameUnitsGiveTheSameInvoices(t *testing.T) {
	t.Parallel()
	seed, accounts, variants := seeded(t), 3, 3
	if chaos() {
		accounts, variants = 8, 8
	}
	s := newScript(rand.New(rand.NewPCG(seed, 1)), accounts)
	var first []string
	for variant := range variants {
		t.Run(fmt.Sprint(variant), func(t *testing.T) { // one after the other: each is compared with the first
			got := play(t, s, accounts, variant, rand.New(rand.NewPCG(seed, uint64(variant)+2)))
			require.NotEmpty(t, got)
			if variant == 0 {
				first = got
			}
			require.Equal(t, first, got)
		})
	}
}

// play runs a script and returns the metered lines of every finalized invoice.
func play(t *testing.T, s script, accounts, variant int, r *rand.Rand) []string {
	w := newWorld(t, setup{})
	customers := make([]string, accounts)
	for i := range customers {
		customers[i], _ = w.subscribe(fmt.Sprintf("acme-%d", i), "pro_monthly", "usage")
	}
	w.soon()
	nodes := []*node{w.node, w.newNode(), w.newNode()}
	waiting := map[*node]map[int64]bool{}
	flush := func(n *node, all bool) {
		keys := make([]int64, 0, len(waiting[n]))
		for k := range waiting[n] {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if !all && len(keys) > 1 {
			keys = keys[:len(keys)/2]
		}
		b := usage.Batch{Node: n.id, At: w.sim.Now(), Sealed: at("2000-01-01T00:00:00Z")}
		for _, k := range keys {
			b.Keys, b.Upto = append(b.Keys, k), append(b.Upto, n.used[k])
			delete(waiting[n], k)
		}
		for range 1 + variant { // sent again, as after a lost answer
			_, err := usage.Flush(t.Context(), w.db, b)
			require.NoError(t, err)
		}
	}
	for _, o := range s {
		require.NoError(t, w.sim.Advance(t.Context(), start.Add(o.at)))
		n := nodes[0]
		if variant > 0 {
			n = nodes[r.IntN(len(nodes))]
		}
		key := n.keyAt(o.account, w.sim.Now())
		n.used[key] += o.units
		if waiting[n] == nil {
			waiting[n] = map[int64]bool{}
		}
		waiting[n][key] = true
		if variant == 0 || r.IntN(3) == 0 {
			flush(n, variant == 0)
		}
		if r.IntN(4) == 0 {
			m := &months{world: w}
			for range variant {
				ctx, kill := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(60))*time.Millisecond)
				_ = m.tryWork(ctx) // killed somewhere: that is the point
				kill()
				w.patience()
			}
			w.work()
		}
	}
	end := start.AddDate(0, 1, 0)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(5*time.Minute)))
	for _, n := range nodes {
		flush(n, true)
		n.flush()
	}
	w.patience()
	w.work()
	for range 4 {
		require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(30*time.Minute)))
		for _, n := range nodes {
			n.flush()
		}
		w.work()
	}
	var lines []string
	for i, c := range customers {
		for _, inv := range w.sim.Invoices(c) {
			for _, l := range inv.Lines {
				if l.Meter == w.meter && inv.Status != "draft" {
					lines = append(lines, fmt.Sprintf("acme-%d %s – %s: %d", i, l.Start.Format(time.RFC3339), l.End.Format(time.RFC3339), l.Quantity))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}
