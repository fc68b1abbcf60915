package enforcer

import (
	"context"
	"time"

	"github.com/weirhq/weir/usage"
)

// Warning says that an account has reached a threshold of its allowance, as the plan's warn_at names it. Every node is
// told of it, once; a threshold that was passed in one jump with a higher one is not told. Counts are units.
type Warning struct {
	ID        int64 // the same on every node, ascending
	Account   string
	Feature   string
	Plan      string
	Threshold int   // percent of Allowance
	Allowance int64 // what is included, or everything up to the customer's own lower spending cap
	Used      int64 // when it was found
	// BillsOverage says that units past Allowance are admitted and billed now; otherwise they are refused, as in a trial,
	// unless Shadow says that nothing is.
	BillsOverage bool
	Shadow       bool // the account or its plan is in shadow mode now: whatever its terms say, nothing is refused
	ResetsAt     time.Time
	At           time.Time // business time of the usage that reached it
	UpgradeURL   string    // the plan's; may be empty
}

const (
	warnBatch = 500
	warnEvery = 10 * time.Second // after which a lost notice is noticed
)

func (e *Enforcer) warnSoon() {
	select {
	case e.warned <- struct{}{}:
	default:
	}
}

// beginWarnings remembers which warnings were before this node's time.
func (e *Enforcer) beginWarnings(ctx context.Context) (err error) {
	if e.cfg.OnWarning != nil {
		e.lastWarning, err = usage.LastWarning(ctx, e.db)
	}
	return err
}

// warner tells the host's callback what the fold found. Warnings are read from their rows, in their order, so that a
// slow callback delays the next one and loses none while this node lives.
func (e *Enforcer) warner() {
	every := time.NewTicker(warnEvery)
	defer every.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-e.warned:
		case <-every.C:
		}
		if err := e.tellWarnings(); err != nil && e.life.Err() == nil && e.warnAway() {
			e.cfg.Logger.Warn("weir: warnings can't be read now; they are read again soon", "error", err)
		}
	}
}

func (e *Enforcer) tellWarnings() error {
	for e.life.Err() == nil {
		ctx, cancel := context.WithTimeout(e.life, flushTimeout)
		all, err := usage.Warnings(ctx, e.db, e.lastWarning, warnBatch)
		cancel()
		if err != nil {
			return err
		}
		for i := range all {
			w := &all[i]
			e.lastWarning = w.ID
			e.cfg.OnWarning(e.life, Warning{
				ID: w.ID, Account: w.Account, Feature: w.Feature, Plan: w.Plan, Threshold: w.Threshold, Allowance: w.Allowance, Used: w.Used,
				BillsOverage: w.OverageOpen, Shadow: w.Shadow, ResetsAt: w.Ends, At: w.At, UpgradeURL: e.upgradeURL(w.Plan),
			})
			if e.isEnding() {
				return nil
			}
		}
		if len(all) < warnBatch {
			return nil
		}
	}
	return nil
}

func (e *Enforcer) upgradeURL(plan string) string {
	c := e.catalog.Load()
	if c == nil {
		return ""
	}
	if p, ok := c.Plan(plan); ok {
		return p.UpgradeURL
	}
	return c.UpgradeURL()
}

// isEnding reports whether the enforcer is being stopped.
func (e *Enforcer) isEnding() bool { return e.life.Err() != nil }
