package billing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stripe/stripe-go/v79/webhook"
)

// maxWebhookBytes bounds a webhook's body; Stripe's events are far smaller.
const maxWebhookBytes = 1 << 20

// signatureAge is how old a signature may be; each attempt of Stripe's has a new one.
const signatureAge = webhook.DefaultTolerance

// errBody is a webhook that cannot be what Stripe sends; its text goes to the log, not to the sender.
type errBody struct{ err error }

func (e *errBody) Error() string { return e.err.Error() }
func (e *errBody) Unwrap() error { return e.err }

// Webhook is POST /stripe/webhook: it checks the signature on the raw body, stores the event and what it says is to be
// read in one transaction, and answers 200. A bad signature, a body over 1 MiB, no JSON, or an event of the other mode
// is 400 and nothing is stored. invoice.created is stored and answered 503 while sending is stopped, so that Stripe
// keeps the draft open; so is anything that could not be stored. Events of types that nobody needs, and of customers
// that are not ours, are 200.
func (b *Biller) Webhook() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		e, err := b.readEvent(r)
		if err != nil {
			b.log.Warn("a webhook was refused", "error", err)
			http.Error(w, "bad request", http.StatusBadRequest)
			return
		}
		hold, err := b.storeEvent(r.Context(), e)
		if err != nil {
			b.log.Error("a webhook could not be stored; Stripe will send it again", "event", e.ID, "error", err)
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		if hold {
			http.Error(w, "reports are held up: keep the draft", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}

// readEvent returns an event that was signed with one of the secrets and is of our mode.
func (b *Biller) readEvent(r *http.Request) (event, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxWebhookBytes+1))
	if err != nil {
		return event{}, &errBody{fmt.Errorf("read the body: %w", err)}
	}
	if len(body) > maxWebhookBytes {
		return event{}, &errBody{fmt.Errorf("the body is over %d bytes", maxWebhookBytes)}
	}
	if err := b.checkSignature(body, r.Header.Get("Stripe-Signature")); err != nil {
		return event{}, &errBody{fmt.Errorf("check the signature: %w", err)}
	}
	return b.parseEvent(body)
}

func (b *Biller) checkSignature(body []byte, header string) error {
	if len(b.cfg.WebhookSecrets) == 0 {
		return errors.New("no webhook secret is configured: set STRIPE_WEBHOOK_SECRET")
	}
	var last error
	for _, secret := range b.cfg.WebhookSecrets {
		if last = webhook.ValidatePayloadIgnoringTolerance(body, header, secret); last == nil {
			return b.checkAge(header)
		}
	}
	return last
}

// checkAge refuses a signature that was made more than 5 minutes ago, or ahead, by business time: a replayed one. The
// library compares with the machine's clock, which is neither the database's nor a simulation's. Of several timestamps it
// verifies the last one, so that all of them are looked at: the first may be of whoever replays.
func (b *Biller) checkAge(header string) error {
	stamped := false
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if name != "t" {
			continue
		}
		sec, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return errors.New("the signature's timestamp is no number")
		}
		if age := b.now().Sub(time.Unix(sec, 0)); age.Abs() > signatureAge {
			return fmt.Errorf("the signature is %s old, at most %s are allowed", age.Round(time.Second), signatureAge)
		}
		stamped = true
	}
	if !stamped {
		return errors.New("the signature has no timestamp")
	}
	return nil
}

// parseEvent reads what an event of either style has in common; created is a number in one and a string in the other.
func (b *Biller) parseEvent(body []byte) (event, error) {
	var e event
	if !utf8.Valid(body) {
		return e, &errBody{errors.New("the body is not UTF-8")}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return e, &errBody{fmt.Errorf("read the event: %w", err)}
	}
	e.APIVersion = bounded(e.APIVersion)
	if bounded(e.ID) == "" || bounded(e.Type) == "" {
		return e, &errBody{errors.New("the event has no id or no type")}
	}
	if c := b.cfg.Stripe; c != nil && c.Live() != e.Livemode {
		return e, &errBody{fmt.Errorf("event %q has livemode %t, our key has %t: this endpoint belongs to the other mode", e.ID, e.Livemode, c.Live())}
	}
	e.raw = body
	e.thin = e.Object == "v2.core.event"
	return e, nil
}

// storeEvent stores an event once and marks what it names to be read. It reports whether Stripe should keep its draft.
func (b *Biller) storeEvent(ctx context.Context, e event) (hold bool, err error) {
	err = b.begin(ctx, func(tx pgx.Tx) error {
		h := e.hints()
		now := b.now()
		if h.reference != "" {
			// It may map: locks in the common order, the fold first.
			if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
				return err
			}
		}
		var fresh bool
		err := tx.QueryRow(ctx, `
			INSERT INTO weir.webhook_events AS w (event, type, livemode, api_version, customer, object, thin, body, received_at, state)
			VALUES ($1, $2, $3, nullif($4, ''), nullif($5, ''), nullif($6, ''), $7,
				-- what says who a forgotten account was does not come back: its customer is deleted at Stripe after it was forgotten
				CASE WHEN EXISTS (SELECT FROM weir.customers c JOIN weir.accounts a ON a.id = c.account_id
				                  WHERE c.customer = $5 AND a.account = 'forgotten-' || a.id) THEN '{}' ELSE $8 END,
				$9, CASE WHEN $10 THEN 'stored' ELSE 'done' END)
			ON CONFLICT (event) DO UPDATE SET deliveries = w.deliveries + 1
			RETURNING deliveries = 1`,
			e.ID, e.Type, e.Livemode, e.APIVersion, h.customer, h.object, e.thin, string(e.raw), now, h.useful()).Scan(&fresh)
		if err != nil {
			return err
		}
		if e.Type == "invoice.created" {
			if hold, err = mustHold(ctx, tx, h.customer); err != nil {
				return err
			}
		}
		if !fresh || !h.useful() {
			return nil
		}
		return b.mark(ctx, tx, e, h)
	})
	if err != nil {
		return false, fmt.Errorf("store event %q: %w", e.ID, err)
	}
	return hold, nil
}

// mustHold reports whether a customer's draft should wait: sending is stopped and reports of it are open.
func mustHold(ctx context.Context, tx pgx.Tx, customer string) (bool, error) {
	var hold bool
	err := tx.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM weir.stops) AND (
			EXISTS (SELECT FROM weir.reports r WHERE r.customer = $1 AND r.state IN ('stored', 'unknown') AND NOT r.replaced AND NOT r.over)
			OR EXISTS (SELECT FROM weir.customers c JOIN weir.keys k ON k.account_id = c.account_id JOIN weir.totals t ON t.key = k.key
			           JOIN weir.periods p ON p.id = k.period_id
			           LEFT JOIN weir.chains h ON h.key = k.key LEFT JOIN weir.books b ON b.key = k.key
			           WHERE c.customer = $1 AND p.confirmed AND p.state <> 'void' AND NOT coalesce(b.final, false)
			             AND weir.billable(t.overage, t.not_billable, k.highest_maximum) <> coalesce(h.upto, 0)))`, customer).Scan(&hold)
	return hold, err
}

// mark notes in rows what an event says is to be read, and wakes a worker for it.
func (b *Biller) mark(ctx context.Context, tx pgx.Tx, e event, h hints) error {
	now := b.now()
	if e.thin {
		return b.nudge(ctx, tx, MeterErrorArgs{Event: e.ID})
	}
	if h.customer != "" {
		if err := wantCustomer(ctx, tx, h.customer, e.Livemode, now); err != nil {
			return err
		}
	}
	if h.reference != "" {
		if err := b.mapByReference(ctx, tx, h.customer, h.reference, "client_reference_id", now); err != nil {
			return err
		}
	}
	if h.invoice != "" {
		_, err := tx.Exec(ctx, `INSERT INTO weir.invoices AS i (invoice, customer, livemode, seen_at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (invoice) DO UPDATE SET wanted = i.wanted + 1`, h.invoice, h.customer, e.Livemode, now)
		if err != nil {
			return err
		}
		return b.nudge(ctx, tx, InvoiceArgs{Invoice: h.invoice})
	}
	switch {
	case h.customer != "":
		// A customer that was deleted is not read again.
		tag, err := tx.Exec(ctx, `UPDATE weir.webhook_events SET state = 'done' WHERE event = $1
			AND EXISTS (SELECT FROM weir.customers c WHERE c.customer = $2 AND c.deleted)`, e.ID, h.customer)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		return b.nudge(ctx, tx, SyncArgs{Customer: h.customer})
	case h.prices:
		_, err := tx.Exec(ctx, "UPDATE weir.customers SET wanted = wanted + 1 WHERE account_id IS NOT NULL AND EXISTS (SELECT FROM weir.prices p WHERE p.price = $1)", h.object)
		if err == nil { // from here on the customers' rows say what is to be done
			_, err = tx.Exec(ctx, "UPDATE weir.webhook_events SET state = 'done' WHERE event = $1", e.ID)
		}
		return err
	}
	return nil
}

func wantCustomer(ctx context.Context, tx pgx.Tx, customer string, live bool, now any) error {
	_, err := tx.Exec(ctx, `INSERT INTO weir.customers AS c (customer, livemode, seen_at) VALUES ($1, $2, $3)
		ON CONFLICT (customer) DO UPDATE SET wanted = c.wanted + 1`, customer, live, now)
	return err
}
