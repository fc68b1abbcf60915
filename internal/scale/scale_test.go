package scale_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

const planFile = `
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 1_000_000}, on_exceeded: block}}
`

// The size of the measured run: enough rows that a page here and there does not show.
const (
	nodes    = 3
	accounts = 400
	beats    = 4
)

// formula is the number that docs/scale.md gives for a cost, by its row in a table: | `name` | number | …
func formula(t *testing.T, name string) float64 {
	t.Helper()
	text, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	m := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(name) + "` \\| ([0-9.,]+) ").FindSubmatch(text)
	require.NotNil(t, m, "docs/scale.md has no row %s", name)
	v, err := strconv.ParseFloat(strings.ReplaceAll(string(m[1]), ",", ""), 64)
	require.NoError(t, err)
	return v
}

// near fails when a measured cost is not within a third of the document's.
func near(t *testing.T, name string, measured float64) {
	t.Helper()
	t.Logf("%s: %.2f", name, measured)
	want := formula(t, name)
	require.InDelta(t, want, measured, want/3, name)
}

// cost is what a statement wrote: the server counts it for this statement alone, whatever else runs.
type cost struct{ records, bytes float64 }

func (c *cost) add(t *testing.T, db *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	var out []byte
	require.NoError(t, db.QueryRow(t.Context(), "EXPLAIN (ANALYZE, WAL, FORMAT JSON) "+sql, args...).Scan(&out))
	var plan []struct {
		Plan struct {
			Records float64 `json:"WAL Records"`
			Bytes   float64 `json:"WAL Bytes"`
			Images  float64 `json:"WAL FPI"`
		}
	}
	require.NoError(t, json.Unmarshal(out, &plan))
	require.Zero(t, plan[0].Plan.Images, "whole pages are in the log: the test's server must run without full_page_writes")
	c.records += plan[0].Plan.Records
	c.bytes += plan[0].Plan.Bytes
}

// What N nodes with K keys write, flush by flush and fold by fold, is what the document says.
func TestTheDocumentComputesWithMeasuredNumbers(t *testing.T) {
	t.Parallel()
	db := schematest.Pool(t)
	catalog, err := plans.Parse([]byte(planFile))
	require.NoError(t, err)
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	_, _, err = usage.Publish(t.Context(), db, catalog, "test", now)
	require.NoError(t, err)
	ids := make([]int64, nodes)
	for i := range ids {
		n, err := usage.Register(t.Context(), db, fmt.Sprint("node ", i), "test", now)
		require.NoError(t, err)
		ids[i] = n.ID
	}
	before := rows(t, db)
	keys := contact(t, db, ids, now)
	grown := rows(t, db)
	near(t, "rows an account and period", float64(grown["periods"]+grown["keys"]+grown["totals"]+grown["quotas"]-
		before["periods"]-before["keys"]-before["totals"]-before["quotas"])/accounts/2)
	near(t, "leases a key and node", float64(grown["leases"])/accounts/nodes)

	var flush, first, fold, beat cost
	for b := range beats {
		for i, id := range ids {
			upto := make([]int64, len(keys))
			for k := range upto {
				upto[k] = int64(10 * (b + 1))
			}
			flush.add(t, db, "SELECT * FROM weir.flush($1, $2, $3, $4, true, $4, 0, '{}', '{}')", id, keys, upto, now)
			require.EqualValues(t, (i+1)*accounts, rows(t, db)["inbox"], "a row for each node and key that changed")
		}
		if b == 0 {
			first.add(t, db, "SELECT weir.fold_chunk(5000)")
		} else {
			fold.add(t, db, "SELECT weir.fold_chunk(5000)")
		}
		require.Zero(t, rows(t, db)["inbox"])
	}
	for range 50 {
		beat.add(t, db, "SELECT * FROM weir.flush($1, '{}', '{}', $2, true, $2, 0, '{}', '{}')", ids[0], now)
	}
	near(t, "WAL bytes a flushed row", flush.bytes/(beats*nodes*accounts))
	near(t, "WAL bytes a row folded first", first.bytes/(nodes*accounts))
	near(t, "WAL bytes a row folded again", fold.bytes/((beats-1)*nodes*accounts))
	near(t, "WAL bytes a heartbeat", beat.bytes/50)
	after := rows(t, db)
	require.EqualValues(t, nodes*accounts, after["done"], "a row for each node and key")
	require.EqualValues(t, accounts, after["history"], "a row for each key and day")
}

// contact makes the accounts, on every node, and returns the keys of the running period.
func contact(t *testing.T, db *pgxpool.Pool, ids []int64, now time.Time) []int64 {
	t.Helper()
	var keys []int64
	for i, id := range ids {
		for a := range accounts {
			found, err := usage.Contact(t.Context(), db, usage.ContactRequest{
				Node: id, Account: fmt.Sprintf("account-%04d", a), At: now, Feature: "events", Units: 1, Want: 100, Waiting: 1,
			})
			require.NoError(t, err)
			for _, k := range found {
				if i == 0 && !now.Before(k.Starts) && now.Before(k.Ends) {
					keys = append(keys, k.Key)
				}
			}
		}
	}
	require.Len(t, keys, accounts)
	return keys
}

func rows(t *testing.T, db *pgxpool.Pool) map[string]int64 {
	t.Helper()
	n := map[string]int64{}
	for _, table := range []string{"periods", "keys", "totals", "quotas", "leases", "inbox", "done", "history"} {
		var c int64
		require.NoError(t, db.QueryRow(context.Background(), "SELECT count(*) FROM weir."+table).Scan(&c))
		n[table] = c
	}
	return n
}
