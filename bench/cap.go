package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/measure"
)

// answered is a call that met the cap's neighbourhood: when it began, when its answer was there, and what it was.
type answered struct {
	began, ended time.Duration
	units        int64
	allowed      bool
}

// nearTheCap lets four nodes, eight callers each, fill a cap with calls of 1 to 50 units and one caller of 4,000, and
// looks in the log of every call for units that were refused although as many were admitted later.
func nearTheCap(w *world, o measure.Options) ([]row, error) {
	const ceiling = 100_000
	db, err := w.database()
	if err != nil {
		return nil, err
	}
	var nodes []*enforcer.Enforcer
	for range 4 {
		e, err := w.node(db, recallFile)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, e)
	}
	var wrong, beyond int64
	for round := range o.Rounds {
		log, err := fill(w, nodes, fmt.Sprint("cap ", round))
		if err != nil {
			return nil, err
		}
		var sum int64
		for _, a := range log {
			if a.allowed {
				sum += a.units
			}
		}
		if sum < ceiling {
			return nil, fmt.Errorf("round %d: %d of %d units were admitted", round, sum, ceiling)
		}
		beyond += sum - ceiling
		wrong += falseRefusals(log)
	}
	name := fmt.Sprintf("near the cap, big and small calls, %d rounds", o.Rounds)
	return []row{
		absolute(name+": false refusals", float64(wrong), 0, "", false),
		absolute(name+": units beyond the cap", float64(beyond), 0, "", false),
	}, nil
}

// fill uses an account up: each caller goes on with single units once more is refused.
func fill(w *world, nodes []*enforcer.Enforcer, account string) ([]answered, error) {
	began := time.Now()
	var mu sync.Mutex
	var log []answered
	err := onEach(nodes, 8, func(e *enforcer.Enforcer, lane int) error {
		most := int64(50)
		if lane == 0 && e == nodes[0] {
			most = 4000
		}
		var mine []answered
		for {
			n := most
			if most < 4000 {
				n = 1 + rand.Int64N(most)
			}
			a := answered{began: time.Since(began), units: n}
			d, err := e.Consume(w.ctx, account, "events", n)
			if err != nil {
				return err
			}
			a.ended, a.allowed = time.Since(began), d.Allowed
			if !d.Allowed && d.Reason != enforcer.QuotaExceeded {
				return fmt.Errorf("%s was answered %s", account, d.Reason)
			}
			mine = append(mine, a)
			if !d.Allowed && n == 1 {
				mu.Lock()
				log = append(log, mine...)
				mu.Unlock()
				return nil
			}
			if !d.Allowed {
				most = 1
			}
		}
	})
	return log, err
}

// falseRefusals counts refused calls after whose answer calls began that were admitted as many units or more.
func falseRefusals(log []answered) (n int64) {
	slices.SortFunc(log, func(a, b answered) int { return cmp.Compare(a.began, b.began) })
	after := make([]int64, len(log)+1) // units admitted of calls from here on
	for i := len(log) - 1; i >= 0; i-- {
		after[i] = after[i+1]
		if log[i].allowed {
			after[i] += log[i].units
		}
	}
	for _, a := range log {
		if a.allowed {
			continue
		}
		i, _ := slices.BinarySearchFunc(log, a.ended, func(x answered, t time.Duration) int { return cmp.Compare(x.began, t+1) })
		if after[i] >= a.units {
			n++
		}
	}
	return n
}
