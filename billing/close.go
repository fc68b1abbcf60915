package billing

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const closeChunk = 500 // periods in one transaction

// Close does what is due of closing: it marks the keys of ended periods ended, and closes those periods that no node,
// no reservation and no row in the inbox can add to any more, or whose invoice can wait no longer. Their final reports
// are stored. It does not fold: periods with rows in the inbox wait for the fold. It returns how many it closed.
func (b *Biller) Close(ctx context.Context) (int64, error) {
	for {
		n, err := b.beginClose(ctx)
		if err != nil {
			return 0, err
		}
		if n < closeChunk {
			break
		}
	}
	var all, after int64
	for {
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

func (b *Biller) beginClose(ctx context.Context) (n int64, err error) {
	err = b.begin(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT weir.begin_close($1, $2)", b.now(), closeChunk).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("begin to close periods: %w", err)
	}
	return n, nil
}

func (b *Biller) finishClose(ctx context.Context, after int64) (last *int64, closed int64, err error) {
	err = b.begin(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT last, closed FROM weir.finish_close($1, $2, $3)", b.now(), after, closeChunk).Scan(&last, &closed)
	})
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
