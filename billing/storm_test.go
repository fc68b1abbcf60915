package billing_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// Everything at once on one account: two nodes count, two workers fold, close, report, reconcile and read, the host
// settles, plans change, units are refunded and added, the account moves between two customers, and Stripe forgets to
// answer. What comes of it is computed from what was admitted and adjusted.
func TestEverythingAtOnceOnOneAccount(t *testing.T) {
	t.Parallel()
	seed, rounds := seeded(t), 12
	if chaos() {
		rounds = 150
	}
	w := newWorld(t, setup{sim: stripesim.Config{Seed: seed}, tune: func(c *billing.ClientConfig) { c.HTTPClient = nil }})
	customers := [2]string{w.customer("acme"), w.customer("")}
	anchor := start.Add(time.Hour).Unix()
	var subs [2]*stripe.Subscription
	for i, c := range customers {
		sub, err := w.api.Subscriptions.New(&stripe.SubscriptionParams{
			Customer: stripe.String(c), BillingCycleAnchor: stripe.Int64(anchor), ProrationBehavior: stripe.String("none"),
			Items: []*stripe.SubscriptionItemsParams{{Price: stripe.String(w.price("pro_monthly"))}, {Price: stripe.String(w.price("usage"))}},
		})
		require.NoError(t, err)
		subs[i] = sub
	}
	w.soon()
	w.advance(start.Add(2*time.Hour), time.Hour)
	s := &storm{world: w, seed: seed, nodes: []*node{w.node, w.newNode()}, workers: []*billing.Biller{w.b, w.biller(w.db)}}
	for range 3 {
		w.sim.Faults().Inject(stripesim.Match{Method: "POST", Path: eventsPath, Skip: int(seed % 7), Count: rounds / 3}, stripesim.DropAnswer())
	}
	key := s.nodes[0].keyAt("acme", w.sim.Now())
	var total int64
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		total += s.round(r, key, customers, subs, round)
		for _, n := range s.nodes {
			n.flush()
		}
		require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(time.Duration(5+r.IntN(20))*time.Minute)))
	}
	w.sim.Faults().Clear()
	w.patience()
	w.work()
	require.EqualValues(t, total, w.number("SELECT free + overage FROM weir.totals WHERE key = $1", key), "counted and adjusted")
	end := time.Unix(anchor, 0).AddDate(0, 1, 0)
	finish := func(to time.Time, step time.Duration) {
		for now := w.sim.Now(); now.Before(to); now = w.sim.Now() {
			require.NoError(t, w.sim.Advance(t.Context(), now.Add(min(step, to.Sub(now)))))
			for _, n := range s.nodes {
				n.flush()
			}
			w.patience()
			w.work()
		}
	}
	finish(end.Add(-time.Hour), 10*day)
	finish(end.Add(3*time.Hour), 10*time.Minute)
	require.NoError(t, w.b.Sweep(t.Context()))
	w.work()
	b := w.book(key)
	require.EqualValues(t, w.number("SELECT overage FROM weir.totals WHERE key = $1", key), b.Overage)
	require.Equal(t, b.Invoiced, w.billed(customers[0])+w.billed(customers[1]), "%+v", b)
	require.Zero(t, b.Pending)
	require.Zero(t, w.number("SELECT count(*) FROM weir.segments s WHERE weir.segment_sum(s.id) < 0"))
	w.reportedOnce()
	for month := range 2 {
		r := w.closeReport(start.AddDate(0, month, 0))
		require.Empty(t, r.Breaks)
	}
}

type storm struct {
	*world
	seed    uint64
	nodes   []*node
	workers []*billing.Biller
}

// round lets everybody do something at the same time, and returns how many units it added to the account.
func (s *storm) round(r *rand.Rand, key int64, customers [2]string, subs [2]*stripe.Subscription, round int) (units int64) {
	ctx, stop := context.WithTimeout(s.Context(), time.Minute)
	defer stop()
	var wg sync.WaitGroup
	do := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil && !s.mayFail(err) {
				s.Errorf("round %d, %s: %v", round, what, err)
			}
		})
	}
	for _, n := range s.nodes {
		used := 1 + r.Int64N(300)
		units += used
		n.used[key] += used
		do("flush", func() error {
			_, err := usage.Flush(ctx, s.db, usage.Batch{Node: n.id, At: s.sim.Now(), Sealed: at("2000-01-01T00:00:00Z"), Keys: []int64{key}, Upto: []int64{n.used[key]}})
			return err
		})
	}
	adjust := make(chan int64, 2)
	for _, n := range []int64{1 + r.Int64N(100), -1 - r.Int64N(150)} {
		do("adjust", func() error {
			_, err := s.b.Adjust(ctx, "acme", "events", s.sim.Now(), n, "tester", "a storm")
			if errors.Is(err, usage.ErrRefund) {
				return nil
			}
			if err == nil {
				adjust <- n
			}
			return err
		})
	}
	for _, b := range s.workers {
		do("work", func() error { return (&months{world: s.world}).tryWorkWith(ctx, b) })
		do("reconcile", func() error { return b.Reconcile(ctx) })
	}
	do("settle", func() error {
		ctx, stop := context.WithTimeout(ctx, 2*time.Second)
		defer stop()
		_, err := s.b.Settle(ctx, "acme")
		return err
	})
	if r.IntN(3) == 0 {
		to := customers[r.IntN(2)]
		do("link", func() error { return s.b.Link(ctx, "acme", to, "tester") })
	}
	if r.IntN(2) == 0 {
		i, price := r.IntN(2), []string{"pro_monthly", "scale_monthly"}[r.IntN(2)]
		do("change", func() error {
			_, err := s.api.Subscriptions.Update(subs[i].ID, &stripe.SubscriptionParams{Items: []*stripe.SubscriptionItemsParams{
				{ID: stripe.String(subs[i].Items.Data[0].ID), Price: stripe.String(s.price(price))},
			}})
			return errors.Join(err, s.workers[1].SyncCustomer(ctx, customers[i], true))
		})
	}
	wg.Wait()
	close(adjust)
	for n := range adjust {
		units += n
	}
	return units
}

// mayFail tells errors that a later pass mends from others. A deadlock is none of them.
func (s *storm) mayFail(err error) bool {
	_, throttled := billing.Throttled(err)
	return throttled || errors.Is(err, context.DeadlineExceeded)
}
