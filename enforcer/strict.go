package enforcer

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/usage"
)

// ConsumeOnce is Consume with an idempotency key: within 24 hours a key counts once per account, over all nodes and
// after crashes. A repeated call returns the first one's decision; the key with other units or another feature is
// ErrKeyConflict. Only admitted calls leave their key. Each call is one transaction, exact beside the leases; without
// the database it is Unavailable, whatever the plan says. Further errors: those of Consume, and ErrInvalidKey.
// units must be positive.
func (e *Enforcer) ConsumeOnce(ctx context.Context, account, feature string, units int64, key string) (Decision, error) {
	a, i, err := e.check(account, feature, units)
	if err != nil {
		return Decision{}, err
	}
	if len(key) > usage.MaxOnceBytes || !validText(key) {
		return Decision{}, ErrInvalidKey
	}
	if units == 0 {
		return Decision{}, fmt.Errorf("consume 0 units with an idempotency key: use 1 or more: %w", ErrInvalidUnits)
	}
	stop := time.NewTimer(e.cfg.MaxWait)
	defer stop.Stop()
	return e.strict(ctx, a.slotAt(i), units, key, stop.C)
}

// strict spends units of node 0, the database itself. While units are out at other nodes it waits outside the
// transaction and tries again.
func (e *Enforcer) strict(ctx context.Context, s *slot, units int64, key string, stop <-chan time.Time) (Decision, error) {
	call := usage.StrictCall{Account: s.account.name, Feature: e.featureOf(s), Units: units, Once: key, Node: e.node}
	for {
		if e.isAway() {
			return e.noAnswer(), nil
		}
		call.At, call.Judge = e.clock.time(), e.judges()
		a, answered := e.askStrictly(ctx, call, stop)
		if !answered {
			return e.noAnswer(), nil
		}
		switch a.Status {
		case usage.StrictOK, usage.StrictReplayed:
			return e.strictDecision(s, &a, key != ""), nil
		case usage.StrictConflict:
			return Decision{}, ErrKeyConflict
		case usage.StrictRefused:
			return e.strictRefusal(ctx, s, &a, call, stop), nil
		case usage.StrictNotInPlan:
			return e.notInPlan(s), nil
		case usage.StrictUnknown:
			return Decision{}, fmt.Errorf("%w: %.64q", ErrUnknownFeature, e.featureOf(s))
		case usage.StrictSilent:
			return e.noAnswer(), nil
		case usage.StrictWait, usage.StrictEnded:
		}
		timer := time.NewTimer(pollEvery)
		select {
		case <-timer.C:
			continue
		case <-stop:
		case <-ctx.Done():
		}
		timer.Stop()
		e.stats.timeouts.Add(1)
		return e.noAnswer(), nil
	}
}

// askStrictly runs one transaction, no longer than the call may take. Without an answer it is not known what became of
// it: with a key the caller can ask again.
func (e *Enforcer) askStrictly(ctx context.Context, call usage.StrictCall, stop <-chan time.Time) (a usage.StrictAnswer, answered bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		a   usage.StrictAnswer
		err error
	}
	got := make(chan outcome, 1)
	ran := e.spawn(func() {
		e.stats.exchanges.Add(1)
		a, err := usage.ConsumeStrict(ctx, e.db, call)
		got <- outcome{a, err}
	})
	if !ran {
		return a, false
	}
	select {
	case x := <-got:
		if x.err != nil {
			if ctx.Err() == nil && !isRefusal(x.err) { // else the caller has left, or the database has answered
				e.noteAway(x.err)
			}
			return x.a, false
		}
		e.noteAnswer()
		return x.a, true
	case <-stop:
		e.stats.timeouts.Add(1)
	case <-ctx.Done():
	}
	return a, false
}

func (e *Enforcer) noAnswer() Decision {
	e.stats.unavailable.Add(1)
	return Decision{Reason: Unavailable, RetryAfter: time.Second}
}

// strictDecision makes a decision of the database's answer, which the account's other calls learn from.
func (e *Enforcer) strictDecision(s *slot, a *usage.StrictAnswer, keyed bool) Decision {
	c := conditions{
		terms: &Terms{Plan: a.Plan, Feature: e.featureOf(s), StartsAt: a.Starts.UTC(), ResetsAt: a.Ends.UTC(), Maximum: -1, Unlimited: a.Included == nil},
	}
	unstored := int64(0)
	if known := s.cur.Load(); known != nil && known.key() == a.Key {
		c.terms = known.view.Load().terms
		if a.Status != usage.StrictReplayed { // else it is an answer of then
			known.learn(usage.Figures{Key: a.Key, Others: a.Used - a.Own, Folded: a.Folded, Free: a.Free, Overage: a.Overage, Adjusted: a.Adjusted})
			if !keyed { // a repeated call could not be told the same
				unstored = max(0, known.total()-a.Own)
			}
		}
	} else if a.Included != nil {
		c.terms.Included = *a.Included
	}
	c.limit, c.unlimited = c.terms.Included, c.terms.Unlimited
	v := view{&c, figures{others: a.Used, folded: a.Folded, free: a.Free, overage: a.Overage, adjusted: a.Adjusted}}
	return v.decide(unstored)
}

// strictRefusal is the answer of a call that the database refused. Whether it is in shadow the account's terms say: they
// are loaded where this node has none of the period yet.
func (e *Enforcer) strictRefusal(ctx context.Context, s *slot, a *usage.StrictAnswer, call usage.StrictCall, stop <-chan time.Time) Decision {
	e.stats.refused.Add(1)
	c, _ := e.current(ctx, s, stop)
	d := e.strictDecision(s, a, call.Once != "")
	d.Allowed, d.Reason = false, QuotaExceeded
	if a.Bound != nil && !d.Unlimited {
		d.Remaining = *a.Bound
	}
	if c != nil && d.Terms.Shadow && call.Units < maxLeft {
		d.Allowed = c.fill(e, consumes(call.Units))
	}
	return d
}
