package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// ErrActive is an account that cannot be forgotten: a subscription of it is live.
var ErrActive = errors.New("the account has a live subscription: cancel it at Stripe first, and wait until it is read (worker sync)")

// Forgotten says what Forget took away. Everything else stays: periods, units, reports, invoices and late usage, under
// the new name.
type Forgotten struct {
	Name      string `json:"name"`      // what the account is called from now on
	Contacts  int64  `json:"contacts"`  // addresses for warnings
	Answers   int64  `json:"answers"`   // of idempotency keys
	Events    int64  `json:"events"`    // webhook events whose text was removed
	Findings  int64  `json:"findings"`  // whose text was removed
	Customers int64  `json:"customers"` // at Stripe, which are deleted there
}

// Forget takes away what says who an account was, and keeps what was counted and billed: the account gets a name that
// is a number, its address, the answers of its idempotency keys, and the texts of its webhook events and findings go.
// Rows of the ledgers stay as they are; they know the account by number, and the customer by Stripe's id, which means
// nothing once the customer is deleted at Stripe. A later call with the old id makes a new account. An account that does
// not exist is usage.ErrNotFound, one with a live subscription ErrActive. It is one transaction.
func (b *Biller) Forget(ctx context.Context, account string) (Forgotten, error) {
	var f Forgotten
	err := pgx.BeginFunc(ctx, b.db, func(tx pgx.Tx) error {
		var id int64
		var active bool
		err := tx.QueryRow(ctx, `SELECT a.id, a.anchor IS NOT NULL AND (a.plan_until IS NULL OR a.plan_until > $2)
			FROM weir.accounts a WHERE a.account = $1 FOR NO KEY UPDATE`, account, b.now()).Scan(&id, &active)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return usage.ErrNotFound
		case err != nil:
			return err
		case active:
			return ErrActive
		}
		f.Name = fmt.Sprintf("forgotten-%d", id)
		return b.forget(ctx, tx, id, account, &f)
	})
	if err != nil {
		return Forgotten{}, fmt.Errorf("forget an account: %w", err)
	}
	return f, nil
}

const forgottenText = "the account was forgotten"

func (b *Biller) forget(ctx context.Context, tx pgx.Tx, id int64, account string, f *Forgotten) error {
	for _, step := range []struct {
		rows *int64
		sql  string
		args []any
	}{
		{&f.Contacts, "DELETE FROM weir.contacts WHERE account_id = $1", []any{id}},
		{&f.Answers, "DELETE FROM weir.consumed_once WHERE account_id = $1", []any{id}},
		{&f.Events, `UPDATE weir.webhook_events SET body = '{}', note = $2 WHERE state <> 'stored' AND body <> '{}'
			AND customer IN (SELECT c.customer FROM weir.customers c WHERE c.account_id = $1
			                 UNION SELECT m.customer FROM weir.mapping_log m WHERE m.account_id = $1)`, []any{id, forgottenText}},
		{&f.Findings, `UPDATE weir.findings SET message = $2, subject = CASE WHEN subject = $3 THEN $4 ELSE subject END
			WHERE account_id = $1 OR subject = $3`, []any{id, forgottenText, account, f.Name}},
		{new(int64), "UPDATE weir.overrides SET reason = $2 WHERE account_id = $1", []any{id, forgottenText}},
		{new(int64), "UPDATE weir.accounts SET account = $2, shadow = false WHERE id = $1", []any{id, f.Name}},
		{new(int64), "SELECT weir.touch($1)", []any{id}},
	} {
		tag, err := tx.Exec(ctx, step.sql, step.args...)
		if err != nil {
			return err
		}
		*step.rows = tag.RowsAffected()
	}
	return tx.QueryRow(ctx, "SELECT count(*) FROM weir.customers WHERE account_id = $1", id).Scan(&f.Customers)
}
