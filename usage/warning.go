package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Warning is a threshold of an allowance that an account has reached. It is found by the fold, once per account,
// feature, period, threshold and allowance: a raised allowance arms its thresholds anew. Where the customer's own cap
// lets the allowance reach past the included units, the last of these is a threshold of its own: 100 % of Included.
type Warning struct {
	ID        int64 // ascending in the order in which they were found
	Account   string
	Feature   string
	Plan      string
	Threshold int   // percent of Allowance
	Allowance int64 // units: what is included, or everything up to the customer's own lower cap
	Capped    bool  // Allowance is the customer's own cap
	Used      int64 // units, when it was found
	Included  int64 // units
	// OnExceeded says what happens past the included units: block or bill_overage.
	OnExceeded string
	// OverageOpen says that calls go on past Allowance now: overage is open for the account (a trial's is not), and no
	// cap ends it there.
	OverageOpen bool
	// SpendingCap is the customer's own bound of the overage, in units; nil: there is none, or a lower one counts, or no
	// overage is admitted.
	SpendingCap *int64
	// Shadow says that the account or its plan is in shadow mode now: whatever the terms say, nothing is refused.
	Shadow bool
	Starts time.Time // of the period, as Ends
	Ends   time.Time
	At     time.Time // business time of the usage that reached it
}

const (
	warningColumns = `w.id, a.account, f.name, p.plan, w.threshold, w.allowance,
		k.spending_cap IS NOT NULL AND w.allowance IS DISTINCT FROM k.included, w.used, coalesce(k.included, w.allowance),
		k.on_exceeded, k.in_plan AND weir.overage_open(k.on_exceeded, k.billability, k.when_not_billable)
			AND coalesce(least(k.maximum, k.spending_cap) > w.allowance - k.included, true),
		CASE WHEN k.allowance > k.included THEN k.spending_cap END, weir.in_shadow(a.shadow, p.plan), p.starts, coalesce(p.cut, p.ends), w.at`
	warningJoins = ` JOIN weir.keys k ON k.key = w.key JOIN weir.periods p ON p.id = k.period_id
		JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id`
)

// Warnings lists what is to be told after a warning's id, oldest first, at most most of them. Thresholds that were
// passed in one jump with a higher one are recorded and not told.
func Warnings(ctx context.Context, db DB, after int64, most int) ([]Warning, error) {
	rows, err := db.Query(ctx, "SELECT "+warningColumns+" FROM weir.warnings w"+warningJoins+" WHERE w.id > $1 AND w.told ORDER BY w.id LIMIT $2", after, most)
	if err != nil {
		return nil, wrap("read warnings", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Warning])
	return all, wrap("read warnings", err)
}

// LastWarning is the id of the newest warning, 0 when there is none.
func LastWarning(ctx context.Context, db DB) (int64, error) {
	var id int64
	err := db.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM weir.warnings").Scan(&id)
	return id, wrap("read the last warning", err)
}

// Send is one warning that this process is to deliver through one channel.
type Send struct {
	Warning
	Channel  string
	Claim    int64 // for SettleSend
	Attempts int   // this one included
	Email    string
}

// Bounds of one claim.
const (
	MaxSends = 20              // warnings in one claim
	SendHold = 2 * time.Minute // after which a claim that was not settled is free again
)

// SendsDue reports whether ClaimSends would find something, for some of the channels.
func SendsDue(ctx context.Context, db DB, channels []string) (bool, error) {
	var due bool
	err := db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.warning_sends s WHERE s.state = 'due' AND s.due_at <= clock_timestamp() AND s.channel = ANY ($1))
		OR EXISTS (SELECT FROM unnest($1::text[]) x LEFT JOIN weir.warning_channels c ON c.channel = x
		           WHERE coalesce(c.upto, -1) < (SELECT coalesce(max(w.id), 0) FROM weir.warnings w))`, channels).Scan(&due)
	return due, wrap("look for warnings", err)
}

// ClaimSends queues what was found since for every channel and claims what is due, for SendHold: no other process has
// these until then. settle is how long a warning waits for a higher one to take its place.
func ClaimSends(ctx context.Context, db DB, channels []string, settle time.Duration, now time.Time) ([]Send, error) {
	rows, err := db.Query(ctx, `SELECT `+warningColumns+`, s.channel, s.claim, s.attempts, coalesce(c.email, '')
		FROM weir.claim_warnings($1, $2, $3, $4, $5) s JOIN weir.warnings w ON w.id = s.warning`+warningJoins+`
		LEFT JOIN weir.contacts c ON c.account_id = a.id ORDER BY w.id, s.channel`, channels, now, settle, SendHold, MaxSends)
	if err != nil {
		return nil, wrap("claim warnings", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Send, error) {
		var s Send
		w := &s.Warning
		err := row.Scan(&w.ID, &w.Account, &w.Feature, &w.Plan, &w.Threshold, &w.Allowance, &w.Capped, &w.Used, &w.Included, &w.OnExceeded, &w.OverageOpen,
			&w.SpendingCap, &w.Shadow, &w.Starts, &w.Ends, &w.At, &s.Channel, &s.Claim, &s.Attempts, &s.Email)
		return s, err
	})
	return all, wrap("claim warnings", err)
}

// Outcomes of a delivery.
const (
	Sent    = "sent"
	Skipped = "skipped" // there was nobody to tell, or nothing that is so
	Failed  = "failed"  // it is not tried again
)

// SettleSend stores that a delivery came to its end, with a note for people. An outcome that comes after another
// process has taken the turn is dropped.
func SettleSend(ctx context.Context, db DB, s Send, outcome, note string) error {
	_, err := db.Exec(ctx, `UPDATE weir.warning_sends SET state = $4, note = nullif(left($5, 500), ''), settled_at = clock_timestamp()
		WHERE warning = $1 AND channel = $2 AND claim = $3 AND state = 'due'`, s.ID, s.Channel, s.Claim, outcome, note)
	return wrap(fmt.Sprintf("settle warning %d", s.ID), err)
}

// RetrySend gives a delivery back, to be tried again after a while.
func RetrySend(ctx context.Context, db DB, s Send, after time.Duration, note string) error {
	_, err := db.Exec(ctx, `UPDATE weir.warning_sends SET due_at = clock_timestamp() + $4::interval, note = nullif(left($5, 500), '')
		WHERE warning = $1 AND channel = $2 AND claim = $3 AND state = 'due'`, s.ID, s.Channel, s.Claim, after, note)
	return wrap(fmt.Sprintf("give back warning %d", s.ID), err)
}
