package billing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// ErrActive is an account that cannot be forgotten: a subscription of it is live.
var ErrActive = errors.New("the account has a live subscription: cancel it at Stripe first, and wait until it is read (worker sync)")

// Forgotten says what a Forget took away. Everything else stays: periods, units, reports, invoices and late usage, under
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
// not exist is usage.ErrNotFound, one with a live subscription ErrActive.
type Forget struct {
	Account string `json:"-"`

	Done Forgotten `json:"-"`
}

func (a *Forget) about() (name, subject, account string) {
	account = a.Account
	if a.Done.Name != "" {
		account = a.Done.Name
	}
	return "forget", account, account
}

func (a *Forget) check(*Biller) error { return usage.CheckAccount(a.Account) }

func (a *Forget) apply(ctx context.Context, b *Biller, tx pgx.Tx, _ usage.By, now time.Time) (string, error) {
	var id int64
	var active bool
	err := tx.QueryRow(ctx, `SELECT a.id, a.anchor IS NOT NULL AND (a.plan_until IS NULL OR a.plan_until > $2)
		FROM weir.accounts a WHERE a.account = $1 FOR NO KEY UPDATE`, a.Account, now).Scan(&id, &active)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = usage.ErrNotFound
	case err == nil && active:
		err = ErrActive
	case err == nil:
		done := Forgotten{Name: fmt.Sprintf("forgotten-%d", id)}
		if err = b.forget(ctx, tx, id, a.Account, &done); err == nil {
			a.Done = done
		}
	}
	if err != nil {
		return "", fmt.Errorf("forget an account: %w", err)
	}
	return "what said who it was is gone", nil
}

// itsCustomers are those whom an account is or was mapped to.
const itsCustomers = `SELECT c.customer FROM weir.customers c WHERE c.account_id = $1
	UNION SELECT m.customer FROM weir.mapping_log m WHERE m.account_id = $1`

const forgottenText = "the account was forgotten"

func (b *Biller) forget(ctx context.Context, tx pgx.Tx, id int64, account string, f *Forgotten) error {
	for _, step := range []struct {
		rows *int64
		sql  string
		args []any
	}{
		{&f.Contacts, "DELETE FROM weir.contacts WHERE account_id = $1", []any{id}},
		{&f.Answers, "DELETE FROM weir.consumed_once WHERE account_id = $1", []any{id}},
		{&f.Events, "UPDATE weir.webhook_events SET body = '{}', note = $2 WHERE body <> '{}' AND customer IN (" + itsCustomers + ")", []any{id, forgottenText}},
		{new(int64), "UPDATE weir.subscriptions SET body = '{}' WHERE customer IN (" + itsCustomers + ")", []any{id}},
		{&f.Findings, `UPDATE weir.findings SET subject = CASE WHEN subject = $3 THEN $4 ELSE subject END,
				message = CASE WHEN account_id = $1 OR subject = $3 THEN $2 ELSE replace(message, $5, '(forgotten)') END
			WHERE account_id = $1 OR subject = $3 OR strpos(message, $5) > 0`, []any{id, forgottenText, account, f.Name, strconv.Quote(account)}},
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
