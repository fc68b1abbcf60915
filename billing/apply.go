package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

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
	// Locks in the common order: the fold, the account, then what is ours.
	if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
		return fmt.Errorf("apply customer %s: %w", cc.id, err)
	}
	account, mine, err := lockCustomer(ctx, tx, cc)
	if err != nil || !mine {
		return err
	}
	if account == nil && reference != nil {
		if err := b.mapByReference(ctx, tx, cc.id, *reference, "metadata", f.now); err != nil {
			return err
		}
		if account, _, err = lockCustomer(ctx, tx, cc); err != nil {
			return err
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
	if d.apply {
		if err := b.applyDerived(ctx, tx, *account, cc.id, f, d); err != nil {
			return err
		}
	}
	if err := noteFindings(ctx, tx, *account, cc.id, d.findings, f.now); err != nil {
		return err
	}
	return finishSync(ctx, tx, cc, f, d, print)
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

// applyDerived ends segments that no longer hold, sets the plan and period, and opens the segments that hold now.
func (b *Biller) applyDerived(ctx context.Context, tx pgx.Tx, account int64, customer string, f *facts, d derived) error {
	if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", account); err != nil {
		return fmt.Errorf("fold account: %w", err)
	}
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
	if err := clearFinding(ctx, tx, "unconfirmed_period", units(period), "confirmed", f.now); err != nil {
		return err
	}
	return openSegments(ctx, tx, period, customer, f.now, d.segments)
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
	for _, o := range all {
		w, ok := d.segments[o.Feature]
		if d.hold[o.Feature] && o.Customer == customer {
			continue
		}
		if ok && o.Customer == customer && o.Subscription == w.Subscription && o.Item == w.Item && o.Price == w.Price {
			continue
		}
		if _, err := tx.Exec(ctx, "SELECT weir.end_segment($1, $2, $3, 'segment')", o.Key, at, f.now); err != nil {
			return fmt.Errorf("end segment: %w", err)
		}
	}
	return nil
}

// openSegments opens a segment for each feature of the period that has none open, and keeps windows as they are now.
func openSegments(ctx context.Context, tx pgx.Tx, period int64, customer string, now time.Time, want map[string]segment) error {
	for feature, s := range want {
		_, err := tx.Exec(ctx, `UPDATE weir.segments g SET window_end = $4 FROM weir.keys k
			WHERE g.customer = $1 AND g.subscription = $2 AND g.meter = $3 AND g.window_start < $4 AND g.window_end > $4
			  AND k.key = g.key AND k.period_id <> $5`, customer, s.Subscription, s.Meter, s.WindowStart, period)
		if err != nil {
			return fmt.Errorf("cut windows: %w", err)
		}
		_, err = tx.Exec(ctx, `
			WITH k AS (SELECT x.key, p.starts FROM weir.keys x JOIN weir.features f ON f.id = x.feature_id JOIN weir.periods p ON p.id = x.period_id
			           WHERE x.period_id = $1 AND f.name = $2),
			moved AS (UPDATE weir.segments g SET window_start = $11, window_end = $12 FROM k WHERE g.key = k.key AND g.ends IS NULL RETURNING g.key)
			INSERT INTO weir.segments (key, customer, subscription, item, price, product, currency, tax_behavior, unit_amount, meter,
				window_start, window_end, starts, opened_at)
			SELECT k.key, $3, $4, $5, $6, nullif($7, ''), $8, nullif($9, ''), nullif($10, '')::numeric, $15, $11, $12,
				greatest(k.starts, $11, $13, (SELECT max(o.ends) FROM weir.segments o WHERE o.key = k.key)), $14
			FROM k WHERE NOT EXISTS (SELECT FROM moved)`,
			period, feature, customer, s.Subscription, s.Item, s.Price, s.Product, s.Currency, s.TaxBehavior, s.UnitAmount,
			s.WindowStart, s.WindowEnd, nullTime(s.Since), now, s.Meter)
		if err != nil {
			return fmt.Errorf("open segment: %w", err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO weir.chains AS c (key, due) SELECT k.key, true FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id
			WHERE k.period_id = $1 AND f.name = $2 ON CONFLICT (key) DO UPDATE SET due = true`, period, feature)
		if err != nil {
			return fmt.Errorf("wake the chain: %w", err)
		}
	}
	return nil
}

// noteFindings raises what derivation found and clears what it no longer finds.
func noteFindings(ctx context.Context, tx pgx.Tx, account int64, customer string, found []finding, now time.Time) error {
	open := make([]string, 0, len(found))
	for _, f := range found {
		f.account = account
		if err := raise(ctx, tx, f, now); err != nil {
			return err
		}
		open = append(open, f.kind+"\x1f"+f.subject)
	}
	_, err := tx.Exec(ctx, `UPDATE weir.findings SET cleared_at = $3, cleared_by = 'sync of ' || $5
		WHERE account_id = $1 AND cleared_at IS NULL AND kind = ANY ($4) AND NOT (kind || E'\x1f' || subject) = ANY ($2)`,
		account, open, now, derivedKinds, customer)
	if err != nil {
		return fmt.Errorf("clear findings: %w", err)
	}
	return nil
}

func finishSync(ctx context.Context, tx pgx.Tx, cc claimedCustomer, f *facts, d derived, print string) error {
	keep := !d.apply
	_, err := tx.Exec(ctx, `UPDATE weir.customers SET synced = $2, synced_at = $3, due_at = $4, failures = 0, error = NULL, claimed_until = '-infinity',
		deleted = $5, derived = CASE WHEN $7 THEN derived ELSE nullif($6, '') END WHERE customer = $1`,
		cc.id, cc.wanted, f.now, nullTime(d.recheck), f.deleted, print, keep)
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE weir.webhook_events SET state = 'done' WHERE customer = $1 AND state = 'stored' AND type NOT LIKE 'invoice.%'
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
