package billing

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	warnSkew    = 30 * time.Second
	stopSkew    = 5 * time.Minute
	compareEach = time.Minute      // wall
	probeEach   = 30 * time.Second // wall: how often one call is tried while sending is stopped
)

// lend takes calls of the budget that all workers over the database have together.
func (b *Biller) lend(ctx context.Context, endpoint string, most, limit int) (granted int, rest time.Duration, err error) {
	err = b.db.QueryRow(ctx, "SELECT granted, rest FROM weir.take_calls($1, $2, $3)", endpoint, most, limit).Scan(&granted, &rest)
	if err != nil {
		return 0, 0, fmt.Errorf("take calls to %s: %w", endpoint, err)
	}
	return granted, rest, nil
}

// stop holds up all sending and raises the alert that names what is at risk.
func (b *Biller) stop(ctx context.Context, cause, message string) error {
	now := b.now()
	_, err := b.db.Exec(ctx, `INSERT INTO weir.stops AS s (cause, since, message) VALUES ($1, $2, $3)
		ON CONFLICT (cause) DO UPDATE SET message = excluded.message`, cause, now, message)
	if err != nil {
		return fmt.Errorf("stop sending: %w", err)
	}
	b.log.Error("reports to Stripe are stopped", "cause", cause, "message", message)
	risk, err := b.atRisk(ctx)
	if err != nil {
		return err
	}
	return raise(ctx, b.db, finding{kind: "sending_stopped", subject: cause, message: message + risk}, now)
}

// atRisk names the drafts that wait for reports, with their deadlines.
func (b *Biller) atRisk(ctx context.Context) (string, error) {
	var n int64
	var first *time.Time
	var names *string
	err := b.db.QueryRow(ctx, `
		SELECT count(*), min(x.finalizes_at), string_agg(x.invoice || ' (' || coalesce(to_char(x.finalizes_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), 'no deadline known') || ')', ', ')
		FROM (SELECT i.invoice, i.finalizes_at FROM weir.invoices i WHERE i.status = 'draft'
		        AND EXISTS (SELECT FROM weir.reports r WHERE r.customer = i.customer AND r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over)
		      ORDER BY i.finalizes_at LIMIT 20) x`).Scan(&n, &first, &names)
	if err != nil {
		return "", fmt.Errorf("list the invoices at risk: %w", err)
	}
	if n == 0 || names == nil {
		return "; no draft invoice is known to wait", nil
	}
	return "; invoices at risk and their deadlines (UTC): " + *names, nil
}

// resume lets sending go on after a cause has passed.
func (b *Biller) resume(ctx context.Context, cause, by string) error {
	tag, err := b.db.Exec(ctx, "DELETE FROM weir.stops WHERE cause = $1", cause)
	if err != nil {
		return fmt.Errorf("resume sending: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	b.log.Info("reports to Stripe go on", "cause", cause, "by", by)
	return clearFinding(ctx, b.db, "sending_stopped", cause, by, b.now())
}

// compareClock compares our business clock with Stripe's Date, once a minute at most, and soon again after a
// difference that would stop sending.
func (b *Biller) compareClock(ctx context.Context, date time.Time) {
	b.mu.Lock()
	due := time.Since(b.skewNoted) >= compareEach || (!b.suspect.IsZero() && time.Since(b.suspect) >= b.cfg.SecondLook)
	if due {
		b.skewNoted = time.Now()
	}
	b.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := b.after(ctx)
	defer cancel()
	if err := b.weighSkew(ctx, date.Sub(b.now())); err != nil {
		b.log.Error("the clock could not be compared with Stripe's", "error", err)
	}
}

// weighSkew stops sending when two readings in a row are too far off. An answer that was under way while a clock was
// set shows a difference that is none.
func (b *Biller) weighSkew(ctx context.Context, skew time.Duration) error {
	far := skew.Abs() > stopSkew
	b.mu.Lock()
	first := far && b.suspect.IsZero()
	b.suspect = time.Time{}
	if first {
		b.suspect = time.Now()
	}
	b.mu.Unlock()
	if first {
		b.log.Warn("the database's clock seems to be off Stripe's; nothing is sent until it was compared again", "difference", skew.Round(time.Second))
		return nil
	}
	return b.noteSkew(ctx, skew)
}

// doubtsClock reports whether nothing may be sent because the clock is in doubt. It compares before anything is sent,
// once a minute, and a second time when the first one was too far off.
func (b *Biller) doubtsClock(ctx context.Context) (bool, error) {
	b.mu.Lock()
	since, stale := b.suspect, time.Since(b.skewNoted) >= compareEach
	if stale {
		b.skewNoted = time.Now()
	}
	b.mu.Unlock()
	switch {
	case since.IsZero() && !stale:
		return false, nil
	case !since.IsZero() && time.Since(since) < b.cfg.SecondLook:
		return true, nil
	}
	skew, err := b.readSkew(ctx)
	if err != nil && since.IsZero() {
		b.mu.Lock()
		b.skewNoted = time.Time{} // the next answer compares
		b.mu.Unlock()
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return skew.Abs() > stopSkew, b.weighSkew(ctx, skew)
}

// readSkew is by how much Stripe's Date lies outside the time that a call of its own took here; Date has whole seconds.
func (b *Biller) readSkew(ctx context.Context) (time.Duration, error) {
	before := b.now().Truncate(time.Second)
	_, res, err := call[struct{}](ctx, b.cfg.Stripe, request{method: http.MethodGet, path: "/v1/billing/meters", form: values("limit", "1")})
	if res == nil {
		return 0, err // a refusal has a date too
	}
	date, err := http.ParseTime(res.Header.Get("Date"))
	if err != nil {
		return 0, fmt.Errorf("read Stripe's Date: %w", err)
	}
	after := b.now()
	switch {
	case date.Before(before):
		return date.Sub(before), nil
	case date.After(after):
		return date.Sub(after), nil
	}
	return 0, nil
}

func (b *Biller) noteSkew(ctx context.Context, skew time.Duration) error {
	now := b.now()
	if _, err := b.db.Exec(ctx, "UPDATE weir.billing SET clock_skew = make_interval(secs => $1::double precision), clock_read_at = $2", skew.Seconds(), now); err != nil {
		return fmt.Errorf("store the clock's skew: %w", err)
	}
	size := skew.Abs()
	if skew < -stopSkew {
		// What was first sent by a clock that is ahead was sent by now at the latest: Stripe's day runs from there.
		_, err := b.db.Exec(ctx, `UPDATE weir.reports SET first_sent = $1 WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over AND first_sent > $1`, now.Add(skew))
		if err != nil {
			return fmt.Errorf("correct when reports were first sent: %w", err)
		}
	}
	if size <= stopSkew {
		if err := b.resume(ctx, "clock", "the clocks agree"); err != nil {
			return err
		}
	} else if err := b.stop(ctx, "clock", fmt.Sprintf("the database's clock is %s off Stripe's: set the clock, sending goes on by itself", size.Round(time.Second))); err != nil {
		return err
	}
	if size > warnSkew {
		return raise(ctx, b.db, finding{kind: "clock_skew", subject: "clock", message: fmt.Sprintf("the database's clock is %s off Stripe's", size.Round(time.Second))}, now)
	}
	return clearFinding(ctx, b.db, "clock_skew", "clock", "the clocks agree", now)
}

// mayProbe reports whether it is time for one try while sending is stopped.
func (b *Biller) mayProbe() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.probed) < probeEach {
		return false
	}
	b.probed = time.Now()
	return true
}
