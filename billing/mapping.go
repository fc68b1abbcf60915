package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// ErrMapped says that an account or a customer is mapped to another one.
var ErrMapped = errors.New("already mapped")

// Mapping is one account and its customer at Stripe.
type Mapping struct {
	Account  string
	Customer string
	Source   string // metadata, client_reference_id, or who set it
	At       time.Time
}

// Mappings lists what an account is mapped to; none is not an error.
func (b *Biller) Mappings(ctx context.Context, account string) ([]Mapping, error) {
	rows, err := b.db.Query(ctx, `SELECT a.account, c.customer, coalesce(c.source, ''), coalesce(c.mapped_at, c.seen_at) FROM weir.customers c
		JOIN weir.accounts a ON a.id = c.account_id WHERE a.account = $1 ORDER BY c.customer`, account)
	if err != nil {
		return nil, fmt.Errorf("list mappings: %w", err)
	}
	m, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Mapping])
	if err != nil {
		return nil, fmt.Errorf("list mappings: %w", err)
	}
	return m, nil
}

// link maps within a transaction. Without force an existing mapping of either side to another stays and ErrMapped
// says so.
func (b *Biller) link(ctx context.Context, tx pgx.Tx, account, customer string, live bool, source, actor string, force bool, now time.Time) error {
	// Locks in the common order: the fold, the account, then what is ours.
	if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
		return fmt.Errorf("link account %q: %w", account, err)
	}
	id, err := usage.FindAccount(ctx, tx, account, true, now)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", id); err != nil {
		return fmt.Errorf("link account %q: %w", account, err)
	}
	_, err = tx.Exec(ctx, `INSERT INTO weir.customers (customer, livemode, seen_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`, customer, live, now)
	if err != nil {
		return fmt.Errorf("link account %q: %w", account, err)
	}
	var has *int64
	var mode bool
	if err := tx.QueryRow(ctx, "SELECT account_id, livemode FROM weir.customers WHERE customer = $1 FOR UPDATE", customer).Scan(&has, &mode); err != nil {
		return fmt.Errorf("link account %q: %w", account, err)
	}
	if mode != live {
		return &permanentError{fmt.Errorf("link account %q: customer %s is of the other mode", account, customer)}
	}
	if has != nil && *has == id {
		return nil
	}
	var other string
	err = tx.QueryRow(ctx, "SELECT customer FROM weir.customers WHERE account_id = $1 AND livemode = $2 FOR UPDATE", id, live).Scan(&other)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("link account %q: %w", account, err)
	}
	if !force && (has != nil || other != "") {
		return fmt.Errorf("link account %q to customer %s: %w", account, customer, ErrMapped)
	}
	for _, old := range []struct {
		customer string
		account  *int64
	}{{other, &id}, {customer, has}} {
		if old.customer != "" && old.account != nil {
			if err := unlink(ctx, tx, old.customer, *old.account, source, actor, now); err != nil {
				return err
			}
		}
	}
	if has != nil {
		if err := loseCustomer(ctx, tx, *has, fmt.Sprintf("its customer %s was mapped to account %q", customer, account), now); err != nil {
			return err
		}
	}
	return b.setMapping(ctx, tx, id, customer, source, actor, now)
}

func (b *Biller) setMapping(ctx context.Context, tx pgx.Tx, account int64, customer, source, actor string, now time.Time) error {
	read := source == "metadata" // by a sync, which goes on with what it has read
	_, err := tx.Exec(ctx, `UPDATE weir.customers SET account_id = $2, source = $3, mapped_at = $4, derived = NULL, deleted = false,
		wanted = wanted + CASE WHEN $5 THEN 0 ELSE 1 END WHERE customer = $1`, customer, account, source, now, read)
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO weir.mapping_log (customer, account_id, source, actor, at) VALUES ($1, $2, $3, $4, $5)",
			customer, account, source, actor, now)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT weir.unfind('unmapped_customer', $1, $2, $3), weir.unfind('customer_lost', $4, $2, $3)", customer, actor, now, units(account))
	}
	if err != nil {
		return fmt.Errorf("map customer %s: %w", customer, err)
	}
	if read {
		return nil
	}
	return b.nudge(ctx, tx, SyncArgs{Customer: customer})
}

// loseCustomer leaves an account without a customer, in the way that is told: no overage of it is billable from this
// transaction on, and its plan ends with its period unless it is mapped again. Its segments have ended.
func loseCustomer(ctx context.Context, tx pgx.Tx, account int64, how string, now time.Time) error {
	if _, err := tx.Exec(ctx, "SELECT weir.lose_customer($1, $2)", account, now); err != nil {
		return fmt.Errorf("leave an account without a customer: %w", err)
	}
	return raise(ctx, tx, finding{kind: "customer_lost", subject: units(account), account: account, message: how +
		": overage stops at what is included, and the plan ends with its period. Map the account to its own customer"}, now)
}

// unlink ends a mapping: open segments of the account end, with a link up to what is counted.
func unlink(ctx context.Context, tx pgx.Tx, customer string, account int64, source, actor string, now time.Time) error {
	_, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", account)
	if err == nil {
		_, err = tx.Exec(ctx, `SELECT weir.end_segment(k.key, $2, $2, 'remap') FROM weir.keys k JOIN weir.segments s ON s.key = k.key AND s.ends IS NULL
			WHERE k.account_id = $1 AND s.customer = $3`, account, now, customer)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "UPDATE weir.customers SET account_id = NULL, source = NULL, mapped_at = NULL, derived = NULL WHERE customer = $1", customer)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO weir.mapping_log (customer, account_id, source, actor, at) VALUES ($1, NULL, $2, $3, $4)", customer, source, actor, now)
	}
	if err != nil {
		return fmt.Errorf("unmap customer %s: %w", customer, err)
	}
	return nil
}

// mapByReference maps a customer to the account that the host named to Stripe; a conflict is for a person.
func (b *Biller) mapByReference(ctx context.Context, tx pgx.Tx, customer, account, source string, now time.Time) error {
	if customer == "" {
		return nil
	}
	if err := usage.CheckAccount(account); err != nil {
		return raise(ctx, tx, finding{kind: "bad_reference", subject: customer, message: fmt.Sprintf("%s of %s is no account id: %s", source, customer, err)}, now)
	}
	if source == "metadata" {
		// Metadata stand for good: they don't map again what somebody has unmapped.
		var by *string
		err := tx.QueryRow(ctx, `SELECT (SELECT CASE WHEN m.account_id IS NULL THEN m.actor END FROM weir.mapping_log m
			WHERE m.customer = $1 ORDER BY m.id DESC LIMIT 1)`, customer).Scan(&by)
		if err != nil {
			return fmt.Errorf("map customer %s: %w", customer, err)
		}
		if by != nil {
			return raise(ctx, tx, finding{kind: "mapping_conflict", subject: customer, message: fmt.Sprintf(
				"metadata say that customer %s is account %q, from which %s unmapped it: map it again with PUT /v1/accounts/{account}, or take account_id out of the metadata", customer, account, *by)}, now)
		}
	}
	live := b.cfg.Stripe != nil && b.cfg.Stripe.Live()
	err := b.link(ctx, tx, account, customer, live, source, source, false, now)
	if errors.Is(err, ErrMapped) {
		return raise(ctx, tx, finding{kind: "mapping_conflict", subject: customer, message: fmt.Sprintf(
			"%s says that customer %s is account %q, but one of them is mapped to another: settle it with PUT /v1/accounts/{account}", source, customer, account)}, now)
	}
	return err
}
