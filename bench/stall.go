package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/measure"
)

// stall measures the tail of calls inside a lease, before and while the database answers nothing at all.
func stall(w *world, o measure.Options) ([]row, error) {
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	e, err := w.node(db, planFile)
	if err != nil {
		return nil, err
	}
	m := e.Meter("acme", "events")
	if d, err := m.Consume(w.ctx, 1); err != nil || !d.Allowed {
		return nil, fmt.Errorf("the first contact was answered %+v: %w", d, err)
	}
	p99 := func() (float64, error) {
		r, err := measure.Compare(measure.Options{Rounds: 500, Slices: 1, Slice: 100 * time.Microsecond, Patience: o.Patience}, measure.Work{Name: "take", Do: func(n int) {
			for range n {
				if !m.Take(1) {
					panic("a call inside the lease was refused")
				}
			}
		}})
		if err != nil {
			return 0, err
		}
		slices.Sort(r[0].Rounds)
		return r[0].Rounds[len(r[0].Rounds)*99/100], nil
	}
	var befores, durings, ratios []float64
	for range o.Rounds {
		before, err := p99()
		if err != nil {
			return nil, err
		}
		if err := w.server.Pause(); err != nil {
			return nil, err
		}
		during, err := p99()
		if resumed := w.server.Resume(); err == nil {
			err = resumed
		}
		if err != nil {
			return nil, err
		}
		befores, durings, ratios = append(befores, before), append(durings, during), append(ratios, during/before)
	}
	return []row{compared("p99 of calls inside a lease while the database stalls", ns(measure.Median(durings)), "before "+ns(measure.Median(befores)), measure.Median(ratios), 1.2, false)}, nil
}
