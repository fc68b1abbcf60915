package main

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/weirhq/weir/internal/measure"
)

// featureCount is how many features each account has in the row that spreads the same keys over fewer accounts.
const featureCount = 10

// manyFeatures measures a call for one of as many keys as keys does, of a tenth as many accounts.
func manyFeatures(w *world, o measure.Options) (row, error) {
	features := make([]string, featureCount)
	quotas := make([]string, featureCount)
	for i := range features {
		features[i] = fmt.Sprintf("feature-%02d", i)
		quotas[i] = features[i] + ": unlimited"
	}
	file := fmt.Sprintf("currency: usd\ndefault_plan: free\nfeatures: {%s: {}}\nplans: {free: {quota: {%s}, on_exceeded: block}}\n",
		strings.Join(features, ": {}, "), strings.Join(quotas, ", "))
	names, order := accounts(keyCount / featureCount)
	pool, err := w.database()
	if err != nil {
		return row{}, err
	}
	e, err := w.left(pool, file)
	if err != nil {
		return row{}, err
	}
	if err := seed(w, e, features[0], names); err != nil {
		return row{}, err
	}
	byPair := xsync.NewMap[pair, *atomic.Int64]()
	for _, name := range names {
		for _, f := range features {
			if d, err := e.Consume(w.ctx, name, f, 1); err != nil || !d.Allowed {
				return row{}, fmt.Errorf("%s of %s: %+v: %w", f, name, d, err)
			}
			byPair.Store(pair{name, f}, new(atomic.Int64))
		}
	}
	r, err := measure.Compare(o,
		measure.Work{Name: "weir", Do: eachFeature(order, features, func(account, feature string) {
			if d, err := e.Consume(w.ctx, account, feature, 1); err != nil || !d.Allowed {
				panic("refused")
			}
		})},
		measure.Work{Name: "struct-key map", Do: eachFeature(order, features, func(account, feature string) {
			c, _ := byPair.Load(pair{account, feature})
			c.Add(1)
		})})
	if err != nil {
		return row{}, err
	}
	return compared(fmt.Sprintf("Consume by names, %d accounts with %d features", len(names), featureCount),
		ns(r[0].NS), "struct-key map "+ns(r[1].NS), r[0].Over(r[1]), 0.4, false), nil
}

// eachFeature calls f for the accounts in their order and the features in turns, forever.
func eachFeature(order, features []string, f func(account, feature string)) func(int) {
	at := 0
	return func(n int) {
		for range n {
			f(order[at&(len(order)-1)], features[at%len(features)])
			at++
		}
	}
}
