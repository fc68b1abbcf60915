package billing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

// ReleaseLate decides about held late usage: "invoice_item" puts it on an invoice, "forgive" writes it off, and
// "credit_note" credits what was billed too much. What is not held any more is ErrNotHeld.
type ReleaseLate struct {
	ID     int64  `json:"id"`
	Policy string `json:"policy"`

	account string // whose it is, once it was found
}

func (a *ReleaseLate) about() (name, subject, account string) {
	return "late release", "late usage " + units(a.ID), a.account
}

func (a *ReleaseLate) check(*Biller) error {
	switch a.Policy {
	case "invoice_item", "forgive", "credit_note":
		return nil
	}
	return fmt.Errorf("%q is no decision about late usage: use invoice_item, forgive or credit_note", a.Policy)
}

// find looks whose it is.
func (a *ReleaseLate) find(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, "SELECT x.account FROM weir.late l JOIN weir.keys k ON k.key = l.key JOIN weir.accounts x ON x.id = k.account_id WHERE l.id = $1", a.ID).Scan(&a.account)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) { // one that is not there is refused below
		return fmt.Errorf("find late usage %d: %w", a.ID, err)
	}
	return nil
}

func (a *ReleaseLate) apply(ctx context.Context, b *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
		return "", fmt.Errorf("release late usage %d: %w", a.ID, err)
	}
	var key, count int64
	var segment *int64
	err := tx.QueryRow(ctx, `SELECT l.key, l.units, l.segment, (SELECT x.account FROM weir.accounts x JOIN weir.keys k ON k.account_id = x.id WHERE k.key = l.key)
		FROM weir.late l WHERE l.id = $1 AND l.state = 'held' FOR UPDATE`, a.ID).Scan(&key, &count, &segment, &a.account)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("release late usage %d: %w", a.ID, ErrNotHeld)
	}
	if err != nil {
		return "", fmt.Errorf("release late usage %d: %w", a.ID, err)
	}
	if a.Policy == "invoice_item" && segment == nil {
		if segment, err = presentSegment(ctx, tx, key); err != nil {
			return "", err
		}
	}
	var message string
	switch {
	case a.Policy == "forgive":
		message = fmt.Sprintf("%s units of late usage are written off", wording.Count(count))
		_, err = tx.Exec(ctx, `WITH l AS (UPDATE weir.late SET state = 'forgiven', policy = 'forgive', actor = $2, reason = $3, settled_at = $4 WHERE id = $1 RETURNING key, units)
			INSERT INTO weir.forgiven (key, units, cause, actor, reason, at) SELECT key, units, 'late', $2, $3, $4 FROM l`, a.ID, by.Actor, by.Reason, now)
	case a.Policy == "invoice_item" && count > 0 && segment != nil, a.Policy == "credit_note" && count < 0 && segment != nil:
		message = fmt.Sprintf("%s units of late usage go on an invoice item", wording.Count(count))
		if count < 0 {
			message = fmt.Sprintf("%s units that were billed too much are credited", wording.Count(-count))
		}
		_, err = tx.Exec(ctx, `UPDATE weir.late SET state = 'stored', policy = $2, actor = $3, reason = $4, segment = $5, retry_at = '-infinity', error = NULL WHERE id = $1`,
			a.ID, a.Policy, by.Actor, by.Reason, segment)
	default:
		return "", &permanentError{fmt.Errorf("release late usage %d: %q does not fit %d units: use invoice_item for late ones that have an item, credit_note for negative ones, or forgive", a.ID, a.Policy, count)}
	}
	if err == nil {
		_, err = tx.Exec(ctx, "SELECT weir.book(ARRAY[$1::bigint], $2), weir.unfind('late_refused', $3, $4, $2), weir.unfind('late_deleted', $3, $4, $2)", key, now, units(a.ID), by.Actor)
	}
	if err != nil {
		return "", fmt.Errorf("release late usage %d: %w", a.ID, err)
	}
	return message, b.nudge(ctx, tx, LateArgs{})
}

// MapCustomer maps an account to a customer at Stripe. What either was mapped to before is unmapped: the account's
// segment ends, links keep their customer, and corrections go where the units went. The customer's subscriptions are
// read soon after.
type MapCustomer struct {
	Account  string `json:"-"`
	Customer string `json:"customer"`
}

func (a *MapCustomer) about() (name, subject, account string) { return "map", a.Account, a.Account }

func (a *MapCustomer) check(*Biller) error {
	if err := usage.CheckAccount(a.Account); err != nil {
		return fmt.Errorf("map account: %w", err)
	}
	if bounded(a.Customer) == "" || (!strings.HasPrefix(a.Customer, "cus_") && !strings.HasPrefix(a.Customer, "acct_")) {
		return fmt.Errorf("map account %q: %q is no customer id: it begins with cus_", a.Account, a.Customer)
	}
	return nil
}

func (a *MapCustomer) apply(ctx context.Context, b *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	live := b.cfg.Stripe != nil && b.cfg.Stripe.Live()
	return "mapped to " + a.Customer + ", whose subscriptions are read next", b.link(ctx, tx, a.Account, a.Customer, live, by.Way, by.Actor, true, now)
}

// UnmapCustomer takes an account's customer away: its segment ends, and what is counted from then on is billed to
// nobody.
type UnmapCustomer struct {
	Account string `json:"-"`
}

func (a *UnmapCustomer) about() (name, subject, account string) { return "unmap", a.Account, a.Account }
func (a *UnmapCustomer) check(*Biller) error                    { return usage.CheckAccount(a.Account) }

func (a *UnmapCustomer) apply(ctx context.Context, b *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	live := b.cfg.Stripe != nil && b.cfg.Stripe.Live()
	id, err := usage.FindAccount(ctx, tx, a.Account, false, now)
	if err != nil {
		return "", fmt.Errorf("unmap account %q: %w", a.Account, err)
	}
	if _, err := tx.Exec(ctx, "SELECT weir.fold_account($1)", id); err != nil {
		return "", fmt.Errorf("unmap account %q: %w", a.Account, err)
	}
	var customer string
	err = tx.QueryRow(ctx, "SELECT customer FROM weir.customers WHERE account_id = $1 AND livemode = $2 FOR UPDATE", id, live).Scan(&customer)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", &permanentError{fmt.Errorf("unmap account %q: it is mapped to no customer of this mode", a.Account)}
	}
	if err != nil {
		return "", fmt.Errorf("unmap account %q: %w", a.Account, err)
	}
	if err := unlink(ctx, tx, customer, id, by.Way, by.Actor, now); err != nil {
		return "", err
	}
	return "unmapped from " + customer + ": what is counted from now on is on nobody's invoice", loseCustomer(ctx, tx, id, "it was unmapped from its customer "+customer, now)
}

// ClearFinding closes an open finding that a person has settled. What is found again opens again, as another one.
type ClearFinding struct {
	ID int64 `json:"id"`

	account string // whom it is about, once it was found
}

func (a *ClearFinding) about() (name, subject, account string) {
	return "clear finding", "finding " + units(a.ID), a.account
}

func (a *ClearFinding) check(*Biller) error { return nil }

// find looks whom it is about.
func (a *ClearFinding) find(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, `SELECT coalesce(a.account, '') FROM weir.findings f LEFT JOIN weir.accounts a ON a.id = f.account_id
		WHERE f.id = $1 AND f.cleared_at IS NULL`, a.ID).Scan(&a.account)
	if errors.Is(err, pgx.ErrNoRows) {
		err = usage.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("clear finding %d: %w", a.ID, err)
	}
	return nil
}

func (a *ClearFinding) apply(ctx context.Context, _ *Biller, tx pgx.Tx, by usage.By, now time.Time) (string, error) {
	if err := a.find(ctx, tx); err != nil {
		return "", err
	}
	var kind string
	err := tx.QueryRow(ctx, "UPDATE weir.findings SET cleared_at = $2, cleared_by = $3 WHERE id = $1 AND cleared_at IS NULL RETURNING kind", a.ID, now, by.Actor).Scan(&kind)
	if errors.Is(err, pgx.ErrNoRows) { // somebody was quicker
		err = usage.ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("clear finding %d: %w", a.ID, err)
	}
	return kind + " is cleared; what is found again opens again", nil
}

// GiveUpNode stops waiting for a reaped node whose journal is lost: what it had not flushed is gone.
type GiveUpNode struct {
	Node int64 `json:"node"`
}

func (a *GiveUpNode) about() (name, subject, account string) {
	return "give up node", "node " + units(a.Node), ""
}
func (a *GiveUpNode) check(*Biller) error { return nil }

func (a *GiveUpNode) apply(ctx context.Context, _ *Biller, tx pgx.Tx, _ usage.By, _ time.Time) (string, error) {
	given, err := usage.GiveUp(ctx, tx, a.Node)
	if err != nil {
		return "", err
	}
	if given {
		return "what the node flushed counts, what its journal may still hold does not", nil
	}
	state, err := usage.NodeState(ctx, tx, a.Node)
	if err != nil {
		return "", fmt.Errorf("node %d: %w", a.Node, err)
	}
	return "", &permanentError{fmt.Errorf("node %d is %s: only a reaped node can be given up", a.Node, state)}
}
