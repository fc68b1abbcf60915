package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
)

// tripCount is how many accounts the section trips uses.
var tripCount = 10_000

const tripFile = `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 10_000}, on_exceeded: block}}
`

// trips counts the round trips of three nodes that use 7.5 % of many accounts' quotas, call by call, at random.
func trips(w *world, _ measure.Options) ([]row, error) {
	const each = 250 // units of an account on a node
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	var nodes []*enforcer.Enforcer
	for range 3 {
		e, err := w.node(db, tripFile)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, e)
	}
	for range 2 { // first contacts; on a slow machine they outlast the time after which an idle lease goes back
		if err := onEach(nodes, 64, func(e *enforcer.Enforcer, lane int) error {
			for i := lane; i < tripCount; i += 64 {
				if err := admitted(w.ctx, e, i); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	sent := func() (n int64) {
		for _, e := range nodes {
			s := e.Stats()
			n += s.Exchanges + s.Flushes
		}
		return n
	}
	before := sent()
	if err := onEach(nodes, 1, func(e *enforcer.Enforcer, _ int) error {
		rng := rand.New(rand.NewPCG(uint64(e.Stats().Node), 1))
		for range tripCount * each {
			if err := admitted(w.ctx, e, rng.IntN(tripCount)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	per := float64(sent()-before) / (float64(len(nodes)*tripCount*each) / 1000)
	return []row{absolute(fmt.Sprintf("%d accounts × 3 nodes: round trips per 1,000 units, first contacts apart", tripCount), per, 2, "", false)}, nil
}

func admitted(ctx context.Context, e *enforcer.Enforcer, i int) error {
	d, err := e.Consume(ctx, fmt.Sprint("account ", i), "events", 1)
	if err == nil && !d.Allowed {
		err = d.Err()
	}
	return err
}

// onEach runs some goroutines on each node and returns their errors.
func onEach(nodes []*enforcer.Enforcer, lanes int, do func(e *enforcer.Enforcer, lane int) error) error {
	var all sync.WaitGroup
	failures := make(chan error, len(nodes)*lanes)
	for _, e := range nodes {
		for lane := range lanes {
			all.Go(func() {
				if err := do(e, lane); err != nil {
					failures <- err
				}
			})
		}
	}
	all.Wait()
	close(failures)
	return errors.Join(collect(failures)...)
}
