package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Settlement is what Settle found and did for one feature of an account.
type Settlement struct {
	Feature  string `json:"feature"`
	Billable int64  `json:"billable"` // overage units that may be billed, as counted now
	Reported int64  `json:"reported"` // of these, accepted by Stripe
	Waiting  int64  `json:"waiting"`  // of these, not accepted yet: no minute is legal yet, or Stripe did not answer
}

// settlePause is between two looks of Settle.
const settlePause = 100 * time.Millisecond

// Settle reports all that is counted for an account now and returns when Stripe has it, or when ctx ends, or when what
// is left has to wait (a subscription younger than 3 minutes has no legal minute yet; sending may be stopped). The host
// calls it before it changes or cancels a subscription. An unknown account is usage.ErrNotFound.
func (b *Biller) Settle(ctx context.Context, account string) ([]Settlement, error) {
	if _, err := b.stripe(); err != nil {
		return nil, err
	}
	id, err := usage.FindAccount(ctx, b.db, account, false, b.now())
	if err != nil {
		return nil, fmt.Errorf("settle %q: %w", account, err)
	}
	keys, customers, err := b.settleKeys(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(keys) > 0 {
		if _, err := b.plan(ctx, keys, "settle"); err != nil {
			return nil, err
		}
	}
	for {
		for _, c := range customers {
			if err := b.sendAll(ctx, c); err != nil {
				return nil, fmt.Errorf("settle %q: %w", account, err)
			}
		}
		out, moving, err := b.settled(ctx, keys)
		if err != nil || !moving {
			return out, err
		}
		t := time.NewTimer(settlePause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return out, nil
		}
	}
}

// settleKeys folds an account and returns the keys of its periods that are not final, and their customers.
func (b *Biller) settleKeys(ctx context.Context, account int64) (keys []int64, customers []string, err error) {
	err = b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", account); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT coalesce(array_agg(DISTINCT k.key), '{}'), coalesce(array_agg(DISTINCT s.customer), '{}')
			FROM weir.keys k JOIN weir.segments s ON s.key = k.key JOIN weir.periods p ON p.id = k.period_id
			LEFT JOIN weir.books b ON b.key = k.key
			WHERE k.account_id = $1 AND p.state <> 'void' AND NOT coalesce(b.final, false)`, account).Scan(&keys, &customers)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("settle: %w", err)
	}
	return keys, customers, nil
}

// settled reads how far reporting is; moving says that links are under way and another look may find more.
func (b *Biller) settled(ctx context.Context, keys []int64) (out []Settlement, moving bool, err error) {
	rows, err := b.db.Query(ctx, `
		SELECT f.name, sum(x.billable)::bigint, sum(x.reported)::bigint, sum(x.billable - x.reported)::bigint, bool_or(x.sending)
		FROM (SELECT k.feature_id, weir.billable(t.overage, t.not_billable, k.highest_maximum) AS billable,
		             coalesce((SELECT sum(r.value) FROM weir.reports r WHERE r.key = k.key AND NOT r.replaced AND r.state IN ('delivered', 'recorded')), 0) AS reported,
		             EXISTS (SELECT FROM weir.reports r WHERE r.key = k.key AND NOT r.replaced AND r.state IN ('stored', 'unknown') AND r.retry_at < 'infinity')
		               AND NOT EXISTS (SELECT FROM weir.stops) AS sending
		      FROM weir.keys k JOIN weir.totals t ON t.key = k.key WHERE k.key = ANY ($1)) x
		JOIN weir.features f ON f.id = x.feature_id GROUP BY f.name ORDER BY f.name`, keys)
	if err != nil {
		return nil, false, fmt.Errorf("settle: %w", err)
	}
	var s Settlement
	var one bool
	_, err = pgx.ForEachRow(rows, []any{&s.Feature, &s.Billable, &s.Reported, &s.Waiting, &one}, func() error {
		out, moving = append(out, s), moving || one
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("settle: %w", err)
	}
	return out, moving, nil
}

// Adjust corrects what was counted for an account and feature in the period that holds at: it adds units, or refunds
// them when negative. Overage that moves is reported before the invoice is final, and late or credited after it. Actor
// and reason go into the ledger. More than is counted is usage.ErrRefund.
func (b *Biller) Adjust(ctx context.Context, account, feature string, at time.Time, count int64, actor, reason string) (usage.Adjustment, error) {
	var a usage.Adjustment
	if actor == "" || reason == "" || count == 0 {
		return a, &permanentError{errors.New("adjust usage: give units, an actor and a reason")}
	}
	id, err := usage.FindAccount(ctx, b.db, account, false, b.now())
	if err != nil {
		return a, fmt.Errorf("adjust %q: %w", account, err)
	}
	now := b.now()
	err = b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", id); err != nil {
			return err
		}
		var key int64
		err := tx.QueryRow(ctx, `SELECT k.key FROM weir.keys k JOIN weir.features f ON f.id = k.feature_id WHERE k.period_id = weir.period_at($1, $2) AND f.name = $3`, id, at, feature).Scan(&key)
		if errors.Is(err, pgx.ErrNoRows) {
			return &permanentError{fmt.Errorf("no period of it holds %s for feature %q: %w", at.Format(time.RFC3339), feature, usage.ErrNotFound)}
		}
		if err != nil {
			return err
		}
		if a, err = usage.Adjust(ctx, tx, key, count, reason, actor, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT weir.book(ARRAY[$1::bigint], $2)", key, now); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO weir.chains AS h (key, due) VALUES ($1, true) ON CONFLICT (key) DO UPDATE SET due = true", key)
		if err != nil {
			return err
		}
		return b.nudge(ctx, tx, ReportArgs{})
	})
	if err != nil {
		return a, fmt.Errorf("adjust %q: %w", account, err)
	}
	return a, nil
}

// Sync reads an account's customer again now. An account that is mapped to none is usage.ErrNotFound.
func (b *Biller) Sync(ctx context.Context, account string) error {
	list, err := b.Mappings(ctx, account)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("sync %q: it is mapped to no customer: %w", account, usage.ErrNotFound)
	}
	for _, m := range list {
		if err := b.SyncCustomer(ctx, m.Customer, true); err != nil {
			return err
		}
	}
	return nil
}

// Replay tries again what waited for a cause to be mended: customers with prices that no plan named, and reports that
// Stripe refused, whose windows are open. It returns how many of each it took.
func (b *Biller) Replay(ctx context.Context, actor string) (customers, reports int, err error) {
	if actor == "" {
		return 0, 0, &permanentError{errors.New("replay: give an actor")}
	}
	tag, err := b.db.Exec(ctx, `UPDATE weir.customers c SET wanted = wanted + 1, derived = NULL, claimed_until = '-infinity'
		WHERE c.account_id IN (SELECT f.account_id FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = ANY ($1))
		   OR c.customer IN (SELECT f.subject FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = 'unmapped_customer')`, derivedKinds)
	if err != nil {
		return 0, 0, fmt.Errorf("replay customers: %w", err)
	}
	rows, err := b.db.Query(ctx, `SELECT r.id FROM weir.reports r WHERE r.state = 'rejected' AND NOT r.replaced AND r.stamp IS NOT NULL AND r.code <> 'too_old'
		AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final) ORDER BY r.id LIMIT 10000`)
	if err != nil {
		return 0, 0, fmt.Errorf("find rejected reports: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, 0, fmt.Errorf("find rejected reports: %w", err)
	}
	for _, id := range ids {
		if err := b.replace(ctx, id, actor); err != nil {
			return int(tag.RowsAffected()), reports, err
		}
		reports++
	}
	return int(tag.RowsAffected()), reports, nil
}
