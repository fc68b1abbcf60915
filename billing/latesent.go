package billing

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	sentLook = 20 * time.Hour // between two looks at an invoice item
	sentMost = 500            // in one pass
)

// sentRow is late usage whose invoice item is at Stripe, and on no finalized invoice that was read.
type sentRow struct {
	ID, Account int64
	Units       int64
	Object      string
}

// lookAtSent looks once a day at the invoice items of late usage that no read invoice bills yet: one that was deleted at
// Stripe is for a person again, and an invoice that took one is read, whatever its webhooks did. all says that none is
// left of this pass.
func (b *Biller) lookAtSent(ctx context.Context, c *Client, s sweep) (all bool, err error) {
	rows, err := b.db.Query(ctx, `SELECT l.id, k.account_id, l.units, l.object FROM weir.late l JOIN weir.keys k ON k.key = l.key
		WHERE l.state = 'sent' AND l.object IS NOT NULL AND (l.read_at IS NULL OR l.read_at <= $1::timestamptz - $2::interval)
		ORDER BY l.read_at NULLS FIRST, l.id LIMIT $3`, b.now(), sentLook, sentMost)
	if err != nil {
		return false, fmt.Errorf("find late usage that was sent: %w", err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[sentRow])
	if err != nil {
		return false, fmt.Errorf("find late usage that was sent: %w", err)
	}
	for some := range slices.Chunk(list, sweepAtOnce) {
		if s.over() {
			return false, nil
		}
		if err := each(ctx, b.cfg.Readers, some, func(ctx context.Context, l sentRow) error { return b.lookOrPass(ctx, c, l) }); err != nil {
			return false, err
		}
	}
	return true, nil
}

func (b *Biller) lookOrPass(ctx context.Context, c *Client, l sentRow) error {
	passed, err := b.orPass(ctx, c, l.Object, func() error { return b.lookAtItem(ctx, c, l) })
	if err != nil || !passed {
		return err
	}
	if _, err := b.db.Exec(ctx, "UPDATE weir.late SET read_at = $2 WHERE id = $1", l.ID, b.now()); err != nil {
		return fmt.Errorf("pass over %s: %w", l.Object, err)
	}
	return nil
}

func (b *Biller) lookAtItem(ctx context.Context, c *Client, l sentRow) error {
	it, _, err := call[invoiceItem](ctx, c, request{method: http.MethodGet, path: "/v1/invoiceitems/" + l.Object, endpoint: "GET /v1/invoiceitems/{id}"})
	if isMissing(err) || it.Deleted {
		return b.itemDeleted(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("look at late row %d: %w", l.ID, err)
	}
	now := b.now()
	if _, err := b.db.Exec(ctx, "UPDATE weir.late SET read_at = $2 WHERE id = $1", l.ID, now); err != nil {
		return fmt.Errorf("store late row %d: %w", l.ID, err)
	}
	if it.Invoice == "" {
		return nil // it waits for the next invoice
	}
	return b.readAgain(ctx, string(it.Invoice), string(it.Customer), c.Live())
}

// itemDeleted gives late usage whose invoice item somebody deleted back to a person.
func (b *Biller) itemDeleted(ctx context.Context, l sentRow) error {
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE weir.late SET state = 'held', object = NULL, invoice = NULL, error = 'its invoice item ' || object || ' was deleted at Stripe'
			WHERE id = $1 AND state = 'sent'`, l.ID)
		if err != nil {
			return fmt.Errorf("store late row %d: %w", l.ID, err)
		}
		if tag.RowsAffected() == 0 {
			return nil
		}
		return raise(ctx, tx, finding{kind: "late_deleted", subject: units(l.ID), account: l.Account, message: fmt.Sprintf(
			"the invoice item of late row %d (%d units) was deleted at Stripe: nobody bills it. Settle it with worker late release", l.ID, l.Units)}, now)
	})
}

// presentSegment is the newest item of the account's present customer for a key's feature: where late usage goes that
// lies in no segment of its own. It is nil when the account has no customer, or never had an item there.
func presentSegment(ctx context.Context, tx pgx.Tx, key int64) (*int64, error) {
	var id *int64
	err := tx.QueryRow(ctx, `SELECT max(s.id) FROM weir.keys k JOIN weir.keys o ON o.account_id = k.account_id AND o.feature_id = k.feature_id
		JOIN weir.segments s ON s.key = o.key JOIN weir.customers c ON c.customer = s.customer AND c.account_id = k.account_id AND NOT c.deleted
		WHERE k.key = $1`, key).Scan(&id)
	if err != nil {
		return nil, fmt.Errorf("find the present item of key %d: %w", key, err)
	}
	return id, nil
}
