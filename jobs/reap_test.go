package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
)

// leased registers a node that holds a lease on an account's events, and has used some of it.
func leased(t *testing.T, db *pgxpool.Pool, name string, used int64) (node, key int64) {
	t.Helper()
	now := time.Now()
	n, err := usage.Register(t.Context(), db, name, "test", now)
	require.NoError(t, err)
	keys, err := usage.Contact(t.Context(), db, usage.ContactRequest{Node: n.ID, Account: name, At: now, Feature: "events", Units: used, Want: used + 20})
	require.NoError(t, err)
	_, err = usage.Flush(t.Context(), db, usage.Batch{Node: n.ID, Keys: []int64{keys[0].Key}, Upto: []int64{used}, At: now, Sealed: now, Applied: n.Change})
	require.NoError(t, err)
	return n.ID, keys[0].Key
}

func granted(t *testing.T, db *pgxpool.Pool, key int64) (n int64) {
	t.Helper()
	require.NoError(t, db.QueryRow(t.Context(), "SELECT granted FROM weir.quotas WHERE key = $1", key).Scan(&n))
	return n
}

// The loop itself, over real time and the shortest lease time there may be: of two nodes the one that is silent loses
// what it had not used; the other, whose heartbeat goes on, loses nothing.
func TestTheWorkerReapsASilentNode(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	_, err := db.Exec(t.Context(), "UPDATE weir.installation SET lease_time = '10 s'")
	require.NoError(t, err)
	silent, silentKey := leased(t, db, "silent", 7)
	alive, aliveKey := leased(t, db, "alive", 9)
	held := granted(t, db, aliveKey)
	require.Greater(t, granted(t, db, silentKey), int64(7), "it holds more than it has used")
	start(t, newWorker(t, db))
	began := time.Now()
	require.Eventually(t, func() bool {
		now := time.Now()
		if _, err := usage.Flush(t.Context(), db, usage.Batch{Node: alive, At: now, Sealed: now}); err != nil {
			return false
		}
		state, err := usage.NodeState(t.Context(), db, silent)
		return err == nil && state == "reaped"
	}, time.Minute, 200*time.Millisecond)
	require.Greater(t, time.Since(began), 9*time.Second, "not before it was watched standing still for the lease time")
	require.EqualValues(t, 7, granted(t, db, silentKey), "what it had not used is back, what it had used stays")
	state, err := usage.NodeState(t.Context(), db, alive)
	require.NoError(t, err)
	require.Equal(t, "live", state)
	require.Equal(t, held, granted(t, db, aliveKey))
}

// A node that hangs in an open transaction can't be reaped; the next silent one is.
func TestAHangingNodeKeepsNoOtherFromBeingReaped(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	_, err := db.Exec(t.Context(), "UPDATE weir.installation SET lease_time = '10 s'")
	require.NoError(t, err)
	hanging, _ := leased(t, db, "hanging", 7)
	silent, key := leased(t, db, "silent", 9)
	require.Less(t, hanging, silent)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT weir.node_gate($1, false)", hanging)
	require.NoError(t, err)
	start(t, newWorker(t, db))
	require.Eventually(t, func() bool {
		state, err := usage.NodeState(t.Context(), db, silent)
		return err == nil && state == "reaped"
	}, time.Minute, 200*time.Millisecond)
	require.EqualValues(t, 9, granted(t, db, key))
}

// A reaping that hangs in its middle is tried again and again; a node that falls silent meanwhile is reaped all the same.
func TestAHangingReapingKeepsNoWatchFromItsEnd(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	_, err := db.Exec(t.Context(), "UPDATE weir.installation SET lease_time = '10 s'")
	require.NoError(t, err)
	hanging, hangingKey := leased(t, db, "hanging", 7)
	tx, err := db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "SELECT FROM weir.quotas WHERE key = $1 FOR UPDATE", hangingKey)
	require.NoError(t, err)
	start(t, newWorker(t, db))
	is := func(node int64, want string) func() bool {
		return func() bool {
			state, err := usage.NodeState(t.Context(), db, node)
			return err == nil && state == want
		}
	}
	require.Eventually(t, is(hanging, "reaping"), time.Minute, 200*time.Millisecond)
	silent, key := leased(t, db, "silent", 9)
	require.Eventually(t, is(silent, "reaped"), time.Minute, 200*time.Millisecond)
	require.EqualValues(t, 9, granted(t, db, key))
	require.True(t, is(hanging, "reaping")())
}
