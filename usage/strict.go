package usage

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MaxOnceBytes bounds an idempotency key.
const MaxOnceBytes = 255

// ErrStrictCall is the error of a strict call that can't be meant: no units, or an idempotency key that is too long.
var ErrStrictCall = errors.New("a strict call needs at least one unit and an idempotency key of at most 255 bytes")

// StrictStatus says how a strict call ended.
type StrictStatus string

// The outcomes of a strict call. Only StrictOK has counted anything.
const (
	StrictOK        StrictStatus = "ok"
	StrictReplayed  StrictStatus = "replayed"        // the stored answer of an earlier call with this key
	StrictConflict  StrictStatus = "conflict"        // the key was used for other units or another feature
	StrictRefused   StrictStatus = "refused"         // certain: nobody holds what is missing
	StrictWait      StrictStatus = "wait"            // units are out at nodes and were called back: wait outside, call again
	StrictSilent    StrictStatus = "silent"          // what would suffice lies with a node that has missed its heartbeats
	StrictEnded     StrictStatus = "ended"           // the period is being closed: call again at a later instant
	StrictNotInPlan StrictStatus = "not_in_plan"     // the plan lacks the feature
	StrictUnknown   StrictStatus = "unknown_feature" // no published plan file knows the feature
)

// StrictCall is a call that the database decides.
type StrictCall struct {
	Account string
	Feature string
	Units   int64
	Once    string // the idempotency key, unique per account for 24 h; empty: none
	Judge   bool   // the caller's own heartbeats are answered, so that silent nodes can be told
	At      time.Time
	Node    int64 // the asking node: Own of the answer is its; 0: none
}

// StrictAnswer is the database's answer. Counts are units; the fields after Status are zero where they don't apply.
type StrictAnswer struct {
	Status    StrictStatus
	AccountID int64
	PeriodID  int64
	Key       int64
	Plan      string
	Starts    time.Time
	Ends      time.Time // of admission
	Included  *int64    // nil: unlimited
	Ceiling   int64
	Used      int64 // stored by all nodes, this call included when it was admitted
	Free      int64 // folded, as are the next three
	Overage   int64
	Adjusted  int64
	Folded    int64
	Bound     *int64 // refused: a call for more than this cannot pass until something changes
	Own       int64  // of Used, what the asking node has stored
}

// Admitted reports whether the call's units are counted, now or by the earlier call whose answer this is.
func (a *StrictAnswer) Admitted() bool { return a.Status == StrictOK || a.Status == StrictReplayed }

// ConsumeStrict decides one call in one transaction, exactly, beside the leases that nodes hold: plans with
// enforce: strict, and calls with an idempotency key. It never waits for nodes: on StrictWait their leases were called
// back, and the caller tries again after a short wait or a notice on ChannelReturned, with no transaction open. Only
// an admitted call leaves its key. It creates account and period where there are none.
func ConsumeStrict(ctx context.Context, db DB, c StrictCall) (StrictAnswer, error) {
	if c.Units <= 0 || len(c.Once) > MaxOnceBytes {
		return StrictAnswer{}, ErrStrictCall
	}
	var once *string
	if c.Once != "" {
		once = &c.Once
	}
	var node *int64 // 0 is the database's own
	if c.Node > 0 {
		node = &c.Node
	}
	var status *string
	var account, period, key, ceiling, used, free, overage, adjusted, folded, own *int64
	var plan *string
	var starts, ends *time.Time
	var a StrictAnswer
	err := db.QueryRow(ctx, "SELECT * FROM weir.consume_strict($1, $2, $3, $4, $5, $6, $7)",
		c.Account, c.Feature, c.Units, once, c.Judge, c.At, node).
		Scan(&status, &account, &period, &key, &plan, &starts, &ends, &a.Included, &ceiling, &used, &free, &overage, &adjusted, &folded, &a.Bound, &own)
	if err != nil {
		return StrictAnswer{}, wrap("consume strictly", err)
	}
	if status == nil {
		return StrictAnswer{}, fmt.Errorf("consume strictly: account %q: the database gave no answer", c.Account)
	}
	a.Status = StrictStatus(*status)
	a.AccountID, a.PeriodID, a.Key = orZero(account), orZero(period), orZero(key)
	a.Plan, a.Starts, a.Ends = orZero(plan), orZero(starts), orZero(ends)
	a.Ceiling, a.Used, a.Free, a.Overage = orZero(ceiling), orZero(used), orZero(free), orZero(overage)
	a.Adjusted, a.Folded, a.Own = orZero(adjusted), orZero(folded), orZero(own)
	return a, nil
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
