package billing

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
)

// claimHold is for how long links are claimed; far longer than their calls may take.
const claimHold = time.Minute

// claimed is a link whose attempt has begun.
type claimed struct {
	Report      int64
	Attempt     int32
	Claim       int64
	Idempotency string
	Identifier  string
	Customer    string
	Meter       string
	Value       int64
	Stamp       time.Time
}

// sent is what came of an attempt.
type sent struct {
	claimed
	outcome outcome
	status  int
	request string
	message string
	wait    time.Duration
	noMeter bool // the meter as a whole takes nothing
}

// Report plans what is due and sends what is stored, until nothing is left that may be sent now or two thirds of ctx's
// time are over. Nothing is sent while sending is stopped, but one try every 30 s that shows whether it may go on. A
// refusal of one row parks that row alone; 401 and 403 stop everything and mark nothing.
func (b *Biller) Report(ctx context.Context) error {
	if b.cfg.Stripe == nil {
		return nil
	}
	if err := b.wakeChains(ctx); err != nil {
		return err
	}
	more, err := b.planNext(ctx)
	if err != nil {
		return err
	}
	if err := b.expire(ctx); err != nil {
		return err
	}
	if err := b.probe(ctx); err != nil {
		return err
	}
	// The next keys are planned when there is nothing else to claim, while what was claimed is sent.
	_, err = b.send(ctx, func(ctx context.Context, most int) ([]claimed, error) {
		for {
			links, err := b.claimStored(ctx, most, "")
			if err != nil || len(links) > 0 || !more {
				return links, err
			}
			if more, err = b.planNext(ctx); err != nil {
				return nil, err
			}
		}
	})
	return err
}

// sendAll sends a customer's stored links until none is left that may be sent now.
func (b *Biller) sendAll(ctx context.Context, customer string) error {
	_, err := b.send(ctx, func(ctx context.Context, most int) ([]claimed, error) { return b.claimStored(ctx, most, customer) })
	return err
}

// claimStored claims links of one customer or of all, but none while the clock is in doubt.
func (b *Biller) claimStored(ctx context.Context, most int, customer string) ([]claimed, error) {
	if doubt, err := b.doubtsClock(ctx); err != nil || doubt {
		return nil, err
	}
	return b.claim(ctx, most, customer, false)
}

// claim takes links, one per customer and meter. During a stop it takes none, unless it probes.
func (b *Biller) claim(ctx context.Context, most int, customer string, probe bool) ([]claimed, error) {
	var only *string
	if customer != "" {
		only = &customer
	}
	rows, err := b.db.Query(ctx, "SELECT report, attempt, claim, idempotency, identifier, customer, meter, value, stamp FROM weir.claim_reports($1, $2, $3, $4, $5)",
		b.now(), most, claimHold, only, probe)
	if err != nil {
		return nil, fmt.Errorf("claim reports: %w", err)
	}
	links, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claimed])
	if err != nil {
		return nil, fmt.Errorf("claim reports: %w", err)
	}
	return links, nil
}

// sendOne makes one attempt. The value, stamp, customer and identifier are those that were stored.
func (b *Biller) sendOne(ctx context.Context, l claimed, meters map[string]meter) (sent, error) {
	s := sent{claimed: l}
	customerKey, valueKey := "stripe_customer_id", "value"
	if m, ok := meters[l.Meter]; ok {
		customerKey, valueKey = m.CustomerMapping.Key, m.ValueSettings.Key
	}
	form := values("event_name", l.Meter, "identifier", l.Identifier, "timestamp", units(l.Stamp.Unix()),
		"payload["+customerKey+"]", l.Customer, "payload["+valueKey+"]", units(l.Value))
	_, res, err := call[struct{}](ctx, b.cfg.Stripe, request{
		method: http.MethodPost, path: "/v1/billing/meter_events", form: form, idempotency: l.Idempotency, event: true,
	})
	s.outcome = judge(err, l.Identifier)
	s.wait = time.Second
	if res != nil {
		s.status, s.request = res.StatusCode, res.RequestID
	}
	if err != nil {
		if status, request := statusOf(err); status != 0 {
			s.status, s.request = status, request
		}
		s.message = clip(err.Error())
		s.wait = backOff(l.Attempt, err)
	}
	if s.noMeter = isNoMeter(err); s.noMeter {
		s.wait = time.Minute
	}
	return s, err
}

// backOff grows from a second to 30 s.
func backOff(attempt int32, err error) time.Duration {
	if d, ok := Throttled(err); ok {
		return d
	}
	return min(time.Second<<min(max(attempt-1, 0), 5), 30*time.Second)
}

func clip(s string) string {
	const most = 500
	if len(s) > most {
		s = s[:most]
	}
	return s
}

// storeOutcomes stores what came of attempts, as a set.
func (b *Biller) storeOutcomes(ctx context.Context, all []sent) error {
	if len(all) == 0 {
		return nil
	}
	n := len(all)
	reports, claims := make([]int64, n), make([]int64, n)
	attempts, statuses := make([]int32, n), make([]int32, n)
	outcomes, requests, messages := make([]string, n), make([]string, n), make([]string, n)
	waits := make([]time.Duration, n)
	var parked []sent
	broken := map[string]bool{}
	for i, s := range all {
		if s.noMeter {
			broken[s.Meter] = true
		}
		o := s.outcome
		if o == rejected {
			parked = append(parked, s)
		}
		if o == stopped {
			o = later
		}
		reports[i], claims[i], attempts[i], statuses[i] = s.Report, s.Claim, s.Attempt, int32(s.status)
		outcomes[i], requests[i], messages[i], waits[i] = string(o), s.request, s.message, s.wait
	}
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT weir.settle_reports($1, $2, $3, $4, $5, $6, $7, $8, $9)",
			reports, attempts, claims, outcomes, statuses, requests, messages, waits, now)
		if err != nil {
			return fmt.Errorf("store outcomes: %w", err)
		}
		for _, s := range parked {
			if err := raiseRejected(ctx, tx, s.Report, s.message, now); err != nil {
				return err
			}
		}
		for m := range broken {
			err := raise(ctx, tx, finding{kind: "meter_inactive", subject: m, message: fmt.Sprintf(
				"Stripe has no active meter with event name %s: its reports are kept and tried each minute. Reactivate the meter", m)}, now)
			if err != nil {
				return err
			}
		}
		return clearMeters(ctx, tx, all, broken, now)
	})
}

// clearMeters clears what was found about meters that take reports again.
func clearMeters(ctx context.Context, tx pgx.Tx, all []sent, broken map[string]bool, now time.Time) error {
	well := map[string]bool{}
	for _, s := range all {
		if s.outcome == delivered && !broken[s.Meter] {
			well[s.Meter] = true
		}
	}
	for m := range well {
		if err := clearFinding(ctx, tx, "meter_inactive", m, "a report was accepted", now); err != nil {
			return err
		}
	}
	return nil
}

func raiseRejected(ctx context.Context, tx pgx.Tx, report int64, message string, now time.Time) error {
	var account int64
	err := tx.QueryRow(ctx, "SELECT k.account_id FROM weir.reports r JOIN weir.keys k ON k.key = r.key WHERE r.id = $1", report).Scan(&account)
	if err != nil {
		return fmt.Errorf("read report %d: %w", report, err)
	}
	return raise(ctx, tx, finding{kind: "report_rejected", subject: units(report), account: account, message: fmt.Sprintf(
		"Stripe refused report %d: %s. Mend the cause, then run worker replay", report, message)}, now)
}

// expire gives links that Stripe would find too old to a person.
func (b *Biller) expire(ctx context.Context) error {
	now := b.now()
	return b.begin(ctx, func(tx pgx.Tx) error {
		var ids []int64
		if err := tx.QueryRow(ctx, "SELECT weir.expire_reports($1)", now).Scan(&ids); err != nil {
			return fmt.Errorf("expire reports: %w", err)
		}
		for _, id := range ids {
			if err := raiseRejected(ctx, tx, id, "it is older than the 35 days that Stripe accepts", now); err != nil {
				return err
			}
		}
		return nil
	})
}

// probe makes one call while sending is stopped because of the key, to see whether it may go on: a due report, or a
// read where none is due.
func (b *Biller) probe(ctx context.Context) error {
	var is bool
	if err := b.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.stops WHERE cause = 'unauthorized') AND (SELECT count(*) FROM weir.stops) = 1").Scan(&is); err != nil {
		return fmt.Errorf("look for a stop: %w", err)
	}
	if !is || !b.mayProbe() {
		return nil
	}
	links, err := b.claim(ctx, 1, "", true)
	if err != nil {
		return err
	}
	if len(links) == 0 {
		// A read proves nothing about reports while some wait for their turn.
		var waiting bool
		if err := b.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced AND NOT over)").Scan(&waiting); err != nil {
			return fmt.Errorf("look for waiting reports: %w", err)
		}
		if waiting {
			return nil
		}
		if err := b.refreshMeters(ctx, b.cfg.Stripe); err != nil {
			return nil //nolint:nilerr // still stopped: that is what was asked
		}
		return b.resume(ctx, "unauthorized", "the key is accepted again")
	}
	left := links
	goOn, err := b.send(ctx, func(context.Context, int) ([]claimed, error) {
		once := left
		left = nil
		return once, nil
	})
	if err != nil || !goOn {
		return err
	}
	var state string
	if err := b.db.QueryRow(ctx, "SELECT state FROM weir.reports WHERE id = $1", links[0].Report).Scan(&state); err != nil {
		return fmt.Errorf("read the probe: %w", err)
	}
	if state != "delivered" {
		return nil
	}
	return b.resume(ctx, "unauthorized", "the key is accepted again")
}
