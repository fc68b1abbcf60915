package usage

import (
	"context"
	"time"
)

// Batch is what one node sends at one moment.
type Batch struct {
	Node    int64
	Keys    []int64   // changed keys
	Upto    []int64   // cumulative usage of this node under each
	At      time.Time // business time; decides day and month of the history
	Sealed  time.Time // the mark: every counter that ends by then is cut, and its last count is in this batch
	Applied int64     // the mark: changes up to this number are applied, and what they cut is in this batch
	Held    []int64   // keys with reservations over their period's end
	Watch   []int64   // further keys whose figures are wanted
}

// Figures are the stored amounts under one key.
type Figures struct {
	Key      int64
	Others   int64 // stored by other nodes, inbox included
	Folded   int64 // of all nodes
	Free     int64
	Overage  int64
	Adjusted int64
}

// BatchAnswer is what the database says to a batch.
type BatchAnswer struct {
	Live     bool      // the node is live; otherwise it must rejoin
	State    string    // the node's state
	Change   int64     // the latest change number
	Clock    time.Time // business time as the database has it
	Nodes    int64     // live nodes
	Figures  []Figures // of Keys and Watch
	Recalled []int64   // keys that this node holds loosely and that were called back within 2 s

	// Heartbeat is this node's heartbeats as stored, this one included. One that is not above the last says that the
	// database lost commits (a failover): the node must cut everything and settle its cumulative usage again, as in a
	// rejoin. State is empty when even the node's registration was lost.
	Heartbeat int64
}

// Flush stores a batch in one statement for up to MaxBatchKeys keys; more go in several, with heartbeat and mark in
// the last one. Sending a batch again, or in another order, changes no total. Keys sorted ascending cost least.
func Flush(ctx context.Context, db DB, b Batch) (BatchAnswer, error) {
	var all BatchAnswer
	for len(b.Keys) > MaxBatchKeys {
		part := b
		part.Keys, part.Upto, part.Watch = b.Keys[:MaxBatchKeys], b.Upto[:MaxBatchKeys], nil
		a, err := flush(ctx, db, part, false)
		if err != nil {
			return BatchAnswer{}, err
		}
		all.Figures = append(all.Figures, a.Figures...)
		b.Keys, b.Upto = b.Keys[MaxBatchKeys:], b.Upto[MaxBatchKeys:]
	}
	last, err := flush(ctx, db, b, true)
	if err != nil {
		return BatchAnswer{}, err
	}
	last.Figures = append(all.Figures, last.Figures...)
	return last, nil
}

func flush(ctx context.Context, db DB, b Batch, beat bool) (BatchAnswer, error) {
	var a BatchAnswer
	var keys, others, folded, free, overage, adjusted []int64
	if b.Held == nil {
		b.Held = []int64{}
	}
	if b.Watch == nil {
		b.Watch = []int64{}
	}
	if b.Keys == nil {
		b.Keys, b.Upto = []int64{}, []int64{}
	}
	var state *string
	var heartbeat *int64
	err := db.QueryRow(ctx, "SELECT * FROM weir.flush($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		b.Node, b.Keys, b.Upto, b.At, beat, b.Sealed, b.Applied, b.Held, b.Watch).
		Scan(&state, &a.Change, &a.Clock, &a.Nodes, &keys, &others, &folded, &free, &overage, &adjusted, &a.Recalled, &heartbeat)
	if err != nil {
		return a, wrap("flush", err)
	}
	if state != nil {
		a.State = *state
		a.Heartbeat = *heartbeat
	}
	a.Live = a.State == "live"
	a.Figures = make([]Figures, len(keys))
	for i := range keys {
		a.Figures[i] = Figures{keys[i], others[i], folded[i], free[i], overage[i], adjusted[i]}
	}
	return a, nil
}

// Fold folds one chunk of at most most inbox rows into totals, overage and history, and returns how many it took.
// One fold runs at a time in the whole database; a second one waits. It is one statement, so that a process that stops
// in its middle leaves no transaction open that holds the fold up.
func Fold(ctx context.Context, db DB, most int) (int64, error) {
	var n int64
	err := db.QueryRow(ctx, "SELECT weir.fold_chunk($1)", most).Scan(&n)
	return n, wrap("fold", err)
}

// TidyInbox gives the room of folded rows free for the next ones, after every TidyRows rows or so: autovacuum comes once
// a minute at most, and what the inbox holds dead by then is in the way of each look into it. Where somebody else
// tidies, analyzes or alters the table it leaves it to them and waits for nobody, and a role that may not do it leaves it
// to autovacuum.
func TidyInbox(ctx context.Context, db DB) error {
	_, err := db.Exec(ctx, "VACUUM (TRUNCATE false, SKIP_LOCKED) weir.inbox") // cutting the file off would lock nodes out
	return wrap("tidy the inbox", err)
}

// Pending reports whether rows wait in the inbox.
func Pending(ctx context.Context, db DB) (bool, error) {
	var any bool
	err := db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.inbox)").Scan(&any)
	return any, wrap("look into the inbox", err)
}
