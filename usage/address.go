package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetContact stores where an account's warnings go by mail, making the account where it is new; an empty address
// forgets it. The caller has checked that it is one address.
func SetContact(ctx context.Context, db DB, account, email, actor string, now time.Time) error {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		id, err := FindAccount(ctx, tx, account, true, now)
		if err != nil {
			return err
		}
		if email == "" {
			_, err = tx.Exec(ctx, "DELETE FROM weir.contacts WHERE account_id = $1", id)
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO weir.contacts (account_id, email, actor, set_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (account_id) DO UPDATE SET email = excluded.email, actor = excluded.actor, set_at = excluded.set_at`, id, email, actor, now)
		return err
	})
	return wrap("set contact", err)
}
