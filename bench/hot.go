package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
)

// hot measures the calls that a lease answers against bare atomics.
func hot(w *world, o measure.Options) ([]row, error) {
	pool, err := w.database()
	if err != nil {
		return nil, err
	}
	e, err := w.node(pool, planFile)
	if err != nil {
		return nil, err
	}
	works, err := hotWorks(w.ctx, e)
	if err != nil {
		return nil, err
	}
	r, err := measure.Compare(o, works...)
	if err != nil {
		return nil, err
	}
	add, cas := r[0], r[1]
	rows := []row{
		compared("CAS loop (floor of Take)", ns(cas.NS), "atomic add "+ns(add.NS), cas.Over(add), 0, false),
		compared("Take", ns(r[2].NS), "atomic add "+ns(add.NS), r[2].Over(add), 1.25, false),
		compared("Take", ns(r[2].NS), "CAS loop "+ns(cas.NS), r[2].Over(cas), 1.25, false),
		compared("Take, refused", ns(r[3].NS), "atomic add "+ns(add.NS), r[3].Over(add), 0.5, false),
		compared("Consume through a Meter", ns(r[4].NS), "atomic add "+ns(add.NS), r[4].Over(add), 3, false),
		compared("Consume by names, hot", ns(r[5].NS), "atomic add "+ns(add.NS), r[5].Over(add), 4.5, false),
	}
	rows[0].target = ""
	two, err := measure.Compare(o, works[2], two(works[2]), works[0], two(works[0]), works[1], two(works[1]))
	if err != nil {
		return nil, err
	}
	for i, name := range []string{"Take, one hot key, 2 cores", "atomic add, one word, 2 cores", "CAS loop, one word, 2 cores"} {
		one, both := two[2*i], two[2*i+1]
		x := compared(name, fmt.Sprintf("%.1f M/s", both.PerSecond(2)/1e6), fmt.Sprintf("1 core %.1f M/s", one.PerSecond(1)/1e6), 2/both.Over(one), 1.7, true)
		if i > 0 {
			x.target = ""
		}
		rows = append(rows, x)
	}
	return rows, nil
}

func two(w measure.Work) measure.Work {
	w.Cores = 2
	return w
}

func ns(v float64) string { return fmt.Sprintf("%.1f ns", v) }

func hotWorks(ctx context.Context, e *enforcer.Enforcer) ([]measure.Work, error) {
	m, spent := e.Meter("acme", "events"), e.Meter("acme", "tokens")
	if d, err := m.Consume(ctx, 1); err != nil || !d.Allowed {
		return nil, fmt.Errorf("the first contact was answered %+v: %w", d, err)
	}
	for spent.Take(1) {
	}
	var word, swapped atomic.Uint64
	return []measure.Work{
		{Name: "atomic add", Do: func(n int) {
			for range n {
				word.Add(1)
			}
		}},
		{Name: "CAS loop", Do: func(n int) {
			for range n {
				for w := swapped.Load(); !swapped.CompareAndSwap(w, w+1); w = swapped.Load() {
				}
			}
		}},
		{Name: "Take", Do: func(n int) {
			for range n {
				if !m.Take(1) {
					panic("refused")
				}
			}
		}},
		{Name: "Take, refused", Do: func(n int) {
			for range n {
				if spent.Take(1) {
					panic("admitted")
				}
			}
		}},
		{Name: "Consume, meter", Do: func(n int) {
			for range n {
				if d, err := m.Consume(ctx, 1); err != nil || !d.Allowed {
					panic("refused")
				}
			}
		}},
		{Name: "Consume, names", Do: func(n int) {
			for range n {
				if d, err := e.Consume(ctx, "acme", "events", 1); err != nil || !d.Allowed {
					panic("refused")
				}
			}
		}},
	}, nil
}
