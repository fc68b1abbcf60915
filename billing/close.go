package billing

import (
	"context"
	"fmt"
	"slices"
)

const (
	beginMost = 2_000 // periods marked in one transaction, which is quick
	closeMost = 500   // periods closed in one transaction
)

// Close does what is due of closing: it marks the keys of ended periods ended, and closes those periods that no node,
// no reservation and no row in the inbox can add to any more, or whose invoice can wait no longer. Their final reports
// are stored. It does not fold: periods with rows in the inbox wait for the fold. It returns how many it closed.
func (b *Biller) Close(ctx context.Context) (int64, error) {
	var all int64
	for {
		ids, err := b.beginClose(ctx)
		if err != nil {
			return all, err
		}
		if len(ids) == 0 {
			break
		}
		for some := range slices.Chunk(ids, closeMost) {
			n, err := b.finishThese(ctx, some)
			if err != nil {
				return all, err
			}
			all += n
		}
	}
	for after := int64(0); ; { // those that had to wait
		last, n, err := b.finishClose(ctx, after)
		if err != nil {
			return all, err
		}
		all += n
		if last == nil {
			break
		}
		after = *last
	}
	return all, b.noteGivenUp(ctx)
}

// Each of these is one statement, and so one transaction. Marking is one of its own: it holds quotas of many accounts,
// as closing does when it sets carries again.
func (b *Biller) beginClose(ctx context.Context) (ids []int64, err error) {
	if err := b.db.QueryRow(ctx, "SELECT weir.begin_close($1, $2)", b.now(), beginMost).Scan(&ids); err != nil {
		return nil, fmt.Errorf("begin to close periods: %w", err)
	}
	return ids, nil
}

func (b *Biller) finishThese(ctx context.Context, ids []int64) (closed int64, err error) {
	if err := b.db.QueryRow(ctx, "SELECT weir.finish_these($1, $2)", ids, b.now()).Scan(&closed); err != nil {
		return 0, fmt.Errorf("close periods: %w", err)
	}
	return closed, nil
}

func (b *Biller) finishClose(ctx context.Context, after int64) (last *int64, closed int64, err error) {
	err = b.db.QueryRow(ctx, "SELECT last, closed FROM weir.finish_close($1, $2, $3)", b.now(), after, closeMost).Scan(&last, &closed)
	if err != nil {
		return nil, 0, fmt.Errorf("close periods: %w", err)
	}
	return last, closed, nil
}

// noteGivenUp raises what close did not wait for.
func (b *Biller) noteGivenUp(ctx context.Context) error {
	_, err := b.db.Exec(ctx, `SELECT weir.find('given_up', p.id::text, p.account_id, 'closed at its deadline without waiting for: ' || p.given_up
			|| '. What they still bring is late', p.closed_at)
		FROM weir.periods p WHERE p.given_up IS NOT NULL AND p.closed_at > $1::timestamptz - interval '2 days'
		  AND NOT EXISTS (SELECT FROM weir.findings f WHERE f.kind = 'given_up' AND f.subject = p.id::text)`, b.now())
	if err != nil {
		return fmt.Errorf("note what close gave up: %w", err)
	}
	return nil
}
