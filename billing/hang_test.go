package billing_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// hangs makes a database whose writes to a table wait for ever, from now until the function it returns is called.
func (w *world) hangs(table string) (mended func()) {
	ctx := context.WithoutCancel(w.Context())
	tx, err := w.db.Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "LOCK TABLE weir."+pgx.Identifier{table}.Sanitize()+" IN SHARE ROW EXCLUSIVE MODE")
	}
	if err != nil {
		w.Errorf("lock %s: %v", table, err)
		return func() {}
	}
	mended = sync.OnceFunc(func() { _ = tx.Rollback(ctx) })
	w.Cleanup(mended)
	return mended
}

// broken is a Stripe that answers 500 to everything, after the first call has done something.
type broken struct {
	once  sync.Once
	first func()
}

func (b *broken) RoundTrip(r *http.Request) (*http.Response, error) {
	b.once.Do(b.first)
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"error": {"message": "it is broken", "type": "api_error"}}`)),
	}, nil
}

// impatient is a Biller that stores what came of work in so much time, over a Stripe of its own.
func (w *world) impatient(transport http.RoundTripper) *billing.Biller {
	w.Helper()
	c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, HTTPClient: &http.Client{Transport: transport}, EventsPerSecond: 1000, ReadsPerSecond: 1000})
	require.NoError(w, err)
	b, err := billing.New(w.db, billing.Config{Stripe: c, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), StoreTime: 200 * time.Millisecond, LookEach: time.Nanosecond})
	require.NoError(w, err)
	return b
}

// returns runs do, which has to give up by itself.
func returns(t *testing.T, do func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(30 * time.Second):
		require.FailNow(t, "it waits for ever for a database that hangs")
		return nil
	}
}

// The outcomes of calls wait for a database that hangs no longer than their time. They are sent again, and counted once.
func TestOutcomesDontWaitForEverToBeStored(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	_, end := w.crowdEnds(5)
	require.NoError(t, w.sim.Advance(t.Context(), end.Add(2*time.Minute)))
	w.node.flush()
	w.fold()
	_, err := w.b.Close(t.Context())
	require.NoError(t, err)
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	var mended func()
	g := &gate{RoundTripper: transport, open: func(*http.Request) { mended = w.hangs("report_attempts") }}
	b := w.impatient(g)
	err = returns(t, func() error { return b.Report(t.Context()) })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	mended()
	require.EqualValues(t, 5, w.number("SELECT count(*) FROM weir.reports WHERE state = 'unknown' AND NOT replaced"), "they are as after a crash")
	w.patience()
	require.NoError(t, w.b.Report(t.Context()))
	require.EqualValues(t, 5, w.number("SELECT count(*) FROM weir.reports WHERE state = 'delivered'"))
	w.reportedOnce()
}

// Whatever is stored after work whose own time may be over has a time of its own.
func TestNothingIsStoredForEver(t *testing.T) {
	t.Parallel()
	by := usage.By{Actor: "ann", Way: usage.WayAdmin, Reason: "a test"}
	for name, c := range map[string]struct {
		table string // hangs from the first call to Stripe on
		now   bool   // from the beginning
		do    func(ctx context.Context, b *billing.Biller, customer string) error
	}{
		"a refusal": {"audit", true, func(ctx context.Context, b *billing.Biller, _ string) error {
			_, err := b.Do(ctx, &billing.Adjust{Account: "acme", Feature: "events", Units: 1}, by)
			return err
		}},
		"a decision": {"audit", true, func(ctx context.Context, b *billing.Biller, _ string) error { return b.Decide(ctx, 42, true, by) }},
		"the end of a chain": {"audit", false, func(ctx context.Context, b *billing.Biller, _ string) error {
			_, err := b.Do(ctx, &billing.Resync{Account: "acme"}, by)
			return err
		}},
		"a customer": {"customers", false, func(ctx context.Context, b *billing.Biller, customer string) error {
			return b.SyncCustomer(ctx, customer, true)
		}},
		"an invoice": {"invoices", false, func(ctx context.Context, b *billing.Biller, _ string) error { return b.ReadInvoice(ctx, "in_1") }},
		"late usage": {"late", false, func(ctx context.Context, b *billing.Biller, _ string) error { return b.Late(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			customer, key := w.over("acme", 40)
			w.hour()
			w.exec("INSERT INTO weir.invoices (invoice, customer, livemode, seen_at) VALUES ('in_1', $1, false, now())", customer)
			w.exec(`INSERT INTO weir.late (key, segment, units, policy, cause, weir_id, created_at, state)
				SELECT $1, max(s.id), 7, 'invoice_item', 'a test', 'weir_late_1', now(), 'stored' FROM weir.segments s WHERE s.key = $1`, key)
			b := w.impatient(&broken{first: func() {
				if !c.now {
					w.hangs(c.table)
				}
			}})
			if c.now {
				w.hangs(c.table)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := returns(t, func() error { return c.do(ctx, b, customer) })
			require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		})
	}
}
