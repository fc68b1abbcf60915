package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// endMonth moves the clock over the period's end and waits until the nodes have sealed it, the worker has closed it,
// and Stripe has every unit of overage.
func (w *world) endMonth(ctx context.Context) error {
	// First over the end of the calendar's month, which is the free accounts'.
	for _, at := range []time.Time{calendarEnd().Add(5 * time.Minute), w.ends.Add(5 * time.Minute)} {
		if err := w.setClock(ctx, at); err != nil {
			return err
		}
	}
	w.say.detail("the clock reads %s", w.clock.Now().Format(time.RFC1123))
	err := until(ctx, func() (bool, error) {
		for _, a := range w.accounts {
			t, err := w.total(ctx, a)
			if err != nil || t.State == "open" || t.State == "closing" {
				return false, err
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("the periods do not close: %w", err)
	}
	return until(ctx, func() (bool, error) {
		for _, a := range w.accounts {
			t, err := w.total(ctx, a)
			if err != nil || w.reported(a) != t.Overage {
				return false, err
			}
		}
		return true, nil
	})
}

// calendarEnd is the end of the calendar month in which the demo begins.
func calendarEnd() time.Time {
	b := begins()
	return time.Date(b.Year(), b.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// total is what is stored of the demo's month.
func (w *world) total(ctx context.Context, a *account) (usage.Total, error) {
	all, err := usage.Totals(ctx, w.db, a.id, time.Time{})
	if err != nil {
		return usage.Total{}, err
	}
	for _, t := range all {
		if t.Feature == "events" && t.Plan == a.plan && t.Starts.Before(w.ends) && !t.Ends.After(w.ends) && t.Used > 0 {
			return t, nil
		}
	}
	return usage.Total{}, fmt.Errorf("nothing is stored of %s on plan %s", a.id, a.plan)
}

// reported is what the simulator has accepted of the account.
func (w *world) reported(a *account) int64 {
	var sum int64
	for _, e := range w.stripe.MeterEvents() {
		if e.Customer == a.customer && a.customer != "" && e.Rejected == "" && !e.Cancelled && e.Timestamp.Before(a.ends) {
			sum += e.Value
		}
	}
	return sum
}

// finalize lets the draft's hour pass and waits until Weir has read the invoice.
func (w *world) finalize(ctx context.Context) error {
	if err := w.setClock(ctx, w.ends.Add(draftTime+10*time.Minute)); err != nil {
		return err
	}
	return until(ctx, func() (bool, error) {
		for _, a := range w.accounts {
			if a.customer == "" {
				continue
			}
			t, err := w.total(ctx, a)
			if err != nil || t.State != "invoiced" {
				return false, err
			}
			if _, ok := w.invoice(a); !ok {
				return false, nil
			}
		}
		return true, nil
	})
}

// invoice is the month's finalized invoice: its metered units and its amount in cents.
func (w *world) invoice(a *account) (line stripesim.InvoiceLine, ok bool) {
	for _, inv := range w.stripe.Invoices(a.customer) {
		if inv.FinalizedAt.IsZero() || inv.Status == "void" {
			continue
		}
		for _, l := range inv.Lines {
			if l.Meter != "" && l.End.Equal(a.ends) {
				line.Quantity += l.Quantity
				line.Amount += l.Amount
				ok = true
			}
		}
	}
	return line, ok
}
