package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Settlement is what a Settle found and did for one feature of an account.
type Settlement struct {
	Feature  string `json:"feature"`
	Billable int64  `json:"billable"` // overage units that may be billed, as counted now
	Reported int64  `json:"reported"` // of these, accepted by Stripe
	Waiting  int64  `json:"waiting"`  // of these, not accepted yet: no minute is legal yet, or Stripe did not answer
}

// settlePause is between two looks of settle.
const settlePause = 100 * time.Millisecond

// settle reports all that is counted for an account now and returns when Stripe has it, or when ctx ends, or when what
// is left has to wait (a subscription younger than 3 minutes has no legal minute yet; sending may be stopped). The host
// calls it before it changes or cancels a subscription. An unknown account is usage.ErrNotFound.
func (b *Biller) settle(ctx context.Context, account string) ([]Settlement, error) {
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

// sync reads an account's customer again now. An account that is mapped to none is usage.ErrNotFound.
func (b *Biller) sync(ctx context.Context, account string) error {
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

// replayCustomers are the customers that Replay reads again, of one account (its id) or of all (0).
const replayCustomers = `((c.account_id IN (SELECT f.account_id FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = ANY ($1)) AND $2::bigint IN (0, c.account_id))
	OR ($2 = 0 AND c.customer IN (SELECT f.subject FROM weir.findings f WHERE f.cleared_at IS NULL AND f.kind = 'unmapped_customer'))
	OR ($2 = c.account_id AND EXISTS (SELECT FROM weir.webhook_events e WHERE e.customer = c.customer AND e.state = 'stored')))`

// replay tries again what waited for a cause to be mended, of one account (its id) or of all (0): customers that could
// not be understood, and reports that Stripe refused, whose windows are open. It returns how many of each it took.
func (b *Biller) replay(ctx context.Context, account int64, actor string) (customers, reports int, err error) {
	tag, err := b.db.Exec(ctx, "UPDATE weir.customers c SET wanted = wanted + 1, derived = NULL, claimed_until = '-infinity' WHERE "+replayCustomers, derivedKinds, account)
	if err != nil {
		return 0, 0, fmt.Errorf("replay customers: %w", err)
	}
	ids, err := b.rejected(ctx, account)
	if err != nil {
		return int(tag.RowsAffected()), 0, err
	}
	for _, id := range ids {
		if err := b.replace(ctx, id, actor); err != nil {
			return int(tag.RowsAffected()), reports, err
		}
		reports++
	}
	return int(tag.RowsAffected()), reports, nil
}

// rejected are the refused reports that can be sent again, of one account (its id) or of all (0).
func (b *Biller) rejected(ctx context.Context, account int64) ([]int64, error) {
	rows, err := b.db.Query(ctx, `SELECT r.id FROM weir.reports r WHERE r.state = 'rejected' AND NOT r.replaced AND r.stamp IS NOT NULL AND r.code <> 'too_old'
		AND ($1 = 0 OR r.key IN (SELECT k.key FROM weir.keys k WHERE k.account_id = $1))
		AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = r.key AND b.final) ORDER BY r.id LIMIT 10000`, account)
	if err != nil {
		return nil, fmt.Errorf("find rejected reports: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find rejected reports: %w", err)
	}
	return ids, nil
}
