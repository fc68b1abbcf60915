package billing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// syncHold is for how long one worker has a customer; an answer that comes later than that is dropped.
const syncHold = time.Minute

// claimedCustomer is a customer whose turn is ours.
type claimedCustomer struct {
	id      string
	live    bool
	claim   int64 // fences the answer
	wanted  int64
	account *int64
	derived string
}

// SyncCustomer reads all subscriptions of a customer and derives its account's plan from them. One worker at a time
// reads a customer: another one's turn, and a customer that is not due, are no error and do nothing unless force is
// set, which reads a customer that is not due. A customer that nobody knows is taken on.
func (b *Biller) SyncCustomer(ctx context.Context, id string, force bool) error {
	c, err := b.stripe()
	if err != nil {
		return err
	}
	if bounded(id) == "" {
		return &permanentError{fmt.Errorf("sync customer: %q is no customer id", id)}
	}
	cc, ok, err := b.claimCustomer(ctx, id, c.Live(), force)
	if err != nil || !ok {
		return err
	}
	if err := b.syncClaimed(ctx, c, cc); err != nil {
		return errors.Join(err, b.syncFailed(ctx, cc, err))
	}
	return nil
}

// SyncDue reads up to most customers that are due, the longest waiting first, and returns how many it took.
func (b *Biller) SyncDue(ctx context.Context, most int) (int, error) {
	if _, err := b.stripe(); err != nil {
		return 0, err
	}
	rows, err := b.db.Query(ctx, `
		(SELECT customer FROM weir.customers WHERE wanted > synced AND NOT deleted AND claimed_until <= clock_timestamp() ORDER BY claimed_until LIMIT $2)
		UNION (SELECT customer FROM weir.customers WHERE due_at <= $1 AND NOT deleted AND claimed_until <= clock_timestamp() ORDER BY due_at LIMIT $2)
		LIMIT $2`, b.now(), most)
	if err != nil {
		return 0, fmt.Errorf("find customers to read: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return 0, fmt.Errorf("find customers to read: %w", err)
	}
	return len(ids), each(ctx, b.cfg.Readers, ids, func(ctx context.Context, id string) error { return b.SyncCustomer(ctx, id, false) })
}

func (b *Biller) claimCustomer(ctx context.Context, id string, live, force bool) (claimedCustomer, bool, error) {
	cc := claimedCustomer{id: id}
	if force {
		_, err := b.db.Exec(ctx, "INSERT INTO weir.customers (customer, livemode, seen_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", id, live, b.now())
		if err != nil {
			return cc, false, fmt.Errorf("claim customer %s: %w", id, err)
		}
	}
	var derived *string
	err := b.db.QueryRow(ctx, `UPDATE weir.customers SET claim = claim + 1, claimed_until = clock_timestamp() + $2
		WHERE customer = $1 AND livemode = $4 AND claimed_until <= clock_timestamp() AND ($5 OR ((wanted > synced OR due_at <= $3) AND NOT deleted))
		RETURNING livemode, claim, wanted, account_id, derived`, id, syncHold, b.now(), live, force).
		Scan(&cc.live, &cc.claim, &cc.wanted, &cc.account, &derived)
	if errors.Is(err, pgx.ErrNoRows) {
		return cc, false, nil
	}
	if err != nil {
		return cc, false, fmt.Errorf("claim customer %s: %w", id, err)
	}
	if derived != nil {
		cc.derived = *derived
	}
	return cc, true, nil
}

// syncFailed gives the turn back, to be taken again after a pause that grows to 30 s.
func (b *Biller) syncFailed(ctx context.Context, cc claimedCustomer, cause error) error {
	ctx, cancel := b.after(ctx)
	defer cancel()
	if isStopped(cause) {
		if err := b.stop(ctx, "unauthorized", "Stripe does not accept the API key: "+cause.Error()); err != nil {
			return err
		}
	}
	pause, throttled := Throttled(cause)
	if !throttled {
		pause = 0
	}
	_, err := b.db.Exec(ctx, `UPDATE weir.customers SET failures = failures + 1, error = left($3, 500),
		claimed_until = clock_timestamp() + greatest($4, least(interval '30 s', interval '1 s' * power(2, least(failures, 5))))
		WHERE customer = $1 AND claim = $2`, cc.id, cc.claim, cause.Error(), pause)
	if err != nil {
		return fmt.Errorf("give back customer %s: %w", cc.id, err)
	}
	return nil
}

func (b *Biller) syncClaimed(ctx context.Context, c *Client, cc claimedCustomer) error {
	deleted := false
	subs, err := subscriptionsOf(ctx, c, cc.id)
	if isMissing(err) {
		deleted, subs, err = true, nil, nil
	}
	if err != nil {
		return err
	}
	if len(subs) == 0 && !deleted && cc.account != nil {
		// A deleted customer has no subscriptions any more, and a mapped one without any is rare.
		cu, err := readCustomer(ctx, c, cc.id)
		if err != nil && !isMissing(err) {
			return err
		}
		deleted = cu.Deleted || err != nil
	}
	f, err := b.facts(ctx, c, cc, subs, deleted)
	if err != nil {
		return err
	}
	d := derive(f)
	account, err := b.accountOf(ctx, c, cc, f, &d)
	if err != nil {
		return err
	}
	return b.applySync(ctx, cc, f, d, account)
}

// facts gathers what derivation needs.
func (b *Biller) facts(ctx context.Context, c *Client, cc claimedCustomer, subs []subscription, deleted bool) (*facts, error) {
	published, err := usage.LatestCatalog(ctx, b.db)
	if err != nil {
		return nil, err
	}
	f := &facts{catalog: published.Catalog, subs: subs, customer: cc.id, deleted: deleted, now: b.now(), matched: map[string]string{}}
	if f.meters, err = b.meters(ctx, c, meterIDs(subs)); err != nil {
		return nil, err
	}
	rows, err := b.db.Query(ctx, "SELECT price, plan FROM weir.prices WHERE plan IS NOT NULL")
	if err != nil {
		return nil, fmt.Errorf("read matched prices: %w", err)
	}
	var id, plan string
	if _, err := pgx.ForEachRow(rows, []any{&id, &plan}, func() error { f.matched[id] = plan; return nil }); err != nil {
		return nil, fmt.Errorf("read matched prices: %w", err)
	}
	if cc.account != nil {
		if err := b.db.QueryRow(ctx, "SELECT coalesce(plan, '') FROM weir.accounts WHERE id = $1", *cc.account).Scan(&f.last); err != nil {
			return nil, fmt.Errorf("read the account's plan: %w", err)
		}
	}
	return f, b.pastDue(ctx, f)
}

// pastDue gives past due subscriptions the time at which a read first showed them so.
func (b *Biller) pastDue(ctx context.Context, f *facts) error {
	for i := range f.subs {
		s := &f.subs[i]
		if s.Status != "past_due" {
			continue
		}
		s.pastDueSince = f.now
		var since *time.Time
		err := b.db.QueryRow(ctx, "SELECT past_due_since FROM weir.subscriptions WHERE subscription = $1", s.ID).Scan(&since)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read subscription %s: %w", s.ID, err)
		}
		if since != nil {
			s.pastDueSince = *since
		}
	}
	return nil
}

// accountOf is the account that a customer is mapped to, or is to be mapped to by its subscriptions' or its own
// metadata; nil: none yet.
func (b *Biller) accountOf(ctx context.Context, c *Client, cc claimedCustomer, f *facts, d *derived) (*string, error) {
	if cc.account != nil || f.deleted {
		return nil, nil
	}
	for i := range f.subs {
		if a := f.subs[i].Metadata["account_id"]; a != "" {
			return &a, nil
		}
	}
	if !d.ours {
		return nil, nil
	}
	cu, err := readCustomer(ctx, c, cc.id)
	if err != nil {
		return nil, err
	}
	if a := cu.Metadata["account_id"]; a != "" {
		return &a, nil
	}
	return nil, nil
}

// fingerprint identifies what was derived, so that reading the same thing again changes nothing.
func (d *derived) fingerprint() (string, error) {
	body, err := json.Marshal(struct {
		S usage.PlanState
		G map[string]segment
		E time.Time
	}{d.state, d.segments, d.early})
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16]), nil
}
