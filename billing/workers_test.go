package billing_test

import (
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/stripesim"
)

// The limits are the account's at Stripe: two workers over one database take from one budget.
func TestTwoWorkersShareOneBudgetOfCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	customers := make([]string, 10)
	for i := range customers {
		customers[i] = w.customer("")
	}
	const perSecond = 4
	workers := make([]*billing.Biller, 2)
	for i := range workers {
		c, err := billing.NewClient(billing.ClientConfig{Key: w.sim.APIKey(), BaseURL: w.simURL, ReadsPerSecond: perSecond})
		require.NoError(t, err)
		w.client = c
		workers[i] = w.biller(w.db)
		require.NoError(t, workers[i].SyncCustomer(t.Context(), w.customer(""), true)) // meters and the clock are read
	}
	began := time.Now()
	before := len(w.sim.Calls())
	var wg sync.WaitGroup
	for i := range 2 * len(customers) {
		wg.Go(func() {
			if err := workers[i%2].SyncCustomer(t.Context(), customers[i/2], true); err != nil {
				if _, ok := billing.Throttled(err); !ok {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took, lists := time.Since(began), 0
	for _, c := range w.sim.Calls()[before:] {
		if c.Path == "/v1/subscriptions" {
			lists++
		}
	}
	require.NotZero(t, lists)
	// Calls of one second of the database's lie in one second here, give or take those that were under way.
	seconds := int(took/time.Second) + 2
	require.LessOrEqual(t, lists, perSecond*seconds, "%d calls in %s", lists, took)
	require.Zero(t, w.number("SELECT count(*) FROM weir.calls WHERE endpoint = 'GET /v1/subscriptions' AND taken > $1", perSecond))
}

func TestASecondsBudgetIsLentOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	ask := func(most, limit int64) int64 {
		return w.number("SELECT granted FROM weir.take_calls('GET /x', $1, $2)", most, limit)
	}
	// Within one transaction's time nothing else moves the row; a second that begins between two asks is tried again.
	for {
		second := w.number("SELECT floor(extract(epoch FROM clock_timestamp()))::bigint")
		got := []int64{ask(6, 10), ask(3, 10), ask(3, 10), ask(3, 10), ask(1, 10)}
		if w.number("SELECT second FROM weir.calls WHERE endpoint = 'GET /x'") != second {
			w.exec("UPDATE weir.calls SET second = 0")
			continue
		}
		require.Equal(t, []int64{6, 3, 1, 0, 0}, got)
		break
	}
	w.exec("UPDATE weir.calls SET second = second + 3600") // the database's clock was set back
	require.EqualValues(t, 4, ask(4, 10), "a new second is a new budget, whichever way the clock went")
	rest := w.number("SELECT extract(milliseconds FROM rest)::bigint FROM weir.take_calls('GET /x', 1, 10)")
	require.True(t, rest >= 0 && rest <= 1000, "%d ms", rest)
}

// A worker that does not reach the database calls nobody, and marks nothing.
func TestWithoutABudgetNothingIsSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	w.exec("ALTER TABLE weir.calls RENAME TO calls_away")
	w.node.flush()
	require.NoError(t, w.sim.Advance(t.Context(), w.sim.Now().Add(time.Hour)))
	w.fold()
	require.NoError(t, w.b.Report(t.Context()))
	require.Zero(t, w.reported(customer))
	require.Equal(t, "stored", w.states(), "nothing was called: the outcome is known")
	w.exec("ALTER TABLE weir.calls_away RENAME TO calls")
	w.patience()
	w.work()
	require.EqualValues(t, 40, w.reported(customer))
}

// A checkout may map, so it takes the fold's lock before any row of its own: a sync that holds the fold can go on.
func TestACheckoutTakesItsLocksInTheOrderOfASync(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{noHooks: true})
	customer := w.customer("")
	w.exec("INSERT INTO weir.customers (customer, livemode, seen_at) VALUES ($1, false, $2)", customer, w.sim.Now())
	tx, err := w.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM weir.fold FOR UPDATE")
	require.NoError(t, err)
	body := eventBody("evt_1", "checkout.session.completed", `{"id":"cs_1","object":"checkout.session","customer":"`+customer+`","client_reference_id":"acme"}`)
	status := make(chan int, 1)
	header := w.sign(body, secret, 0)
	go func() { status <- w.post(body, header) }()
	require.Eventually(t, func() bool {
		return w.number("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
	}, 20*time.Second, 5*time.Millisecond, "the webhook waits for the fold")
	_, err = tx.Exec(t.Context(), "SELECT FROM weir.customers WHERE customer = $1 FOR UPDATE NOWAIT", customer)
	require.NoError(t, err, "and holds nothing that a sync takes next")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, http.StatusOK, <-status)
	require.Equal(t, "acme", w.text("SELECT a.account FROM weir.customers c JOIN weir.accounts a ON a.id = c.account_id WHERE c.customer = $1", customer))
}

// One answer from before a clock was set says nothing; a difference that lasts stops sending.
func TestOneReadingOfTheClockStopsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	var err error
	w.b, err = billing.New(w.db, billing.Config{Stripe: w.client, Clock: w.sim, Logger: slog.New(slog.DiscardHandler), LookEach: time.Nanosecond, SecondLook: time.Hour})
	require.NoError(t, err)
	w.sim.SkewDate(-6 * time.Minute)
	require.NoError(t, w.b.SyncCustomer(t.Context(), customer, true))
	w.node.use("acme", 1)
	w.hour()
	require.Zero(t, w.number("SELECT count(*) FROM weir.stops"), "one reading stops nothing for good")
	require.Zero(t, w.reported(customer), "and nothing is sent until it is decided")
	w.sim.SkewDate(0)
	w.b = w.biller(w.db)
	w.hour()
	require.EqualValues(t, 41, w.reported(customer))
	require.Empty(t, w.findings())

	w.b = w.biller(w.db)
	w.sim.SkewDate(-6 * time.Minute)
	w.node.use("acme", 5)
	w.hour()
	w.work()
	require.EqualValues(t, 41, w.reported(customer), "two readings")
	require.Contains(t, w.findings()["sending_stopped"], "off Stripe's")
	w.sim.SkewDate(0)
	w.b = w.biller(w.db)
	w.hour()
	w.hour()
	require.EqualValues(t, 46, w.reported(customer), "it goes on by itself")
	require.Empty(t, w.findings())
}

// A connection that breaks in the middle of a call is one attempt with an unknown outcome: net/http, which sees an
// Idempotency-Key, does not send it again by itself.
func TestACallIsOneRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 40)
	w.node.use("acme", 1)
	fault := w.sim.Faults().Inject(post(stripesim.DropAnswer(), 0))
	w.hour()
	require.Equal(t, "unknown", w.states())
	require.Equal(t, 1, fault.Hits())
	require.EqualValues(t, 1, w.number("SELECT attempts FROM weir.reports"))
	fault.Remove()
	w.patience()
	w.work()
	require.EqualValues(t, 41, w.reported(customer))
}
