package billing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	planChunk  = 500       // keys planned in one transaction
	planEach   = time.Hour // business time between two passes over all keys
	rebookMost = 1000      // books made again in one transaction
)

// planNext stores links for the next keys that are due at once: those of ended periods whose deadline is near, and, once
// an hour, all that have moved. It reports whether there may be more of them.
func (b *Biller) planNext(ctx context.Context) (more bool, err error) {
	keys, err := b.keysDue(ctx)
	if err != nil || len(keys) == 0 {
		return false, err
	}
	n, err := b.plan(ctx, keys, "due")
	return n > 0, err // without any the rest waits for a legal minute
}

func (b *Biller) keysDue(ctx context.Context) ([]int64, error) {
	rows, err := b.db.Query(ctx, `SELECT key FROM weir.chains WHERE due ORDER BY planned_at NULLS FIRST, key LIMIT $1`, planChunk)
	if err != nil {
		return nil, fmt.Errorf("find chains to plan: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("find chains to plan: %w", err)
	}
	return keys, nil
}

// plan stores the next links of some keys, in one transaction.
func (b *Biller) plan(ctx context.Context, keys []int64, cause string) (int64, error) {
	var n int64
	now := b.now()
	err := b.begin(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT weir.plan_links($1, $2, $3)", keys, now, cause).Scan(&n); err != nil {
			return err
		}
		// What waits for a legal minute goes to the back of the queue.
		if _, err := tx.Exec(ctx, "UPDATE weir.chains SET planned_at = $2 WHERE key = ANY ($1) AND due", keys, now); err != nil {
			return err
		}
		// More than Stripe can count exactly is for a person.
		_, err := tx.Exec(ctx, `
			WITH big AS (
				UPDATE weir.chains c SET due = false FROM weir.keys k, weir.totals t
				WHERE c.key = ANY ($1) AND k.key = c.key AND t.key = c.key
				  AND abs(weir.billable(t.overage, t.not_billable, k.highest_maximum) - c.upto) >= 1000000000000000
				RETURNING c.key, k.account_id, weir.billable(t.overage, t.not_billable, k.highest_maximum) - c.upto AS units)
			SELECT weir.find('too_large', b.key::text, b.account_id, format('%s units are more than one meter event can hold: nothing of them is reported', b.units), $2) FROM big b`, keys, now)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("plan reports: %w", err)
	}
	return n, nil
}

// wakeChains marks what the hour, a deadline, or a fold after the close makes due. Any number of workers may do it.
func (b *Biller) wakeChains(ctx context.Context) error {
	now := b.now()
	var last *time.Time
	if err := b.db.QueryRow(ctx, "SELECT planned_at FROM weir.billing").Scan(&last); err != nil {
		return fmt.Errorf("wake chains: %w", err)
	}
	if err := b.wakeEnded(ctx, now); err != nil {
		return err
	}
	if last != nil && now.Sub(*last) < planEach && !now.Before(*last) {
		return nil
	}
	var after int64
	for {
		var top *int64
		err := b.db.QueryRow(ctx, `
			WITH chunk AS (
				SELECT t.key, t.overage, t.not_billable FROM weir.totals t WHERE t.key > $1 ORDER BY t.key LIMIT 20000),
			moved AS (
				SELECT c.key FROM chunk c JOIN weir.keys k ON k.key = c.key AND k.billability <> 'awaiting'
				JOIN weir.periods p ON p.id = k.period_id AND p.confirmed AND p.state <> 'void'
				LEFT JOIN weir.chains h ON h.key = c.key
				LEFT JOIN weir.books x ON x.key = c.key
				WHERE NOT coalesce(x.final, false) AND weir.billable(c.overage, c.not_billable, k.highest_maximum) <> coalesce(h.upto, 0)
				  -- one unsent link at a time: while nothing can be sent, nothing piles up
				  AND NOT EXISTS (SELECT FROM weir.reports r WHERE r.key = c.key AND r.state = 'stored' AND NOT r.replaced)),
			woken AS (INSERT INTO weir.chains AS h (key, due) SELECT m.key, true FROM moved m ORDER BY m.key ON CONFLICT (key) DO UPDATE SET due = true WHERE NOT h.due)
			SELECT max(key) FROM chunk`, after).Scan(&top)
		if err != nil {
			return fmt.Errorf("wake chains: %w", err)
		}
		if top == nil {
			break
		}
		after = *top
	}
	if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET planned_at = greatest(planned_at, $1)", now); err != nil {
		return fmt.Errorf("wake chains: %w", err)
	}
	return nil
}

// wakeEnded marks ended periods that close still waits for 10 minutes before their deadline (45 minutes after the end
// at the latest), and closed ones into which something was folded or adjusted since.
func (b *Biller) wakeEnded(ctx context.Context, now time.Time) error {
	b.mu.Lock()
	due := time.Since(b.woken) >= b.cfg.LookEach
	if due {
		b.woken = time.Now()
	}
	b.mu.Unlock()
	if !due {
		return nil
	}
	_, err := b.db.Exec(ctx, `
		INSERT INTO weir.chains AS h (key, due)
		SELECT DISTINCT k.key, true FROM weir.closing_due($1) d
		JOIN weir.keys k ON k.period_id = d.period_id AND k.billability <> 'awaiting'
		JOIN weir.totals t ON t.key = k.key
		LEFT JOIN weir.chains c ON c.key = k.key
		WHERE weir.billable(t.overage, t.not_billable, k.highest_maximum) <> coalesce(c.upto, 0)
		ORDER BY k.key
		ON CONFLICT (key) DO UPDATE SET due = true WHERE NOT h.due`, now)
	if err != nil {
		return fmt.Errorf("wake ended periods: %w", err)
	}
	rows, err := b.db.Query(ctx, "SELECT key FROM weir.moved ORDER BY key LIMIT $1", rebookMost)
	if err != nil {
		return fmt.Errorf("find books to make again: %w", err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil || len(keys) == 0 {
		return err
	}
	return b.rebook(ctx, keys)
}

// rebook makes the books of closed keys again after something was folded or adjusted, and plans what that moved.
func (b *Biller) rebook(ctx context.Context, keys []int64) error {
	now := b.now()
	err := b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM weir.moved WHERE key = ANY ($1)", keys); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT weir.book($1, $2)", keys, now); err != nil {
			return err
		}
		// What a later period opened with grows with it.
		if _, err := tx.Exec(ctx, "SELECT weir.carry(ARRAY(SELECT DISTINCT k.period_id FROM weir.keys k WHERE k.key = ANY ($1)))", keys); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO weir.chains AS h (key, due) SELECT k, true FROM unnest($1::bigint[]) k ORDER BY k
			ON CONFLICT (key) DO UPDATE SET due = true WHERE NOT h.due`, keys)
		return err
	})
	if err != nil {
		return fmt.Errorf("make the books again: %w", err)
	}
	return nil
}
