package billing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	claimMost  = 500              // links claimed at once
	claimHold  = time.Minute      // for how long; far longer than one call may take
	claimStart = 30 * time.Second // no call of a claim begins later than this
)

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

// Report plans what is due and sends what is stored, until nothing is left that may be sent now. Nothing is sent while
// sending is stopped, but one try every 30 s that shows whether it may go on. A refusal of one row parks that row
// alone; 401 and 403 stop everything and mark nothing.
func (b *Biller) Report(ctx context.Context) error {
	if b.cfg.Stripe == nil {
		return nil
	}
	if err := b.wakeChains(ctx); err != nil {
		return err
	}
	if _, err := b.planDue(ctx); err != nil {
		return err
	}
	if err := b.expire(ctx); err != nil {
		return err
	}
	if err := b.probe(ctx); err != nil {
		return err
	}
	return b.sendAll(ctx, "")
}

// sendAll sends stored links, of one customer or of all, until none is left that may be sent now.
func (b *Biller) sendAll(ctx context.Context, customer string) error {
	if doubt, err := b.doubtsClock(ctx); err != nil || doubt {
		return err
	}
	for {
		links, err := b.claim(ctx, claimMost, customer, false)
		if err != nil || len(links) == 0 {
			return err
		}
		goOn, err := b.send(ctx, links)
		if err != nil || !goOn {
			return err
		}
	}
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

// send makes the calls of claimed links and stores their outcomes, each as soon as a batch of them is there. It
// reports whether sending may go on.
func (b *Biller) send(ctx context.Context, links []claimed) (goOn bool, err error) {
	meters, err := b.metersByName(ctx)
	if err != nil {
		return false, err
	}
	begun := time.Now()
	var mu sync.Mutex
	var results []sent
	var halted error
	err = each(ctx, b.cfg.Senders, links, func(ctx context.Context, l claimed) error {
		mu.Lock()
		halt := halted != nil
		mu.Unlock()
		s := sent{claimed: l, outcome: later, message: "not tried", wait: time.Second}
		if !halt && time.Since(begun) < claimStart {
			var cause error
			if s, cause = b.sendOne(ctx, l, meters); s.outcome == stopped {
				mu.Lock()
				halted = cause
				mu.Unlock()
			}
		}
		mu.Lock()
		results = append(results, s)
		mu.Unlock()
		return nil //nolint:nilerr // the outcome carries the error
	})
	// What was begun is stored also when our own time is over: the outcomes are known now, and only now.
	store := context.WithoutCancel(ctx)
	if storeErr := b.storeOutcomes(store, results); storeErr != nil {
		return false, errors.Join(err, storeErr)
	}
	if halted != nil {
		return false, errors.Join(err, b.stop(store, "unauthorized", "Stripe does not accept the API key: "+halted.Error()))
	}
	return err == nil, err
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
		"Stripe refused report %d: %s. Mend the cause, then run worker late replay", report, message)}, now)
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
		if err := b.db.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.reports WHERE state IN ('stored', 'unknown') AND NOT replaced)").Scan(&waiting); err != nil {
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
	if goOn, err := b.send(ctx, links); err != nil || !goOn {
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

func (b *Biller) metersByName(ctx context.Context) (map[string]meter, error) {
	all, err := b.storedMeters(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]meter, len(all))
	for _, m := range all {
		if m.Status == "active" {
			out[m.EventName] = m
		}
	}
	return out, nil
}
