package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// RequestLife is for how long another person's decision is waited for, in business time.
const RequestLife = 7 * 24 * time.Hour

// ErrDecided says that nothing is left to decide about a request.
var ErrDecided = errors.New("nothing is left to decide")

// MovesMoney reports whether an action changes what somebody pays, so that a second person may have to agree.
func MovesMoney(a Action) bool {
	switch a.(type) {
	case *Adjust, *SetOverride, *SetSpendingCap, *ReleaseLate:
		return true
	}
	return false
}

// Request writes down an action that moves money for another person to decide. What the rules would refuse now is
// refused now, and leaves no row. The row's id is returned.
func (b *Biller) Request(ctx context.Context, a Action, by usage.By) (int64, error) {
	if !MovesMoney(a) {
		return 0, &permanentError{fmt.Errorf("%T needs no second person", a)}
	}
	if _, err := b.Preview(ctx, a, by); err != nil {
		return 0, err
	}
	var id int64
	err := b.surely(ctx, &id, func(tx pgx.Tx) error {
		name, subject, account := a.about()
		var err error
		if id, err = usage.BeginAudit(ctx, tx, by, name, without(subject, account), a, b.now()); err != nil {
			return err
		}
		return usage.EndAudit(ctx, tx, id, usage.ResultWaiting, "waits for a second person", account, b.now())
	})
	return id, err
}

// Requests lists what waits for a second person, the oldest first. After RequestLife nobody waits any more.
func (b *Biller) Requests(ctx context.Context) ([]usage.Entry, error) {
	return usage.Requests(ctx, b.db, b.now().Add(-RequestLife))
}

// Decide approves another person's request, which does it in the same transaction, or declines it. A request is decided
// once, whoever tries at the same time: later ones get ErrDecided, as do its own author's and those after RequestLife.
// An approval that the rules refuse by now leaves the request open.
func (b *Biller) Decide(ctx context.Context, request int64, approve bool, by usage.By) error {
	if err := by.Check(); err != nil {
		return &permanentError{err}
	}
	var row int64
	err := b.surely(ctx, &row, func(tx pgx.Tx) (err error) {
		row, err = b.decideOn(ctx, tx, request, approve, by)
		return err
	})
	if errors.Is(err, usage.ErrRepeated) {
		return fmt.Errorf("request %d: it is decided already: %w", request, ErrDecided)
	}
	if err != nil && Refused(err) {
		return errors.Join(err, b.noteUndecided(ctx, request, by, err))
	}
	return err
}

// decideOn decides, and returns the decision's row.
func (b *Biller) decideOn(ctx context.Context, tx pgx.Tx, request int64, approve bool, by usage.By) (row int64, err error) {
	// First the fold's lock, as everywhere: the action will want it.
	if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
		return 0, fmt.Errorf("decide request %d: %w", request, err)
	}
	e, err := usage.ReadAudit(ctx, tx, request)
	if err != nil {
		return 0, fmt.Errorf("decide request %d: %w", request, err)
	}
	now := b.now()
	switch {
	case e.Result != usage.ResultWaiting:
		return 0, fmt.Errorf("request %d waits for nobody: %w", request, ErrDecided)
	case strings.EqualFold(strings.TrimSpace(e.Actor), strings.TrimSpace(by.Actor)):
		return 0, fmt.Errorf("request %d is your own, another person decides it: %w", request, ErrDecided)
	case !now.Before(e.At.Add(RequestLife)):
		return 0, fmt.Errorf("request %d is over 7 days old, ask again: %w", request, ErrDecided)
	}
	if row, err = usage.DecideAudit(ctx, tx, by, &e, now); err != nil {
		return 0, err
	}
	if !approve {
		return row, usage.EndAudit(ctx, tx, row, usage.ResultDeclined, "declined what "+e.Actor+" asked for", e.Account, now)
	}
	a, err := actionOf(&e)
	if err != nil {
		return 0, err
	}
	if err := a.check(b); err != nil {
		return 0, &permanentError{err}
	}
	// The ledgers keep who asked and why, and who agreed.
	ledger := usage.By{Actor: e.Actor + ", approved by " + strings.TrimSpace(by.Actor), Way: by.Way, Reason: e.Reason}
	return row, b.applyTo(ctx, tx, a, ledger, row)
}

// actionOf is the action that a request asks for.
func actionOf(e *usage.Entry) (Action, error) {
	for _, a := range []Action{&Adjust{}, &SetOverride{}, &SetSpendingCap{}, &ReleaseLate{}} {
		if name, _, _ := a.about(); name != e.Action {
			continue
		}
		if err := json.Unmarshal(e.Arguments, a); err != nil {
			return nil, fmt.Errorf("read request %d: %w", e.ID, err)
		}
		switch a := a.(type) { // the log knows accounts by number
		case *Adjust:
			a.Account = e.Account
		case *SetOverride:
			a.Account = e.Account
		case *SetSpendingCap:
			a.Account = e.Account
		}
		return a, nil
	}
	return nil, fmt.Errorf("read request %d: no action is called %q", e.ID, e.Action)
}

// noteUndecided writes down a decision that came to nothing.
func (b *Biller) noteUndecided(ctx context.Context, request int64, by usage.By, cause error) error {
	ctx, cancel := b.after(ctx)
	defer cancel()
	id, err := usage.BeginAudit(ctx, b.db, by, "decide", "request "+units(request), map[string]int64{"request": request}, b.now())
	if errors.Is(err, usage.ErrRepeated) {
		return nil // the same form again
	}
	if err != nil {
		return err
	}
	return usage.EndAudit(ctx, b.db, id, usage.ResultRefused, cause.Error(), "", b.now())
}
