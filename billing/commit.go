package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// commitLook is the pause before the second look at a commit whose answer was lost; each next one is twice as long, up
// to a second.
const commitLook = 10 * time.Millisecond

// errUnsure says that nobody could learn in time whether a transaction was committed.
var errUnsure = errors.New("it is not known whether this was done: look into the audit log before it is asked for again")

// surely is begin for a transaction that writes an audit row, whose number do leaves in row. A commit whose answer was
// lost is no error when it was done, and the error that lost it when it was not; one that still runs is waited for.
// Where the database tells neither within StoreTime, because it can't be reached or the commit hangs, the error is
// errUnsure: the row, if it comes, says that it was done.
func (b *Biller) surely(ctx context.Context, row *int64, do func(tx pgx.Tx) error) error {
	var number string // of the transaction, once all but the commit is done
	err := b.begin(ctx, func(tx pgx.Tx) error {
		if err := do(tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT pg_current_xact_id()::text").Scan(&number)
	})
	if err == nil || number == "" {
		return err
	}
	done, lookErr := b.committed(ctx, number, *row)
	switch {
	case lookErr != nil:
		return errors.Join(errUnsure, err, lookErr)
	case done:
		return nil
	}
	return err
}

// committed waits until a transaction has ended, and reports whether it was committed: its audit row is there then, and
// only then. The row has the transaction's number, since a database that was failed over meanwhile may have given
// either to another.
func (b *Biller) committed(ctx context.Context, number string, row int64) (done bool, err error) {
	ctx, cancel := b.after(ctx)
	defer cancel()
	for wait := commitLook; ; wait = min(2*wait, time.Second) {
		var runs bool
		err = b.db.QueryRow(ctx, "SELECT coalesce(pg_xact_status($1::text::xid8) = 'in progress', false)", number).Scan(&runs)
		if err == nil && !runs {
			break
		}
		if sleep(ctx, wait) != nil {
			return false, errors.Join(fmt.Errorf("wait for transaction %s to end: %w", number, context.Cause(ctx)), err)
		}
	}
	err = b.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.audit WHERE id = $1 AND xmin = $2::text::xid8::xid)", row, number).Scan(&done)
	if err != nil {
		return false, fmt.Errorf("look whether audit row %d is there: %w", row, err)
	}
	return done, nil
}
