package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// Settle reports all that is counted for an account now and returns when Stripe has it, when ctx ends, or when what is
// left has to wait. The host does it before it changes or cancels a subscription.
type Settle struct {
	Account string `json:"-"`

	Done []Settlement `json:"-"`
}

func (a *Settle) about() (name, subject, account string) { return "settle", a.Account, a.Account }
func (a *Settle) check(*Biller) error                    { return usage.CheckAccount(a.Account) }

func (a *Settle) run(ctx context.Context, b *Biller, _ usage.By) (string, error) {
	var err error
	a.Done, err = b.settle(ctx, a.Account)
	var reported, waiting int64
	for _, s := range a.Done {
		reported, waiting = reported+s.Reported, waiting+s.Waiting
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s units are at Stripe, %s wait", wording.Count(reported), wording.Count(waiting)), nil
}

func (a *Settle) foresee(ctx context.Context, b *Biller) ([]string, error) {
	if _, err := b.stripe(); err != nil {
		return nil, err
	}
	id, err := usage.FindAccount(ctx, b.db, a.Account, false, b.now())
	if err != nil {
		return nil, fmt.Errorf("account %q: %w", a.Account, err)
	}
	var keys []int64
	err = b.db.QueryRow(ctx, `SELECT coalesce(array_agg(DISTINCT k.key), '{}') FROM weir.keys k JOIN weir.segments s ON s.key = k.key
		JOIN weir.periods p ON p.id = k.period_id LEFT JOIN weir.books x ON x.key = k.key
		WHERE k.account_id = $1 AND p.state <> 'void' AND NOT coalesce(x.final, false)`, id).Scan(&keys)
	if err != nil {
		return nil, fmt.Errorf("settle: %w", err)
	}
	now, _, err := b.settled(ctx, keys)
	if err != nil {
		return nil, err
	}
	lines := []string{"All overage that is counted now and has a legal minute is reported to Stripe."}
	for _, s := range now {
		lines = append(lines, fmt.Sprintf("%s: %s units are billable, %s of them are at Stripe, %s are not", s.Feature, wording.Count(s.Billable), wording.Count(s.Reported), wording.Count(s.Waiting)))
	}
	if len(now) == 0 {
		lines = append(lines, "Nothing is: no period that is not final has a metered item.")
	}
	return lines, nil
}

// Resync reads an account's customer at Stripe again, now.
type Resync struct {
	Account string `json:"-"`
}

func (a *Resync) about() (name, subject, account string) { return "resync", a.Account, a.Account }
func (a *Resync) check(*Biller) error                    { return usage.CheckAccount(a.Account) }

func (a *Resync) run(ctx context.Context, b *Biller, _ usage.By) (string, error) {
	if _, err := b.stripe(); err != nil {
		return "", err
	}
	return "the subscriptions were read", b.sync(ctx, a.Account)
}

func (a *Resync) foresee(ctx context.Context, b *Biller) ([]string, error) {
	if _, err := b.stripe(); err != nil {
		return nil, err
	}
	all, err := b.Mappings(ctx, a.Account)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("resync %q: it is mapped to no customer: %w", a.Account, usage.ErrNotFound)
	}
	var lines []string
	for _, m := range all {
		lines = append(lines, "All subscriptions of "+m.Customer+" are read at Stripe, and the account's plan and period follow from them.")
	}
	return lines, nil
}

// ResyncChanged reads all customers whose subscriptions changed, after a look for what webhooks missed.
type ResyncChanged struct {
	Customers int `json:"-"`
}

func (a *ResyncChanged) about() (name, subject, account string) {
	return "resync", "all that changed", ""
}
func (a *ResyncChanged) check(*Biller) error { return nil }

// syncBatch is how many customers are read before it is looked for more.
const syncBatch = 100

func (a *ResyncChanged) run(ctx context.Context, b *Biller, _ usage.By) (string, error) {
	if err := b.sweepAnew(ctx); err != nil {
		return "", err
	}
	if err := b.Sweep(ctx); err != nil {
		return "", err
	}
	for {
		n, err := b.SyncDue(ctx, syncBatch)
		a.Customers += n
		if n == 0 || err != nil {
			return fmt.Sprintf("the subscriptions of %d customers were read", a.Customers), err
		}
	}
}

func (a *ResyncChanged) foresee(context.Context, *Biller) ([]string, error) {
	return []string{"All subscriptions are listed, and the customers of those that changed are read."}, nil
}

// Replay tries again what waited for a cause to be mended: customers whose subscriptions could not be understood, and
// reports that Stripe refused, whose windows are open. Of one account, or of all.
type Replay struct {
	Account string `json:"-"` // empty: all

	Customers int `json:"-"`
	Reports   int `json:"-"`
}

func (a *Replay) about() (name, subject, account string) { return "replay", a.Account, a.Account }

func (a *Replay) check(*Biller) error {
	if a.Account == "" {
		return nil
	}
	return usage.CheckAccount(a.Account)
}

func (a *Replay) run(ctx context.Context, b *Biller, by usage.By) (string, error) {
	id, err := a.id(ctx, b)
	if err != nil {
		return "", err
	}
	a.Customers, a.Reports, err = b.replay(ctx, id, by.Actor)
	return fmt.Sprintf("%d customers are read again, %d refused reports are sent again", a.Customers, a.Reports), err
}

func (a *Replay) id(ctx context.Context, b *Biller) (int64, error) {
	if a.Account == "" {
		return 0, nil
	}
	id, err := usage.FindAccount(ctx, b.db, a.Account, false, b.now())
	if err != nil {
		return 0, fmt.Errorf("replay %q: %w", a.Account, err)
	}
	return id, nil
}

func (a *Replay) foresee(ctx context.Context, b *Biller) ([]string, error) {
	id, err := a.id(ctx, b)
	if err != nil {
		return nil, err
	}
	var customers, events int64
	err = b.db.QueryRow(ctx, `SELECT count(*), coalesce(sum((SELECT count(*) FROM weir.webhook_events e WHERE e.customer = c.customer AND e.state = 'stored')), 0)
		FROM weir.customers c WHERE `+replayCustomers, derivedKinds, id).Scan(&customers, &events)
	if err != nil {
		return nil, fmt.Errorf("find what to replay: %w", err)
	}
	reports, err := b.rejected(ctx, id)
	if err != nil {
		return nil, err
	}
	return []string{
		fmt.Sprintf("%d customers are read again, for whom %d stored webhooks wait.", customers, events),
		fmt.Sprintf("%d refused reports get a new identifier and minute, and are sent again.", len(reports)),
	}, nil
}

// SayRestored stops all reports because the database was restored from a backup: it may have forgotten what was sent.
type SayRestored struct{}

func (a *SayRestored) about() (name, subject, account string) { return "restored", "reports", "" }
func (a *SayRestored) check(*Biller) error                    { return nil }

func (a *SayRestored) run(ctx context.Context, b *Biller, by usage.By) (string, error) {
	return "reports wait until every open window was compared with its summary", b.restored(ctx, by.Actor)
}

func (a *SayRestored) foresee(context.Context, *Biller) ([]string, error) {
	return []string{"Reports stop until every open window was compared with its summary at Stripe."}, nil
}

// ResumeReports lets reports go on after a stop that a person has looked into.
type ResumeReports struct {
	Cause string `json:"cause"` // restored, unauthorized or clock
}

func (a *ResumeReports) about() (name, subject, account string) { return "resume", a.Cause, "" }

func (a *ResumeReports) check(*Biller) error {
	switch a.Cause {
	case "restored", "unauthorized", "clock":
		return nil
	}
	return fmt.Errorf("%q is no cause that stops reports: it is restored, unauthorized or clock", a.Cause)
}

func (a *ResumeReports) run(ctx context.Context, b *Biller, by usage.By) (string, error) {
	return "reports go on", b.resume(ctx, a.Cause, by.Actor)
}

func (a *ResumeReports) foresee(context.Context, *Biller) ([]string, error) {
	return []string{"Reports to Stripe go on, if nothing else stops them."}, nil
}

// PublishPlans publishes a plan file: periods that begin later get its terms. With Now open ones get them too, from
// now on.
type PublishPlans struct {
	Catalog *plans.Catalog `json:"-"`
	Hash    string         `json:"hash"` // of the file, set by Do
	Now     bool           `json:"now"`

	Number   int64 `json:"-"` // the catalog that counts afterwards
	Changed  bool  `json:"-"` // it is a new one
	Accounts int   `json:"-"` // whose open periods were changed
}

func (a *PublishPlans) about() (name, subject, account string) { return "publish plans", a.Hash, "" }

func (a *PublishPlans) check(*Biller) error {
	if a.Catalog == nil {
		return errors.New("no plan file is given")
	}
	a.Hash = a.Catalog.Hash()
	return nil
}

func (a *PublishPlans) run(ctx context.Context, b *Biller, by usage.By) (string, error) {
	now := b.now()
	var err error
	a.Number, a.Changed, err = usage.Publish(ctx, b.db, a.Catalog, by.Actor, now)
	if err != nil {
		return "", err
	}
	message := fmt.Sprintf("catalog %d", a.Number)
	if !a.Changed {
		message += ", which was this file already"
	}
	if a.Now {
		a.Accounts, err = b.applyNow(ctx, a.Number, now)
		message += fmt.Sprintf("; open periods of %d accounts have its terms", a.Accounts)
	}
	return message, err
}

func (a *PublishPlans) foresee(context.Context, *Biller) ([]string, error) {
	return []string{"Periods that begin later get the terms of this plan file."}, nil
}

// applyNow changes the open periods of all accounts, one transaction each.
func (b *Biller) applyNow(ctx context.Context, catalog int64, now time.Time) (int, error) {
	const chunk = 1000
	n := 0
	for last := int64(0); ; {
		ids, err := usage.AccountIDs(ctx, b.db, last, chunk)
		if err != nil || len(ids) == 0 {
			return n, err
		}
		for _, id := range ids {
			if err := usage.ApplyNow(ctx, b.db, id, catalog, now); err != nil {
				return n, err
			}
			n, last = n+1, id
		}
	}
}

// PushPlans makes at Stripe what a plan file needs.
type PushPlans struct {
	Client *Client                 `json:"-"`
	Steps  []Step                  `json:"steps"`
	Made   func(s Step, id string) `json:"-"` // told of each step; may be nil
}

func (a *PushPlans) about() (name, subject, account string) { return "push plans", "Stripe", "" }

func (a *PushPlans) check(*Biller) error {
	if a.Client == nil {
		return ErrNoStripe
	}
	return nil
}

func (a *PushPlans) run(ctx context.Context, _ *Biller, _ usage.By) (string, error) {
	made := 0
	err := a.Client.Push(ctx, a.Steps, func(s Step, id string) {
		made++
		if a.Made != nil {
			a.Made(s, id)
		}
	})
	return fmt.Sprintf("%d of %d things were made", made, len(a.Steps)), err
}

func (a *PushPlans) foresee(context.Context, *Biller) ([]string, error) {
	if len(a.Steps) == 0 {
		return nil, errors.New("nothing is to be made at Stripe")
	}
	var lines []string
	for _, s := range a.Steps {
		lines = append(lines, s.Text)
	}
	return lines, nil
}
