package billing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pageSize    = "100"
	maxPages    = 100 // of one customer's subscriptions, an invoice's lines, the meters
	metersFresh = 10 * time.Minute
)

// pages reads a whole list; a list that never ends is an error.
func pages[T any](ctx context.Context, c *Client, path, endpoint, version string, id func(*T) string, params ...string) ([]T, error) {
	var all []T
	after := ""
	for range maxPages {
		form := values(append([]string{"limit", pageSize}, params...)...)
		if after != "" {
			form.Add("starting_after", after)
		}
		page, _, err := call[list[T]](ctx, c, request{method: http.MethodGet, path: path, form: form, version: version, endpoint: endpoint})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if !page.HasMore || len(page.Data) == 0 {
			return all, nil
		}
		after = id(&page.Data[len(page.Data)-1])
	}
	return nil, fmt.Errorf("read %s: more than %d pages", path, maxPages)
}

// subscriptionsOf reads all subscriptions of a customer, ended ones too, with the items' own periods.
func subscriptionsOf(ctx context.Context, c *Client, customer string) ([]subscription, error) {
	subs, err := pages(ctx, c, "/v1/subscriptions", "", itemVersion, func(s *subscription) string { return s.ID },
		"customer", customer, "status", "all")
	if err != nil {
		return nil, fmt.Errorf("read subscriptions of %s: %w", customer, err)
	}
	for i := range subs {
		if err := completeItems(ctx, c, &subs[i]); err != nil {
			return nil, err
		}
	}
	return subs, nil
}

func completeItems(ctx context.Context, c *Client, s *subscription) error {
	if !s.Items.HasMore {
		return nil
	}
	items, err := pages(ctx, c, "/v1/subscription_items", "", itemVersion, func(i *item) string { return i.ID }, "subscription", s.ID)
	if err != nil {
		return fmt.Errorf("read items of %s: %w", s.ID, err)
	}
	s.Items = list[item]{Data: items}
	return nil
}

func readCustomer(ctx context.Context, c *Client, id string) (customer, error) {
	out, _, err := call[customer](ctx, c, request{method: http.MethodGet, path: "/v1/customers/" + id, endpoint: "GET /v1/customers/{id}"})
	if err != nil {
		return out, fmt.Errorf("read customer %s: %w", id, err)
	}
	return out, nil
}

// refreshMeters reads all meters of the account and stores them.
func (b *Biller) refreshMeters(ctx context.Context, c *Client) error {
	meters, err := pages(ctx, c, "/v1/billing/meters", "", "", func(m *meter) string { return m.ID })
	if err != nil {
		return fmt.Errorf("read meters: %w", err)
	}
	now := b.now()
	err = b.begin(ctx, func(tx pgx.Tx) error {
		// Two workers that store a new meter at once would meet at its name, which no upsert by its id looks at.
		if _, err := tx.Exec(ctx, "LOCK TABLE weir.meters IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		// What is not active goes first: an event name belongs to one active meter.
		slices.SortStableFunc(meters, func(x, y meter) int {
			return boolCompare(x.Status == "active", y.Status == "active")
		})
		for _, m := range meters {
			_, err := tx.Exec(ctx, `INSERT INTO weir.meters (meter, event_name, active, formula, event_window, customer_key, value_key, livemode, read_at)
				VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7, $8, $9)
				ON CONFLICT (meter) DO UPDATE SET event_name = excluded.event_name, active = excluded.active, formula = excluded.formula,
					event_window = excluded.event_window, customer_key = excluded.customer_key, value_key = excluded.value_key, read_at = excluded.read_at`,
				m.ID, m.EventName, m.Status == "active", m.DefaultAggregation.Formula, m.EventTimeWindow, m.CustomerMapping.Key, m.ValueSettings.Key, m.Livemode, now)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store meters: %w", err)
	}
	b.mu.Lock()
	b.metersAt = time.Now()
	b.mu.Unlock()
	return nil
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// meters are the stored meters by id; they are read again when they are old, or when one of want is not among them.
func (b *Biller) meters(ctx context.Context, c *Client, want []string) (map[string]meter, error) {
	b.mu.Lock()
	age := time.Since(b.metersAt)
	b.mu.Unlock()
	known, err := b.storedMeters(ctx)
	if err != nil {
		return nil, err
	}
	missing := slices.ContainsFunc(want, func(id string) bool { _, ok := known[id]; return !ok })
	if age < time.Minute || (age < metersFresh && !missing) {
		return known, nil
	}
	if err := b.refreshMeters(ctx, c); err != nil {
		return nil, err
	}
	return b.storedMeters(ctx)
}

func (b *Biller) storedMeters(ctx context.Context) (map[string]meter, error) {
	rows, err := b.db.Query(ctx, "SELECT meter, event_name, active, formula, coalesce(event_window, ''), customer_key, value_key, livemode FROM weir.meters")
	if err != nil {
		return nil, fmt.Errorf("read stored meters: %w", err)
	}
	out := map[string]meter{}
	var m meter
	var active bool
	_, err = pgx.ForEachRow(rows, []any{&m.ID, &m.EventName, &active, &m.DefaultAggregation.Formula, &m.EventTimeWindow, &m.CustomerMapping.Key, &m.ValueSettings.Key, &m.Livemode}, func() error {
		m.Status = "inactive"
		if active {
			m.Status = "active"
		}
		out[m.ID] = m
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read stored meters: %w", err)
	}
	return out, nil
}

// meterIDs are the meters that subscriptions' prices name.
func meterIDs(subs []subscription) []string {
	var ids []string
	for i := range subs {
		for j := range subs[i].Items.Data {
			if p := &subs[i].Items.Data[j].Price; p.metered() && p.Recurring.Meter != "" {
				ids = append(ids, p.Recurring.Meter)
			}
		}
	}
	return ids
}

// storePrices keeps the prices that were read and the plans that they selected.
func storePrices(ctx context.Context, tx pgx.Tx, subs []subscription, matched map[string]string, meters map[string]meter, now time.Time) error {
	var all []*price
	for i := range subs {
		for j := range subs[i].Items.Data {
			all = append(all, &subs[i].Items.Data[j].Price)
		}
	}
	// In one order: customers share prices.
	slices.SortFunc(all, func(a, b *price) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range all {
		event := ""
		if p.Recurring != nil {
			event = meters[p.Recurring.Meter].EventName
		}
		body, err := json.Marshal(p)
		if err != nil {
			return fmt.Errorf("store price %s: %w", p.ID, err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO weir.prices AS w (price, plan, meter, body, read_at) VALUES ($1, nullif($2, ''), nullif($3, ''), $4, $5)
			ON CONFLICT (price) DO UPDATE SET plan = coalesce(excluded.plan, w.plan), meter = coalesce(excluded.meter, w.meter), body = excluded.body, read_at = excluded.read_at
			WHERE (w.plan, w.meter, w.body) IS DISTINCT FROM (coalesce(excluded.plan, w.plan), coalesce(excluded.meter, w.meter), excluded.body)`,
			p.ID, matched[p.ID], event, body, now)
		if err != nil {
			return fmt.Errorf("store price %s: %w", p.ID, err)
		}
	}
	return nil
}

// storeSubscriptions keeps what was read; those that are gone from the list stay as they were.
func storeSubscriptions(ctx context.Context, tx pgx.Tx, customer string, subs []subscription, now time.Time) error {
	for i := range subs {
		s := &subs[i]
		body, err := storedBody(s)
		if err != nil {
			return err
		}
		var since, ended *time.Time
		if !s.pastDueSince.IsZero() {
			since = &s.pastDueSince
		}
		if t := unix(s.EndedAt); !t.IsZero() {
			ended = &t
		}
		_, err = tx.Exec(ctx, `INSERT INTO weir.subscriptions (subscription, customer, status, body, past_due_since, ended_at, read_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (subscription) DO UPDATE SET status = excluded.status, body = excluded.body, past_due_since = excluded.past_due_since,
				ended_at = excluded.ended_at, read_at = excluded.read_at`, s.ID, customer, s.Status, body, since, ended, now)
		if err != nil {
			return fmt.Errorf("store subscription %s: %w", s.ID, err)
		}
	}
	return nil
}

// storedBody is a subscription as it is stored, the same for the same subscription. Of its metadata, which may say who
// somebody is, only a digest is kept: it tells that they changed.
func storedBody(s *subscription) (string, error) {
	said, err := json.Marshal(s.Metadata)
	if err != nil {
		return "", fmt.Errorf("store subscription %s: %w", s.ID, err)
	}
	kept := *s
	digest := sha256.Sum256(said)
	kept.Metadata = map[string]string{"sha256": hex.EncodeToString(digest[:])}
	body, err := json.Marshal(&kept)
	if err != nil {
		return "", fmt.Errorf("store subscription %s: %w", s.ID, err)
	}
	return string(body), nil
}

func units(n int64) string { return strconv.FormatInt(n, 10) }
