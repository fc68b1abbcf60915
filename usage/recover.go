package usage

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Recovered is what a dead node's journal holds under a key. A key may be there several times: the amounts add up.
type Recovered struct {
	Key     int64
	Upto    int64
	Matches func(account, feature string, starts time.Time) bool // the key still means what the journal counted
}

// Reasons for which a journal's entry is parked.
const (
	parkedMeaning = "the journal's key is gone or means something else by now"
	parkedGivenUp = "a journal that came back after its node was given up"
	parkedRange   = "units out of range"
)

// RecoverNode stores what a dead node had counted, usage first, then returns its leases, and marks it recovered. A node
// that was recovered or retired before is left as it is. It returns how many keys were stored. Entries that can't be
// counted are parked with their reason: those whose key is gone or means something else by now, and all of a node that
// was given up. Repeating it changes nothing, and a recovery that was broken off is taken up again. A node that the
// database does not know is ErrNotFound: keep its journal.
func RecoverNode(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time) (int, error) {
	state, err := NodeState(ctx, db, node)
	if err != nil {
		return 0, err
	}
	switch state {
	case "live", "reaping", "reaped", "stopped":
	case "given_up":
		return 0, park(ctx, db, node, entries, at, parkedGivenUp)
	default:
		return 0, nil
	}
	// First of all no ask of it may commit any more: what it would grant nobody could give back.
	if _, err := move(ctx, db, node, []string{"live", "reaped", "stopped"}, "reaping", nil); err != nil {
		return 0, err
	}
	const cause = "a journal recovered after its node was reaped"
	stored, err := storeEntries(ctx, db, node, entries, at, cause)
	if err != nil {
		return 0, err
	}
	if err := ReturnLeases(ctx, db, node, cause); err != nil {
		return 0, err
	}
	_, err = move(ctx, db, node, []string{"reaping", "reaped"}, "recovered", nil)
	return stored, err
}

// storeEntries stores a journal's entries part by part, and returns how many keys they are of. What the database has
// already is left alone: a recovery that is broken off again and again gets further each time.
func storeEntries(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time, cause string) (stored int, err error) {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Recovered) int { return cmp.Compare(a.Key, b.Key) })
	for len(entries) > 0 {
		n := min(len(entries), MaxSettleKeys)
		for n < len(entries) && entries[n].Key == entries[n-1].Key {
			n++
		}
		// While the number moves no worker returns the leases: what is not stored yet would be granted again.
		if _, err := db.Exec(ctx, "UPDATE weir.nodes SET heartbeat = heartbeat + 1 WHERE id = $1 AND state = 'reaping'", node); err != nil {
			return 0, wrap("recover node", err)
		}
		counts, err := matching(ctx, db, node, entries[:n], at)
		if err != nil {
			return 0, err
		}
		var keys, upto []int64
		for _, c := range counts {
			if c.upto > c.done {
				keys, upto = append(keys, c.key), append(upto, c.upto)
			}
		}
		if err := Settle(ctx, db, node, keys, upto, at, cause); err != nil {
			return 0, err
		}
		stored += len(counts)
		entries = entries[n:]
	}
	return stored, nil
}

// count is what a journal has of a key, and what the database has folded of it.
type count struct{ key, upto, done int64 }

type meaning struct {
	account, feature string
	starts           time.Time
	done             int64 // folded of the node
}

// matching sums the entries by key, in their order, and parks those that don't fit.
func matching(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time) ([]count, error) {
	known, err := meanings(ctx, db, node, entries)
	if err != nil {
		return nil, err
	}
	var foreign, broken []Recovered
	var counts []count
	place := make(map[int64]int) // in counts
	for _, x := range entries {
		m, ok := known[x.Key]
		if !ok || !x.Matches(m.account, m.feature, m.starts) {
			foreign = append(foreign, x)
			continue
		}
		i, seen := place[x.Key]
		if x.Upto < 0 || seen && x.Upto > Boundless-counts[i].upto || x.Upto > Boundless {
			broken = append(broken, x)
			continue
		}
		if !seen {
			i = len(counts)
			place[x.Key] = i
			counts = append(counts, count{key: x.Key, done: m.done})
		}
		counts[i].upto += x.Upto
	}
	if err := park(ctx, db, node, foreign, at, parkedMeaning); err != nil {
		return nil, err
	}
	if err := park(ctx, db, node, broken, at, parkedRange); err != nil {
		return nil, err
	}
	return counts, nil
}

func meanings(ctx context.Context, db DB, node int64, entries []Recovered) (map[int64]meaning, error) {
	ids := make([]int64, len(entries))
	for i, x := range entries {
		ids[i] = x.Key
	}
	rows, err := db.Query(ctx, `SELECT k.key, a.account, f.name, p.starts, coalesce(d.used, 0)
		FROM (SELECT DISTINCT u AS key FROM unnest($1::bigint[]) u) x
		CROSS JOIN LATERAL (SELECT * FROM weir.keys y WHERE y.key = x.key LIMIT 1) k
		CROSS JOIN LATERAL (SELECT y.account FROM weir.accounts y WHERE y.id = k.account_id LIMIT 1) a
		CROSS JOIN LATERAL (SELECT y.starts FROM weir.periods y WHERE y.id = k.period_id LIMIT 1) p
		LEFT JOIN LATERAL (SELECT y.used FROM weir.done y WHERE y.key = k.key AND y.node = $2 LIMIT 1) d ON true
		JOIN weir.features f ON f.id = k.feature_id`, ids, node)
	if err != nil {
		return nil, wrap("recover node", err)
	}
	defer rows.Close()
	known := make(map[int64]meaning, len(entries))
	for rows.Next() {
		var key int64
		var m meaning
		if err := rows.Scan(&key, &m.account, &m.feature, &m.starts, &m.done); err != nil {
			return nil, wrap("recover node", err)
		}
		known[key] = m
	}
	return known, wrap("recover node", rows.Err())
}

// park keeps entries for a person, once each.
func park(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time, reason string) error {
	if len(entries) == 0 {
		return nil
	}
	keys, upto := make([]int64, len(entries)), make([]int64, len(entries))
	for i, x := range entries {
		keys[i], upto[i] = x.Key, x.Upto
	}
	_, err := db.Exec(ctx, `INSERT INTO weir.inbox_parked (node, key, upto, at, reason)
		SELECT DISTINCT $1::bigint, t.k, t.u, $4::timestamptz, $5 FROM unnest($2::bigint[], $3::bigint[]) AS t(k, u)
		WHERE NOT EXISTS (SELECT FROM weir.inbox_parked p WHERE p.node = $1 AND p.key = t.k AND p.upto = t.u AND p.reason = $5)`,
		node, keys, upto, at, reason)
	return wrap("park a journal's entries", err)
}
