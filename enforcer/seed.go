//go:build weirbench

package enforcer

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/usage"
)

// Seed makes an enforcer know accounts as if each had been met: from one first contact that the database answered, with
// other names and keys. For measurements of what a node keeps of many accounts. The database does not know these, so
// everything that the enforcer does beside its callers ends first: nothing is flushed, and the clock stands.
func (e *Enforcer) Seed(ctx context.Context, model, feature string, names []string, lease int64) error {
	if d, err := e.Consume(ctx, model, feature, 1); err != nil || !d.Allowed {
		return fmt.Errorf("seed: the model account was answered %+v: %w", d, err)
	}
	known, ok := e.accounts.Load(model)
	if !ok {
		return fmt.Errorf("seed: the model account %q is not kept", model)
	}
	rows, err := usage.Load(ctx, e.db, e.node, []int64{known.loadedID()}, e.clock.time())
	if err != nil {
		return err
	}
	e.drain()
	next := int64(1) << 40 // beyond what the database has given out
	for _, name := range names {
		keys := append([]usage.Key(nil), rows...)
		next++
		for i := range keys {
			k := &keys[i]
			next++
			k.AccountID, k.Account, k.Key, k.Own, k.Ver, k.Lim, k.Tight = next>>4, name, next, 0, 1, lease, false
			if k.Starts.After(e.clock.time()) { // the next period's
				k.Ver, k.Lim = 0, 0
			}
		}
		a := e.accountOf(name)
		a.mu.Lock()
		err := e.adoptKeys(a, keys)
		a.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}
