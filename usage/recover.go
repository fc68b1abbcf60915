package usage

import (
	"context"
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
	keys, upto, err := matching(ctx, db, node, entries, at)
	if err != nil {
		return 0, err
	}
	if err := Settle(ctx, db, node, keys, upto, at, "a journal recovered after its node was reaped"); err != nil {
		return 0, err
	}
	if err := ReturnLeases(ctx, db, node, "recovery"); err != nil {
		return 0, err
	}
	_, err = move(ctx, db, node, []string{"reaping", "reaped"}, "recovered", nil)
	return len(keys), err
}

type meaning struct {
	account, feature string
	starts           time.Time
}

// matching sums the entries by key, and parks those that don't fit.
func matching(ctx context.Context, db DB, node int64, entries []Recovered, at time.Time) (keys, upto []int64, err error) {
	known, err := meanings(ctx, db, entries)
	if err != nil {
		return nil, nil, err
	}
	var foreign, broken []Recovered
	sums := make(map[int64]int64)
	for _, x := range entries {
		m, ok := known[x.Key]
		switch {
		case !ok || !x.Matches(m.account, m.feature, m.starts):
			foreign = append(foreign, x)
		case x.Upto < 0 || x.Upto > Boundless-sums[x.Key]:
			broken = append(broken, x)
		default:
			if _, ok := sums[x.Key]; !ok {
				keys = append(keys, x.Key)
			}
			sums[x.Key] += x.Upto
		}
	}
	if err := park(ctx, db, node, foreign, at, parkedMeaning); err != nil {
		return nil, nil, err
	}
	if err := park(ctx, db, node, broken, at, parkedRange); err != nil {
		return nil, nil, err
	}
	upto = make([]int64, len(keys))
	for i, k := range keys {
		upto[i] = sums[k]
	}
	return keys, upto, nil
}

func meanings(ctx context.Context, db DB, entries []Recovered) (map[int64]meaning, error) {
	ids := make([]int64, len(entries))
	for i, x := range entries {
		ids[i] = x.Key
	}
	rows, err := db.Query(ctx, `SELECT k.key, a.account, f.name, p.starts FROM weir.keys k JOIN weir.accounts a ON a.id = k.account_id
		JOIN weir.features f ON f.id = k.feature_id JOIN weir.periods p ON p.id = k.period_id WHERE k.key = ANY ($1)`, ids)
	if err != nil {
		return nil, wrap("recover node", err)
	}
	defer rows.Close()
	known := make(map[int64]meaning, len(entries))
	for rows.Next() {
		var key int64
		var m meaning
		if err := rows.Scan(&key, &m.account, &m.feature, &m.starts); err != nil {
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
