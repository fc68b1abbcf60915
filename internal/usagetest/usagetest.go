// Package usagetest counts in a database as an enforcer does that sends everything at once, for tests of what reads the
// counts.
package usagetest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// Node counts. It is for one goroutine.
type Node struct {
	ID int64 // in weir.nodes

	t      testing.TB
	db     *pgxpool.Pool
	change int64           // the newest plan change that it has applied
	used   map[int64]int64 // by key, cumulative
}

// Register makes a live node.
func Register(t testing.TB, db *pgxpool.Pool, name string, at time.Time) *Node {
	t.Helper()
	n, err := usage.Register(t.Context(), db, name, "test", at)
	require.NoError(t, err)
	return &Node{ID: n.ID, t: t, db: db, change: n.Change, used: map[int64]int64{}}
}

// Change is the newest plan change that the node has applied.
func (n *Node) Change() int64 { return n.change }

// Key is the key of an account's feature in the period that holds an instant. An account that is new is made.
func (n *Node) Key(account, feature string, at time.Time) int64 {
	n.t.Helper()
	keys, err := usage.Contact(n.t.Context(), n.db, usage.ContactRequest{Node: n.ID, Account: account, At: at, Feature: "nothing"})
	require.NoError(n.t, err)
	for _, k := range keys {
		if k.Feature == feature && !at.Before(k.Starts) && at.Before(k.Ends) {
			return k.Key
		}
	}
	require.FailNow(n.t, "no key", "%s of account %s at %s", feature, account, at)
	return 0
}

// Count counts units of a key, whatever its ceiling, and sends nothing.
func (n *Node) Count(key, units int64) { n.used[key] += units }

// Used is what the node has counted, by key and cumulative.
func (n *Node) Used() map[int64]int64 { return n.used }

// Use counts units, whatever the ceiling, and sends them.
func (n *Node) Use(account, feature string, units int64, at time.Time) (key int64) {
	n.t.Helper()
	key = n.Key(account, feature, at)
	n.Count(key, units)
	n.Flush(at, key)
	return key
}

// Flush sends what the node has counted of some keys, and its mark: everything before now is sealed.
func (n *Node) Flush(now time.Time, keys ...int64) {
	n.t.Helper()
	n.Send(usage.Batch{At: now, Sealed: now}, keys...)
}

// Send is Flush of any batch: the node, the plan changes that it knows and the keys are filled in.
func (n *Node) Send(b usage.Batch, keys ...int64) {
	n.t.Helper()
	latest, _, err := usage.Changes(n.t.Context(), n.db, n.change)
	require.NoError(n.t, err)
	b.Node, b.Applied = n.ID, latest
	for _, k := range keys {
		b.Keys, b.Upto = append(b.Keys, k), append(b.Upto, n.used[k])
	}
	_, err = usage.Flush(n.t.Context(), n.db, b)
	require.NoError(n.t, err)
	n.change = latest
}

// Fold folds until nothing is left.
func Fold(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	for {
		n, err := usage.Fold(t.Context(), db, 5000)
		require.NoError(t, err)
		if n == 0 {
			return
		}
	}
}

// Publish makes the text of a plan file the newest catalog.
func Publish(t testing.TB, db *pgxpool.Pool, file string, at time.Time) *plans.Catalog {
	t.Helper()
	c, err := plans.Parse([]byte(file))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), db, c, "test", at)
	require.NoError(t, err)
	return c
}
