package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Key is one feature of one period of an account as a node loads it: the period, its terms, what is stored, and the
// node's own lease. Counts are units.
type Key struct {
	Change     int64 // the change number under which this was read
	AccountID  int64
	Account    string
	PeriodID   int64
	Starts     time.Time
	Ends       time.Time // of admission: the cut, where the period has one
	Plan       string
	Catalog    int64
	Feature    string
	Key        int64
	Included   *int64 // nil: unlimited
	Maximum    *int64 // overage units that may be admitted; nil: unlimited, 0 while overage is closed
	OnExceeded string // block or bill_overage
	WhenAway   string // unavailable or continue
	Enforce    string // leases or strict
	InPlan     bool   // false: the plan has lost the feature
	Ceiling    int64
	Others     int64 // stored by other nodes, inbox included
	Free       int64 // folded
	Overage    int64 // folded
	Adjusted   int64
	Folded     int64 // folded, of all nodes
	Own        int64 // stored by this node, inbox included
	Ver        int64 // of this node's lease; 0 where there is none
	Lim        int64
	Tight      bool
	Shadow     bool // of the account or its plan: decide and record, refuse nothing
}

// BillsOverage reports whether the key's terms say bill_overage.
func (k *Key) BillsOverage() bool { return k.OnExceeded == "bill_overage" }

// ContactRequest is a node's first call for an account.
type ContactRequest struct {
	Node    int64
	Judge   bool // the node's own heartbeats are answered, so it can judge others'
	Account string
	At      time.Time
	Feature string
	Units   int64 // that the caller wants now
	Want    int64 // that the lease should hold at least, where room allows
	Waiting int64 // units that this node's callers wait for; 0: what is granted may not be spent at once
}

// Contact finds or creates the account, the period at an instant and the next one with their keys, and takes a first
// lease under the feature's key, in one round trip. It returns the keys of both periods. Without a published catalog
// the error wraps ErrNoCatalog.
func Contact(ctx context.Context, db DB, r ContactRequest) ([]Key, error) {
	return Contacts(ctx, db, r.Node, r.Judge, r.At, []ContactCall{{r.Account, r.Feature, r.Units, r.Want, r.Waiting}})
}

// ContactCall is one account of several first contacts; the fields are those of ContactRequest.
type ContactCall struct {
	Account              string
	Feature              string
	Units, Want, Waiting int64
}

// Contacts is Contact for distinct accounts in one round trip and one transaction: an account that the database refuses
// refuses them all. Keys come account by account.
func Contacts(ctx context.Context, db DB, node int64, judge bool, at time.Time, calls []ContactCall) ([]Key, error) {
	accounts, features := make([]string, len(calls)), make([]string, len(calls))
	units, wants, waitings := make([]int64, len(calls)), make([]int64, len(calls)), make([]int64, len(calls))
	for i, c := range calls {
		accounts[i], features[i], units[i], wants[i], waitings[i] = c.Account, c.Feature, c.Units, c.Want, c.Waiting
	}
	rows, err := db.Query(ctx, "SELECT * FROM weir.contact($1, $2, $3, $4, $5, $6, $7, $8)", node, judge, at, accounts, features, units, wants, waitings)
	if err != nil {
		return nil, wrap("contact accounts", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	return keys, wrap("contact accounts", err)
}

// Load reads the keys of accounts at an instant and later, as Contact does, and creates nothing.
func Load(ctx context.Context, db DB, node int64, accounts []int64, at time.Time) ([]Key, error) {
	rows, err := db.Query(ctx, "SELECT * FROM weir.load($1, $2, $3)", node, accounts, at)
	if err != nil {
		return nil, wrap("load accounts", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
	return keys, wrap("load accounts", err)
}

// Changes lists what changed after a change number: the ids of accounts, or all. It returns the latest number, which
// is read first, so that nothing between is missed.
func Changes(ctx context.Context, db DB, after int64) (latest int64, accounts []int64, err error) {
	var all bool
	err = db.QueryRow(ctx, `
		SELECT c.number, coalesce(bool_or(l.account_id IS NULL) FILTER (WHERE l.number IS NOT NULL), false)
		         OR $1 < coalesce((SELECT min(m.number) - 1 FROM weir.change_log m), c.number),
		       coalesce(array_agg(DISTINCT l.account_id) FILTER (WHERE l.account_id IS NOT NULL), '{}')
		FROM weir.changes c LEFT JOIN weir.change_log l ON l.number > $1 AND l.number <= c.number
		GROUP BY c.number`, after).Scan(&latest, &all, &accounts)
	if err != nil {
		return 0, nil, wrap("read changes", err)
	}
	if all {
		accounts = nil
	}
	return latest, accounts, nil
}
