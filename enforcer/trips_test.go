package enforcer_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/schematest"
)

// trips is what nodes have sent to the database, first contacts apart.
func trips(nodes []*enforcer.Enforcer) (sum, contacts int64) {
	for _, e := range nodes {
		s := e.Stats()
		sum += s.Exchanges + s.Flushes
		contacts += s.Contacts
	}
	return sum, contacts
}

// sentBy is what nodes have sent, apart: for leases, and what they counted.
func sentBy(nodes []*enforcer.Enforcer) (exchanges, flushes int64) {
	for _, e := range nodes {
		s := e.Stats()
		exchanges, flushes = exchanges+s.Exchanges, flushes+s.Flushes
	}
	return exchanges, flushes
}

// One hot account on four nodes: under 0.05 round trips per 1,000 admitted units, and a batch a second.
func TestAHotAccountCostsFewRoundTrips(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 1<<40)
	var nodes []*enforcer.Enforcer
	for range 4 {
		nodes = append(nodes, start(t, pool, enforcer.Config{}))
		consume(t, nodes[len(nodes)-1], "acme", "events", 1)
	}
	asked, batches := sentBy(nodes)
	began := time.Now()
	var wg sync.WaitGroup
	const calls = 2_000_000
	for _, e := range nodes {
		wg.Go(func() {
			m := e.Meter("acme", "events")
			for range calls / len(nodes) {
				if !m.Take(1) {
					t.Error("refused")
					return
				}
			}
		})
	}
	wg.Wait()
	askedNow, batchesNow := sentBy(nodes)
	asked, batches = askedNow-asked, batchesNow-batches
	per := float64(asked) / (calls / 1000)
	t.Logf("%d round trips for %d units: %.4f per 1,000; %d batches in %s", asked, calls, per, batches, time.Since(began))
	// Batches come by the clock: one a second and node, however much is spent meanwhile.
	require.LessOrEqual(t, batches, int64(len(nodes))*(int64(time.Since(began)/time.Second)+2))
	require.Less(t, per, 0.05)
}

// Many accounts, each used a little on three nodes for a while: under 2 round trips per 1,000 admitted units.
func TestManyAccountsCostFewRoundTrips(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	publish(t, pool, 10_000)
	accounts := long(500, 10_000)
	var nodes []*enforcer.Enforcer
	for range 3 {
		nodes = append(nodes, start(t, pool, enforcer.Config{}))
	}
	var wg sync.WaitGroup
	touch := func() {
		for _, e := range nodes {
			for lane := range 4 {
				wg.Go(func() {
					for i := lane; i < accounts; i += 4 {
						consume(t, e, fmt.Sprint("acme-", i), "events", 1)
					}
				})
			}
		}
		wg.Wait()
	}
	touch() // first contacts
	touch() // on a slow machine they outlast the time after which an idle lease goes back
	before, contacts := trips(nodes)
	began := time.Now()
	units := make([]int64, len(nodes))
	for n, e := range nodes {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			for range accounts * 250 { // 7.5 % of every account's quota over the three nodes
				d, err := e.Consume(t.Context(), fmt.Sprint("acme-", rng.IntN(accounts)), "events", 1)
				if err != nil || !d.Allowed {
					t.Errorf("%+v %v", d, err)
					return
				}
				units[n]++
			}
		})
	}
	wg.Wait()
	after, _ := trips(nodes)
	total := units[0] + units[1] + units[2]
	per := float64(after-before) / (float64(total) / 1000)
	t.Logf("%d accounts on 3 nodes: %d first contacts; then %d round trips for %d units in %s: %.3f per 1,000",
		accounts, contacts, after-before, total, time.Since(began).Round(time.Millisecond), per)
	require.Less(t, per, 2.0)
}
