package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

const (
	noInvoiceAfter = 2 * time.Hour // after a window's end; drafts stay at most 72 h, and are known
	eventsKept     = 90 * 24 * time.Hour
	lateAges       = 7 * 24 * time.Hour
	settleEach     = time.Hour // business time
	stopMost       = 500       // unconfirmed periods stopped in one transaction
	sweepPages     = 100_000
	sweepMost      = 5000                 // subscriptions whose invoices are listed in one call
	sweepAtOnce    = 50                   // of these, begun between two looks at the time
	voidedLook     = 180 * 24 * time.Hour // the age of invoices that may have been voided
	passAfter      = 3                    // failures of one object
)

// Sweep looks for what webhooks missed: it lists all subscriptions, canceled ones included, marks the customers of those
// that changed, lists the invoices of ended windows that none is known of, and looks which invoices were voided. It also
// settles what time alone settles. It runs daily and on demand. Each call goes on where the last one ended, for two
// thirds of ctx's time: a sweep takes as many calls as it needs, and is due until it has come to its end. No part waits
// for one before it that fails, and no part for one object that always does.
func (b *Biller) Sweep(ctx context.Context) error {
	c, err := b.stripe()
	if err != nil {
		return err
	}
	s := sweep{last: lastStart(ctx)}
	err = b.db.QueryRow(ctx, `UPDATE weir.billing SET sweep_began = least(coalesce(sweep_began, $1), $1)
		RETURNING sweep_began, sweep_after, sweep_listed, sweep_voids, sweep_voids_listed`, b.now()).Scan(&s.began, &s.after, &s.listed, &s.voids, &s.voidsListed)
	if err != nil {
		return fmt.Errorf("begin the sweep: %w", err)
	}
	var errs []error
	done := true
	for _, part := range []func(context.Context, *Client, sweep) (bool, error){b.sweepSubscriptions, b.sweepInvoices, b.sweepVoided, b.lookAtSent} {
		all, err := part(ctx, c, s)
		errs, done = append(errs, err), done && all && err == nil
		if ctx.Err() != nil || isStopped(err) {
			break
		}
	}
	if !done {
		return errors.Join(errs...)
	}
	if err := b.Settled(ctx); err != nil {
		return err
	}
	if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET swept_at = $1, "+newSweep, b.now()); err != nil {
		return fmt.Errorf("note the sweep: %w", err)
	}
	return nil
}

// sweep is how far a sweep has come.
type sweep struct {
	began  time.Time
	after  string    // the subscription that was listed last
	listed bool      // all were
	last   time.Time // wall: nothing is begun later

	voids       string // the void invoice that was listed last
	voidsListed bool   // all were
}

const newSweep = "sweep_began = NULL, sweep_after = '', sweep_listed = false, sweep_voids = '', sweep_voids_listed = false"

func (s sweep) over() bool { return !s.last.IsZero() && time.Now().After(s.last) }

// lastStart is when two thirds of ctx's time are over; zero: it has no end.
func lastStart(ctx context.Context) time.Time {
	if end, ok := ctx.Deadline(); ok {
		return time.Now().Add(time.Until(end) * 2 / 3)
	}
	return time.Time{}
}

// sweepAnew lets the next sweep look at everything again.
func (b *Biller) sweepAnew(ctx context.Context) error {
	if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET "+newSweep); err != nil {
		return fmt.Errorf("begin the sweep anew: %w", err)
	}
	return nil
}

// Settled does what time alone decides: renewals that were never confirmed stop at what is included, held late usage
// ages, old webhook events go. It calls nobody.
func (b *Biller) Settled(ctx context.Context) error {
	now := b.now()
	for stopped := int64(stopMost); stopped == stopMost; {
		if err := b.db.QueryRow(ctx, "SELECT weir.stop_unconfirmed($1, $2)", now, stopMost).Scan(&stopped); err != nil {
			return fmt.Errorf("stop unconfirmed periods: %w", err)
		}
	}
	return b.begin(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE weir.findings f SET cleared_at = $1, cleared_by = 'it is confirmed, or holds nothing'
			FROM weir.periods p WHERE f.kind = 'unconfirmed_period' AND f.cleared_at IS NULL AND f.subject = p.id::text AND (p.confirmed OR p.state = 'void'
			  OR p.state = 'closed' AND NOT EXISTS (SELECT FROM weir.keys k JOIN weir.totals t ON t.key = k.key WHERE k.period_id = p.id AND t.awaiting > 0))`, now)
		if err != nil {
			return fmt.Errorf("clear what was confirmed: %w", err)
		}
		_, err = tx.Exec(ctx, `SELECT weir.find('unconfirmed_period', p.id::text, p.account_id, format(
				'the period ended at %s and neither a read nor an invoice confirmed it: %s units of its overage are recorded as not billable, nothing of them is reported',
				p.ends, (SELECT sum(t.awaiting) FROM weir.keys k JOIN weir.totals t ON t.key = k.key WHERE k.period_id = p.id)), $1)
			FROM weir.periods p WHERE p.source = 'subscription' AND NOT p.confirmed AND p.state = 'closed' AND p.closed_at > $1::timestamptz - interval '90 days'
			  AND EXISTS (SELECT FROM weir.keys k JOIN weir.totals t ON t.key = k.key WHERE k.period_id = p.id AND t.awaiting > 0)`, now)
		if err != nil {
			return fmt.Errorf("find periods that were never confirmed: %w", err)
		}
		_, err = tx.Exec(ctx, `SELECT weir.find('late_aging', l.id::text, k.account_id, format('%s late units are held since %s: release or forgive them with worker late', l.units, l.created_at), $1)
			FROM weir.late l JOIN weir.keys k ON k.key = l.key WHERE l.state = 'held' AND l.created_at <= $1::timestamptz - $2::interval`, now, lateAges)
		if err != nil {
			return fmt.Errorf("find aging late usage: %w", err)
		}
		_, err = tx.Exec(ctx, `DELETE FROM weir.webhook_events WHERE event IN (
			SELECT event FROM weir.webhook_events WHERE received_at < $1::timestamptz - $2::interval AND state IN ('done', 'foreign') LIMIT 10000)`, now, eventsKept)
		if err != nil {
			return fmt.Errorf("forget old events: %w", err)
		}
		if _, err := tx.Exec(ctx, "UPDATE weir.billing SET settled_at = $1", now); err != nil {
			return fmt.Errorf("note what time decided: %w", err)
		}
		return nil
	})
}

// settleHourly does what time alone decides, once an hour in all workers together, whatever Stripe does meanwhile.
func (b *Biller) settleHourly(ctx context.Context) error {
	var due bool
	err := b.db.QueryRow(ctx, "SELECT settled_at IS NULL OR settled_at > $1 OR settled_at <= $1::timestamptz - $2::interval FROM weir.billing", b.now(), settleEach).Scan(&due)
	if err != nil {
		return fmt.Errorf("look when time last decided: %w", err)
	}
	if !due {
		return nil
	}
	return b.Settled(ctx)
}

// sweepSubscriptions reads all subscriptions page by page, from where the sweep is; all says that none is left. One that
// alone stands for its customer is applied from the page, 100 a call; where there is more to know, the customer is
// marked to be read. Two workers that sweep at once list the same pages: whichever place is kept, all before it was
// looked at.
func (b *Biller) sweepSubscriptions(ctx context.Context, c *Client, s sweep) (all bool, err error) {
	for range sweepPages {
		if s.listed || s.over() {
			return s.listed, nil
		}
		form := values("limit", pageSize, "status", "all")
		if s.after != "" {
			form.Add("starting_after", s.after)
		}
		page, _, err := call[list[subscription]](ctx, c, request{method: http.MethodGet, path: "/v1/subscriptions", form: form, version: itemVersion})
		if wait, ok := Throttled(err); ok {
			if err := sleep(ctx, wait); err != nil {
				return false, err
			}
			continue
		}
		if s.after != "" && IsPermanent(err) { // the place is gone
			return false, errors.Join(fmt.Errorf("list subscriptions after %s: %w", s.after, err), b.sweepAnew(ctx))
		}
		if err != nil {
			return false, fmt.Errorf("list subscriptions: %w", err)
		}
		if err := b.sweepPage(ctx, c, page.Data); err != nil {
			return false, err
		}
		all = !page.HasMore || len(page.Data) == 0
		if !all {
			s.after = page.Data[len(page.Data)-1].ID
		}
		if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET sweep_after = $1, sweep_listed = $2 WHERE sweep_began = $3", s.after, all, s.began); err != nil {
			return false, fmt.Errorf("note how far the sweep is: %w", err)
		}
		if all {
			return true, nil
		}
	}
	return false, fmt.Errorf("list subscriptions: more than %d pages", sweepPages)
}

func (b *Biller) sweepPage(ctx context.Context, c *Client, subs []subscription) error {
	catalog, err := usage.LatestCatalog(ctx, b.db)
	if err != nil {
		return err
	}
	meters, err := b.meters(ctx, c, meterIDs(subs))
	if err != nil {
		return err
	}
	for i := range subs {
		s := &subs[i]
		changed, known, alone, err := b.compareStored(ctx, s)
		if err != nil {
			return err
		}
		f := &facts{catalog: catalog.Catalog, meters: meters, subs: []subscription{*s}, matched: map[string]string{}, customer: string(s.Customer), now: b.now()}
		d := derived{matched: map[string]string{}}
		f.match(&d)
		switch {
		case !changed, !known && !d.ours:
			continue
		case alone && !s.ended() && !s.Items.HasMore:
			err := b.applyListed(ctx, c, *s)
			_, throttled := Throttled(err)
			switch {
			case err == nil:
				continue
			case ctx.Err() != nil, isStopped(err), throttled:
				return err
			}
			b.log.Warn("a listed subscription could not be applied; its customer is read instead", "subscription", s.ID, "error", err)
			fallthrough
		default:
			if err := b.begin(ctx, func(tx pgx.Tx) error { return wantCustomer(ctx, tx, string(s.Customer), c.Live(), b.now()) }); err != nil {
				return fmt.Errorf("mark customer %s: %w", s.Customer, err)
			}
		}
	}
	return nil
}

// compareStored says whether a listed subscription differs from what is stored or waits to be confirmed, whether its
// customer is known, and whether it is mapped and no other subscription of it stands.
func (b *Biller) compareStored(ctx context.Context, s *subscription) (changed, known, alone bool, err error) {
	body, err := storedBody(s)
	if err != nil {
		return false, false, false, err
	}
	err = b.db.QueryRow(ctx, `SELECT
		NOT EXISTS (SELECT FROM weir.subscriptions x WHERE x.subscription = $1 AND x.body = $3)
			OR EXISTS (SELECT FROM weir.customers c WHERE c.customer = $2 AND (c.due_at <= $4 OR c.wanted > c.synced))
			OR EXISTS (SELECT FROM weir.customers c JOIN weir.periods p ON p.account_id = c.account_id
			           WHERE c.customer = $2 AND p.state = 'open' AND NOT p.confirmed AND p.source = 'subscription' AND p.starts <= $4),
		EXISTS (SELECT FROM weir.customers c WHERE c.customer = $2),
		EXISTS (SELECT FROM weir.customers c WHERE c.customer = $2 AND c.account_id IS NOT NULL)
			AND EXISTS (SELECT FROM weir.subscriptions x WHERE x.subscription = $1)
			AND NOT EXISTS (SELECT FROM weir.subscriptions x WHERE x.customer = $2 AND x.subscription <> $1 AND x.ended_at IS NULL)`,
		s.ID, string(s.Customer), body, b.now()).Scan(&changed, &known, &alone)
	if err != nil {
		return false, false, false, fmt.Errorf("compare subscription %s: %w", s.ID, err)
	}
	return changed, known, alone, nil
}

// applyListed applies a subscription that stands alone for its customer as a read of that customer.
func (b *Biller) applyListed(ctx context.Context, c *Client, s subscription) error {
	cc, ok, err := b.claimCustomer(ctx, string(s.Customer), c.Live(), true)
	if err != nil || !ok {
		return err
	}
	f, err := b.facts(ctx, c, cc, []subscription{s}, false)
	if err == nil {
		err = b.applySync(ctx, cc, f, derive(f), nil)
	}
	if err != nil {
		return errors.Join(err, b.syncFailed(ctx, cc, err))
	}
	return nil
}

// sweepInvoices lists the invoices of subscriptions with ended windows that are not final, each once in a sweep, and
// declares windows final whose subscription has ended without one. all says that none is left.
func (b *Biller) sweepInvoices(ctx context.Context, c *Client, s sweep) (all bool, err error) {
	rows, err := b.db.Query(ctx, `SELECT w.subscription FROM (
			SELECT s.subscription FROM weir.books x JOIN weir.segments s ON s.key = x.key
			LEFT JOIN weir.subscriptions u ON u.subscription = s.subscription
			WHERE NOT x.final AND least(s.window_end, coalesce(u.ended_at, 'infinity')) <= $1::timestamptz - $2::interval
			UNION -- of periods that nobody could confirm: their invoice does
			SELECT u.subscription FROM weir.periods p JOIN weir.customers c ON c.account_id = p.account_id JOIN weir.subscriptions u ON u.customer = c.customer
			WHERE p.source = 'subscription' AND NOT p.confirmed AND p.state = 'closed' AND p.ends <= $1::timestamptz - $2::interval AND p.ends > $1::timestamptz - interval '90 days'
			  AND EXISTS (SELECT FROM weir.keys k JOIN weir.totals t ON t.key = k.key WHERE k.period_id = p.id AND t.awaiting > 0)) w
		WHERE NOT EXISTS (SELECT FROM weir.subscriptions u WHERE u.subscription = w.subscription AND u.listed_at >= $3)
		ORDER BY 1 LIMIT $4`, b.now(), noInvoiceAfter, s.began, sweepMost)
	if err != nil {
		return false, fmt.Errorf("find windows without an invoice: %w", err)
	}
	subs, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("find windows without an invoice: %w", err)
	}
	for some := range slices.Chunk(subs, sweepAtOnce) {
		if s.over() {
			return false, nil
		}
		if err := each(ctx, b.cfg.Readers, some, func(ctx context.Context, id string) error { return b.sweepSubscription(ctx, c, id) }); err != nil {
			return false, err
		}
	}
	return len(subs) < sweepMost, nil
}

// sweepVoided looks which invoices of the last half year are void, the newest first, from where the sweep is, and lets
// those be read that were not when they were read last: an invoice may be voided at any time after its windows were
// final. all says that none is left.
func (b *Biller) sweepVoided(ctx context.Context, c *Client, s sweep) (all bool, err error) {
	for range sweepPages {
		if s.voidsListed || s.over() {
			return s.voidsListed, nil
		}
		form := values("limit", pageSize, "status", "void", "created[gte]", units(s.began.Add(-voidedLook).Unix()))
		if s.voids != "" {
			form.Add("starting_after", s.voids)
		}
		page, _, err := call[list[invoice]](ctx, c, request{method: http.MethodGet, path: "/v1/invoices", form: form})
		if s.voids != "" && IsPermanent(err) { // the place is gone
			return false, errors.Join(fmt.Errorf("list voided invoices after %s: %w", s.voids, err), b.sweepAnew(ctx))
		}
		if err != nil {
			return false, fmt.Errorf("list voided invoices: %w", err)
		}
		ids := make([]string, 0, len(page.Data))
		for i := range page.Data {
			ids = append(ids, page.Data[i].ID)
		}
		if _, err := b.db.Exec(ctx, "UPDATE weir.invoices SET wanted = wanted + 1 WHERE invoice = ANY ($1) AND status <> 'void' AND wanted = read", ids); err != nil {
			return false, fmt.Errorf("mark voided invoices: %w", err)
		}
		if s.voidsListed = !page.HasMore || len(ids) == 0; !s.voidsListed {
			s.voids = ids[len(ids)-1]
		}
		if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET sweep_voids = $1, sweep_voids_listed = $2 WHERE sweep_began = $3", s.voids, s.voidsListed, s.began); err != nil {
			return false, fmt.Errorf("note how far the sweep is: %w", err)
		}
	}
	return s.voidsListed, nil
}

// sweepSubscription lists the invoices of one subscription, or passes over it.
func (b *Biller) sweepSubscription(ctx context.Context, c *Client, sub string) error {
	passed, err := b.orPass(ctx, c, sub, func() error { return b.sweepSubscriptionInvoices(ctx, c, sub) })
	if err != nil || !passed {
		return err
	}
	if _, err := b.db.Exec(ctx, "UPDATE weir.subscriptions SET listed_at = $2 WHERE subscription = $1", sub, b.now()); err != nil {
		return fmt.Errorf("pass over %s: %w", sub, err)
	}
	return nil
}

// orPass does something for one object of a sweep, up to three times. What fails each time, although Stripe and the
// database answer otherwise, is found and passed over until the next sweep.
func (b *Biller) orPass(ctx context.Context, c *Client, id string, do func() error) (passed bool, err error) {
	for try := int32(1); ; try++ {
		err := do()
		_, throttled := Throttled(err)
		switch {
		case err == nil:
			return false, clearFinding(ctx, b.db, "sweep_skipped", id, "the sweep", b.now())
		case ctx.Err() != nil, isStopped(err), throttled:
			return false, err
		case try < passAfter && !IsPermanent(err):
			if sleep(ctx, backOff(try, err)) != nil {
				return false, err
			}
			continue
		}
		if _, _, probe := call[struct{}](ctx, c, request{method: http.MethodGet, path: "/v1/invoices", form: values("limit", "1")}); probe != nil {
			return false, err
		}
		return true, raise(ctx, b.db, finding{kind: "sweep_skipped", subject: id, message: fmt.Sprintf(
			"the sweep could not look at %s and went on without it, it tries again tomorrow: %s", id, clip(err.Error()))}, b.now())
	}
}

func (b *Biller) sweepSubscriptionInvoices(ctx context.Context, c *Client, sub string) error {
	found, err := pages(ctx, c, "/v1/invoices", "", "", func(i *invoice) string { return i.ID }, "subscription", sub)
	if err != nil {
		return fmt.Errorf("list invoices of %s: %w", sub, err)
	}
	now := b.now()
	for i := range found {
		inv := &found[i]
		_, err := b.db.Exec(ctx, `INSERT INTO weir.invoices AS i (invoice, customer, livemode, seen_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (invoice) DO UPDATE SET wanted = i.wanted + 1 WHERE i.status IS DISTINCT FROM $5 OR i.read = 0`,
			inv.ID, string(inv.Customer), c.Live(), now, inv.Status)
		if err != nil {
			return fmt.Errorf("mark invoice %s: %w", inv.ID, err)
		}
		if err := b.ReadInvoice(ctx, inv.ID); err != nil {
			return err
		}
	}
	return b.begin(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT weir.end_without_invoice($1, $2, $3)", sub, now, noInvoiceAfter); err != nil {
			return fmt.Errorf("end %s without an invoice: %w", sub, err)
		}
		if _, err := tx.Exec(ctx, "UPDATE weir.subscriptions SET listed_at = $2 WHERE subscription = $1", sub, now); err != nil {
			return fmt.Errorf("note that the invoices of %s were listed: %w", sub, err)
		}
		return nil
	})
}
