package billing

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Action is something that a person, or the host, changes. This package's exported structs are all there are; Do
// carries one out, whichever way it was asked for. An action is used once: what it did is in its own fields afterwards.
type Action interface {
	// about is what is done, to what, and the account that it is about; empty for none.
	about() (name, subject, account string)
	// check completes the action and says what is wrong with its input.
	check(b *Biller) error
}

// local is an action that is one transaction here. Its message says what was done.
type local interface {
	Action
	apply(ctx context.Context, b *Biller, tx pgx.Tx, by usage.By, now time.Time) (message string, err error)
}

// chain is an action that calls Stripe, or takes several transactions.
type chain interface {
	Action
	run(ctx context.Context, b *Biller, by usage.By) (message string, err error)
	// foresee says what would be done now.
	foresee(ctx context.Context, b *Biller) ([]string, error)
}

// Do carries out an action on somebody's behalf and writes it into the audit log; the row's id is returned. An action
// that is one transaction is there together with its row or not at all; of others the row is written first and how
// they ended after. Input that is wrong (IsPermanent) and a form that was sent before (usage.ErrRepeated) leave no
// row; what the rules refuse leaves one, and Refused tells it. A form whose action failed may be sent again.
func (b *Biller) Do(ctx context.Context, a Action, by usage.By) (int64, error) {
	if err := b.admit(a, by); err != nil {
		return 0, err
	}
	name, subject, account := a.about()
	subject = without(subject, account)
	if c, ok := a.(chain); ok {
		id, err := usage.BeginAudit(ctx, b.db, by, name, subject, a, b.now())
		if err != nil {
			return 0, err
		}
		message, err := c.run(ctx, b, by)
		return id, errors.Join(err, b.endChain(ctx, id, c, message, err))
	}
	var id int64
	err := b.surely(ctx, &id, func(tx pgx.Tx) error {
		var err error
		if id, err = usage.BeginAudit(ctx, tx, by, name, subject, a, b.now()); err != nil {
			return err
		}
		return b.applyTo(ctx, tx, a, by, id)
	})
	switch {
	case err == nil || errors.Is(err, usage.ErrRepeated):
		return id, err
	case errors.Is(err, errUnsure):
		return 0, err // nothing is said of what nobody knows
	}
	return b.noteRefusal(ctx, a, by, err)
}

// admit checks who asks and what for.
func (b *Biller) admit(a Action, by usage.By) error {
	if err := by.Check(); err != nil {
		return &permanentError{err}
	}
	if err := a.check(b); err != nil {
		return &permanentError{err}
	}
	return nil
}

// applyTo does a local action and ends its row.
func (b *Biller) applyTo(ctx context.Context, tx pgx.Tx, a Action, by usage.By, row int64) error {
	l, ok := a.(local)
	if !ok {
		return fmt.Errorf("%T is no action of one transaction", a)
	}
	now := b.now()
	message, err := l.apply(ctx, b, tx, by, now)
	if err != nil {
		return err
	}
	_, _, account := a.about()
	return usage.EndAudit(ctx, tx, row, usage.ResultDone, nameless(message, account), account, now)
}

func (b *Biller) endChain(ctx context.Context, row int64, c chain, message string, cause error) error {
	ctx, cancel := b.after(ctx)
	defer cancel()
	result := usage.ResultDone
	if cause != nil {
		message = strings.TrimPrefix(message+"; "+cause.Error(), "; ")
		if result = usage.ResultFailed; Refused(cause) {
			result = usage.ResultRefused
		}
	}
	_, _, account := c.about()
	return usage.EndAudit(ctx, b.db, row, result, nameless(message, account), account, b.now())
}

// without leaves out a subject that is an account: rows know accounts by number, so that one can be forgotten.
func without(subject, account string) string {
	if subject == account {
		return ""
	}
	return subject
}

// nameless leaves an account's name out of a message, for the same reason.
func nameless(message, account string) string {
	if account == "" {
		return message
	}
	return strings.ReplaceAll(message, strconv.Quote(account), "the account")
}

// noteRefusal writes the row of an action whose transaction was rolled back. A form of which the rules refused what it
// asked for has been sent; one whose action failed may be sent again, as everywhere.
func (b *Biller) noteRefusal(ctx context.Context, a Action, by usage.By, cause error) (int64, error) {
	ctx, cancel := b.after(ctx)
	defer cancel()
	result := usage.ResultRefused
	if !Refused(cause) {
		result, by.Form = usage.ResultFailed, ""
	}
	name, subject, account := a.about()
	id, err := usage.BeginAudit(ctx, b.db, by, name, without(subject, account), a, b.now())
	if err == nil {
		err = usage.EndAudit(ctx, b.db, id, result, nameless(cause.Error(), account), account, b.now())
	}
	return id, errors.Join(cause, err)
}

// Refused reports whether an error of Do says that the rules do not allow what was asked for: its text is for the one
// who asked. Other errors are faults of the moment.
func Refused(err error) bool {
	for _, is := range []error{usage.ErrRefund, usage.ErrNotFound, usage.ErrNoCatalog, ErrNotHeld, ErrMapped, ErrNoStripe, ErrDecided, ErrActive} {
		if errors.Is(err, is) {
			return true
		}
	}
	return IsPermanent(err)
}

// errUndo ends the transaction of a preview.
var errUndo = errors.New("a preview is undone")

// Preview says what an action would do now, in lines for people. It changes nothing: an action that is one transaction
// is done and rolled back. What the rules would refuse is the error that Do would return.
func (b *Biller) Preview(ctx context.Context, a Action, by usage.By) ([]string, error) {
	if err := b.admit(a, by); err != nil {
		return nil, err
	}
	if c, ok := a.(chain); ok {
		return c.foresee(ctx, b)
	}
	var lines []string
	err := b.begin(ctx, func(tx pgx.Tx) error {
		if f, ok := a.(interface {
			find(context.Context, pgx.Tx) error
		}); ok {
			if err := f.find(ctx, tx); err != nil {
				return err
			}
		}
		_, _, account := a.about()
		before, err := readStanding(ctx, tx, account)
		if err != nil {
			return err
		}
		message, err := a.(local).apply(ctx, b, tx, by, b.now())
		if err != nil {
			return err
		}
		_, _, account = a.about()
		after, err := readStanding(ctx, tx, account)
		if err != nil {
			return err
		}
		lines = append([]string{message}, before.changes(after)...)
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return lines, nil
	}
	return nil, err
}
