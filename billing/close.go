package billing

import (
	"context"
	"fmt"
)

const closeMost = 500 // periods in one transaction

// Close does what is due of closing: it marks the keys of ended periods ended, and closes those periods that no node,
// no reservation and no row in the inbox can add to any more, or whose invoice can wait no longer. Their final reports
// are stored. It does not fold: periods with rows in the inbox wait for the fold. It returns how many it closed.
func (b *Biller) Close(ctx context.Context) (int64, error) {
	var all int64
	for {
		begun, n, err := b.closeChunk(ctx)
		if err != nil {
			return all, err
		}
		if all += n; begun == 0 {
			break
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

// closeChunk and finishClose are one statement each, and so one transaction.
func (b *Biller) closeChunk(ctx context.Context) (begun, closed int64, err error) {
	if err := b.db.QueryRow(ctx, "SELECT begun, closed FROM weir.close_chunk($1, $2)", b.now(), closeMost).Scan(&begun, &closed); err != nil {
		return 0, 0, fmt.Errorf("begin to close periods: %w", err)
	}
	return begun, closed, nil
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
