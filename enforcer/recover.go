package enforcer

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/usage"
)

// recover stores what dead processes of this installation left in the journal's folder, usage first, then their
// leases. A file that can't be understood is left in place and named. It reports whether the database refused something
// that it may take later.
func (e *Enforcer) recover(ctx context.Context) (again bool, err error) {
	problems, err := journal.Recover(ctx, e.cfg.JournalDir, e.installation, func(ctx context.Context, d journal.Dead) error {
		n, err := usage.RecoverNode(ctx, e.db, d.Node, entries(d), e.clock.time())
		if err != nil {
			return err
		}
		e.cfg.Logger.Info("weir: recovered the journal of a process that is gone", "node", d.Node, "keys", len(d.Entries), "stored", n)
		return nil
	})
	for _, p := range problems {
		e.cfg.Logger.Warn("weir: a journal can't be recovered", "error", p)
		again = again || p.Reason == journal.Rejected && !errors.Is(p, usage.ErrNotFound)
	}
	return again, err
}

// The pauses between attempts to recover: the first ones fall well into a lease time.
const (
	firstRecovery = time.Second
	laterRecovery = time.Minute
)

// recoverer stores later what the database refused at the start: what the leases of a node that is gone have left would
// otherwise be taken for unused when it is reaped.
func (e *Enforcer) recoverer() {
	for pause := firstRecovery; ; pause = min(2*pause, laterRecovery) {
		select {
		case <-e.life.Done():
			return
		case <-time.After(pause):
		}
		again, err := e.recover(e.life)
		if err != nil && e.life.Err() == nil {
			e.cfg.Logger.Warn("weir: the journal's folder can't be read now; it is tried again", "error", err)
		}
		if err == nil && !again {
			return
		}
	}
}

func entries(d journal.Dead) []usage.Recovered {
	out := make([]usage.Recovered, len(d.Entries))
	for i, x := range d.Entries {
		out[i] = usage.Recovered{Key: x.Key, Upto: int64(x.Total), Matches: func(account, feature string, starts time.Time) bool {
			return journal.KeyHash(account, feature, starts) == x.Hash
		}}
	}
	return out
}
