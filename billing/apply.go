package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/usage"
)

// longEarlyEnd is how far Stripe may set an end into the past before a person should know.
const longEarlyEnd = 15 * time.Minute

// derivedKinds are findings about a customer that derivation raises; one that it no longer raises is cleared.
var derivedKinds = []string{"plan_conflict", "unknown_price", "no_period", "item_missing", "two_items", "quantity", "windows_differ", "meter", "price", "customer_deleted"}

// applySync stores what was read and what follows from it, unless another worker has taken the turn meanwhile. The
// fold's lock is taken only where something changes, and not while the copies of what was read are stored.
func (b *Biller) applySync(ctx context.Context, cc claimedCustomer, f *facts, d derived, reference *string) error {
	if (d.ours || cc.account != nil) && len(f.subs) > 0 {
		err := b.begin(ctx, func(tx pgx.Tx) error {
			if _, mine, err := lockCustomer(ctx, tx, cc); err != nil || !mine {
				return err
			}
			if err := storeSubscriptions(ctx, tx, cc.id, f.subs, f.now); err != nil {
				return err
			}
			return storePrices(ctx, tx, f.subs, d.matched, f.meters, f.now)
		})
		if err != nil {
			return err
		}
	}
	print, err := d.fingerprint()
	if err != nil {
		return err
	}
	if cc.account != nil && (!d.apply || print == cc.derived) {
		return b.begin(ctx, func(tx pgx.Tx) error {
			account, mine, err := lockCustomer(ctx, tx, cc)
			if err != nil || !mine || account == nil {
				return err
			}
			if err := noteFindings(ctx, tx, *account, cc.id, d.findings, f.now); err != nil {
				return err
			}
			return finishSync(ctx, tx, cc, f, d, print)
		})
	}
	return b.begin(ctx, func(tx pgx.Tx) error { return b.applyChanged(ctx, tx, cc, f, d, reference) })
}

// applyChanged maps a customer that says whose it is, and applies what was derived.
func (b *Biller) applyChanged(ctx context.Context, tx pgx.Tx, cc claimedCustomer, f *facts, d derived, reference *string) error {
	// Every fold waits for what follows: as few round trips as there can be.
	var account, claim *int64
	if err := tx.QueryRow(ctx, "SELECT account_id, claim FROM weir.lock_sync($1)", cc.id).Scan(&account, &claim); err != nil {
		return fmt.Errorf("apply customer %s: %w", cc.id, err)
	}
	if claim == nil || *claim != cc.claim {
		return nil
	}
	if account == nil && reference != nil {
		if err := b.mapByReference(ctx, tx, cc.id, *reference, "metadata", f.now); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT account_id FROM weir.lock_sync($1)", cc.id).Scan(&account); err != nil {
			return fmt.Errorf("apply customer %s: %w", cc.id, err)
		}
		if account != nil {
			if err := tx.QueryRow(ctx, "SELECT coalesce(plan, '') FROM weir.accounts WHERE id = $1", *account).Scan(&f.last); err != nil {
				return fmt.Errorf("read the account's plan: %w", err)
			}
			d = derive(f)
		}
	}
	if account == nil {
		return b.leaveUnmapped(ctx, tx, cc, f, d)
	}
	print, err := d.fingerprint()
	if err != nil {
		return err
	}
	last := &together{}
	if d.apply {
		if err := b.applyDerived(ctx, tx, last, *account, cc.id, f, d); err != nil {
			return err
		}
	}
	if err := noteFindings(ctx, last, *account, cc.id, d.findings, f.now); err != nil {
		return err
	}
	if err := finishSync(ctx, last, cc, f, d, print); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &last.batch).Close(); err != nil {
		return fmt.Errorf("apply customer %s: %w", cc.id, err)
	}
	return nil
}

// together keeps statements whose results nobody reads, to be sent in one round trip.
type together struct{ batch pgx.Batch }

// Exec keeps a statement. Its error comes when they are sent.
func (t *together) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	t.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, nil
}

func lockCustomer(ctx context.Context, tx pgx.Tx, cc claimedCustomer) (account *int64, mine bool, err error) {
	var claim int64
	err = tx.QueryRow(ctx, "SELECT account_id, claim FROM weir.customers WHERE customer = $1 FOR UPDATE", cc.id).Scan(&account, &claim)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("lock customer %s: %w", cc.id, err)
	}
	return account, claim == cc.claim, nil
}

// leaveUnmapped keeps a customer that concerns us until its mapping comes, and drops one that does not.
func (b *Biller) leaveUnmapped(ctx context.Context, tx pgx.Tx, cc claimedCustomer, f *facts, d derived) error {
	if !d.ours {
		_, err := tx.Exec(ctx, `UPDATE weir.webhook_events SET state = 'foreign' WHERE customer = $1 AND state = 'stored'`, cc.id)
		if err == nil {
			_, err = tx.Exec(ctx, `DELETE FROM weir.customers c WHERE c.customer = $1 AND c.account_id IS NULL
				AND NOT EXISTS (SELECT FROM weir.subscriptions s WHERE s.customer = c.customer)`, cc.id)
		}
		if err != nil {
			return fmt.Errorf("drop foreign customer %s: %w", cc.id, err)
		}
		return nil
	}
	err := raise(ctx, tx, finding{kind: "unmapped_customer", subject: cc.id, message: fmt.Sprintf(
		"customer %s has a subscription of ours and is mapped to no account: set metadata.account_id, or PUT /v1/accounts/{account}", cc.id)}, f.now)
	if err != nil {
		return err
	}
	return finishSync(ctx, tx, cc, f, d, "")
}

// applyDerived ends segments that no longer hold, sets the plan and period, and opens the segments that hold now. The
// account is folded.
func (b *Biller) applyDerived(ctx context.Context, tx pgx.Tx, last *together, account int64, customer string, f *facts, d derived) error {
	if err := endSegments(ctx, tx, account, customer, f, d); err != nil {
		return err
	}
	if !d.early.IsZero() && f.now.Sub(d.early) > longEarlyEnd {
		if err := noteEarlyEnd(ctx, tx, account, d.early, f.now); err != nil {
			return err
		}
	}
	period, err := usage.ApplyPlan(ctx, tx, account, d.state, f.now)
	if err != nil {
		return err
	}
	if err := clearFinding(ctx, last, "unconfirmed_period", units(period), "confirmed", f.now); err != nil {
		return err
	}
	return openSegments(ctx, last, period, customer, f.now, d.segments)
}

// noteEarlyEnd tells a person of a period that Stripe ended long before we knew.
func noteEarlyEnd(ctx context.Context, tx pgx.Tx, account int64, at, now time.Time) error {
	var id int64
	err := tx.QueryRow(ctx, `SELECT p.id FROM weir.periods p WHERE p.account_id = $1 AND p.source = 'subscription' AND p.state = 'open'
		AND p.starts < $2 AND $2 < p.ends AND $3 < coalesce(p.cut, p.ends) LIMIT 1`, account, at, now).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a period that ended early: %w", err)
	}
	return raise(ctx, tx, finding{kind: "early_end", subject: units(id), account: account, message: fmt.Sprintf(
		"Stripe ended this period at %s, we learned of it at %s: units between are in the old period", at.Format(time.RFC3339), now.Format(time.RFC3339))}, now)
}

// endSegments ends those open segments of periods under way whose item, price or customer is another now.
func endSegments(ctx context.Context, tx pgx.Tx, account int64, customer string, f *facts, d derived) error {
	rows, err := tx.Query(ctx, `SELECT s.key, s.customer, s.subscription, s.item, s.price, ft.name FROM weir.segments s
		JOIN weir.keys k ON k.key = s.key JOIN weir.features ft ON ft.id = k.feature_id JOIN weir.periods p ON p.id = k.period_id
		WHERE k.account_id = $1 AND s.ends IS NULL AND p.state = 'open' AND coalesce(p.cut, p.ends) > $2 ORDER BY s.key`, account, f.now)
	if err != nil {
		return fmt.Errorf("read segments: %w", err)
	}
	type open struct {
		Key                                          int64
		Customer, Subscription, Item, Price, Feature string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[open])
	if err != nil {
		return fmt.Errorf("read segments: %w", err)
	}
	at := f.now
	if !d.early.IsZero() {
		at = d.early
	}
	var over []int64
	for _, o := range all {
		w, ok := d.segments[o.Feature]
		if d.hold[o.Feature] && o.Customer == customer {
			continue
		}
		if ok && o.Customer == customer && o.Subscription == w.Subscription && o.Item == w.Item && o.Price == w.Price {
			continue
		}
		over = append(over, o.Key)
	}
	if len(over) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, "SELECT weir.end_segment(k, $2, $3, 'segment') FROM unnest($1::bigint[]) k", over, at, f.now); err != nil {
		return fmt.Errorf("end segments: %w", err)
	}
	return nil
}

// openSegments opens a segment for each feature of the period that has none open, and keeps windows as they are now.
func openSegments(ctx context.Context, db execer, period int64, customer string, now time.Time, want map[string]segment) error {
	type row struct {
		Feature string
		segment
		Since *time.Time
	}
	rows := make([]row, 0, len(want))
	for feature, s := range want {
		rows = append(rows, row{feature, s, nullTime(s.Since)})
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	if _, err := db.Exec(ctx, "SELECT weir.open_segments($1, $2, $3, $4::text::jsonb)", period, customer, now, string(text)); err != nil {
		return fmt.Errorf("open segments: %w", err)
	}
	return nil
}

// noteFindings raises what derivation found and clears what it no longer finds.
func noteFindings(ctx context.Context, db execer, account int64, customer string, found []finding, now time.Time) error {
	open := make([]string, 0, len(found))
	for _, f := range found {
		f.account = account
		if err := raise(ctx, db, f, now); err != nil {
			return err
		}
		open = append(open, f.kind+"\x1f"+f.subject)
	}
	_, err := db.Exec(ctx, `UPDATE weir.findings SET cleared_at = $3, cleared_by = 'sync of ' || $5
		WHERE account_id = $1 AND cleared_at IS NULL AND kind = ANY ($4) AND NOT (kind || E'\x1f' || subject) = ANY ($2)`,
		account, open, now, derivedKinds, customer)
	if err != nil {
		return fmt.Errorf("clear findings: %w", err)
	}
	return nil
}

func finishSync(ctx context.Context, db execer, cc claimedCustomer, f *facts, d derived, print string) error {
	keep := !d.apply
	_, err := db.Exec(ctx, `UPDATE weir.customers SET synced = $2, synced_at = $3, due_at = $4, failures = 0, error = NULL, claimed_until = '-infinity',
		deleted = $5, derived = CASE WHEN $7 THEN derived ELSE nullif($6, '') END WHERE customer = $1`,
		cc.id, cc.wanted, f.now, nullTime(d.recheck), f.deleted, print, keep)
	if err == nil {
		_, err = db.Exec(ctx, `UPDATE weir.webhook_events SET state = 'done' WHERE customer = $1 AND state = 'stored' AND type NOT LIKE 'invoice.%'
			AND received_at <= $2`, cc.id, f.now)
	}
	if err != nil {
		return fmt.Errorf("finish customer %s: %w", cc.id, err)
	}
	return nil
}

func nullTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
