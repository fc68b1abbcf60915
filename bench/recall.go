package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
)

const recallFile = `
currency: usd
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 100_000}, on_exceeded: block}}
`

// recalls measures the calls at an account's end that have to wait until other nodes give back what they hold. Each of
// four nodes takes a lease; then one of them uses the account up, 100 units a call.
func recalls(w *world, o measure.Options) ([]row, error) {
	const accounts, nodes = 120, 4
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	var all []*enforcer.Enforcer
	for range nodes {
		e, err := w.node(db, recallFile)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	var took []time.Duration
	for i := range accounts * o.Rounds / 5 {
		account := fmt.Sprint("recalled ", i)
		for _, e := range all {
			if d, err := e.Consume(w.ctx, account, "events", 100); err != nil || !d.Allowed {
				return nil, fmt.Errorf("%s was answered %+v: %w", account, d, err)
			}
		}
		t, used, err := useUpTimed(w.ctx, all, account)
		if err != nil {
			return nil, err
		}
		if used+nodes*100 != 100_000 {
			return nil, fmt.Errorf("%s: %d units of 100,000 were admitted", account, used+nodes*100)
		}
		took = append(took, t...)
	}
	if len(took) < 100 {
		return nil, fmt.Errorf("only %d calls needed a recall", len(took))
	}
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	name := fmt.Sprintf("recalled call, end of one account, 4 nodes: p99 of %d (median %.1f ms)", len(took), ms(p50))
	return []row{absolute(name, ms(p99), 25, "ms", false)}, nil
}

// useUpTimed spends an account on the first node and returns how long those calls took during which other nodes were
// called back.
func useUpTimed(ctx context.Context, nodes []*enforcer.Enforcer, account string) (took []time.Duration, used int64, err error) {
	called := func() (n int64) {
		for _, e := range nodes[1:] {
			n += e.Stats().Recalls
		}
		return n
	}
	before := called()
	for {
		began := time.Now()
		d, err := nodes[0].Consume(ctx, account, "events", 100)
		t := time.Since(began)
		if err != nil {
			return nil, 0, err
		}
		if t > 100*time.Microsecond { // it met the database
			if now := called(); now > before {
				before = now
				took = append(took, t)
			}
		}
		switch {
		case d.Allowed:
			used += 100
		case d.Reason == enforcer.QuotaExceeded:
			return took, used, nil
		default:
			return nil, 0, fmt.Errorf("%s was answered %s", account, d.Reason)
		}
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
