package admin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/usage"
)

// bookKeys are the keys that have books.
func (w *world) bookKeys() []int64 {
	w.Helper()
	var keys []int64
	require.NoError(w, w.db.QueryRow(w.Context(), "SELECT coalesce(array_agg(key ORDER BY key), '{}') FROM weir.books").Scan(&keys))
	return keys
}

// Every number of every closed period opens its rows, and the rows add up to it.
func (w *world) numbersAddUp(v *visitor) map[string]int64 {
	w.Helper()
	seen := map[string]int64{}
	for _, key := range w.bookKeys() {
		var sum int64
		for _, number := range books.BookNumbers() {
			b, err := books.ReadBook(w.Context(), w.db, key, number)
			require.NoError(w, err)
			require.Equal(w, b.Value, b.Sum, "%s of key %d: %+v", number, key, b.Rows)
			var rows int64
			for _, r := range b.Rows {
				rows += r.Units
			}
			require.Equal(w, b.Value, rows, "%s of key %d", number, key)
			if seen[number] == 0 {
				seen[number] = b.Value
			}
			if number != "overage" {
				sum += b.Value
			}
			body := v.page(fmt.Sprintf("/admin/accounts/%s/books/%d/%s", b.Account, key, number))
			require.Contains(w, body, "the rows add up")
		}
		b, err := books.ReadBook(w.Context(), w.db, key, "overage")
		require.NoError(w, err)
		require.Equal(w, b.Value, sum)
	}
	return seen
}

func TestTheFiveNumbersOpenTheirRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	_, key := w.over("acme", 500)
	w.hour()
	v := w.signedIn("Ann")
	// A refund, units of before the item was gone, units while it was, and some that came after the invoice.
	act := func(a billing.Action) {
		_, err := w.b.Do(t.Context(), a, usage.By{Actor: "Ann", Way: usage.WayCLI, Reason: "a test"})
		require.NoError(t, err)
	}
	act(&billing.Adjust{Account: "acme", Feature: "events", Units: -100})
	var ends time.Time
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT p.ends FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = $1", key).Scan(&ends))
	w.advance(ends.Add(-2*time.Hour), 24*time.Hour)
	w.exec("UPDATE weir.keys SET billability = 'no' WHERE key = $1", key)
	w.use("acme", 40)
	w.fold()
	w.exec("UPDATE weir.keys SET billability = 'yes' WHERE key = $1", key)
	w.use("acme", 25)
	w.advance(ends.Add(10*time.Minute), 10*time.Minute)
	require.NotEmpty(t, w.bookKeys())
	seen := w.numbersAddUp(v)
	require.EqualValues(t, 465, seen["overage"])
	require.EqualValues(t, 40, seen["not_billable"])
	require.EqualValues(t, 425, seen["pending"])
	w.advance(ends.Add(3*time.Hour), time.Hour)
	seen = w.numbersAddUp(v)
	require.EqualValues(t, 425, seen["invoiced"])
	act(&billing.Adjust{Account: "acme", Feature: "events", Units: 60, At: ends.Add(-time.Hour)})
	seen = w.numbersAddUp(v)
	require.EqualValues(t, 60, seen["late"])

	// Held late usage is decided from the account's page.
	path := "/admin/accounts/acme/do/late"
	in := v.fill(path, "policy", "forgive")
	var id int64
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT id FROM weir.late WHERE state = 'held'").Scan(&id))
	in.Set("id", fmt.Sprint(id))
	in.Set("step", "preview")
	a := v.post(path, in)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, "late 60 → 0")
	require.Contains(t, a.body, "forgiven 0 → 60")
	in.Set("step", "do")
	require.Equal(t, http.StatusSeeOther, v.post(path, in).status)
	seen = w.numbersAddUp(v)
	require.EqualValues(t, 60, seen["forgiven"])
	require.Equal(t, "late release", w.log()[0].Action)
	require.Equal(t, "acme", w.log()[0].Account)

	report, err := books.ReadCloseReport(t.Context(), w.db, ends, w.sim.Now())
	require.NoError(t, err)
	require.Empty(t, report.Breaks)
	body := v.page("/admin/accounts/acme")
	require.Contains(t, body, fmt.Sprintf("/admin/accounts/acme/books/%d/forgiven", key))
	require.Equal(t, http.StatusNotFound, v.get(fmt.Sprintf("/admin/accounts/other/books/%d/late", key)).status)
	require.Equal(t, http.StatusNotFound, v.get(fmt.Sprintf("/admin/accounts/acme/books/%d/nothing", key)).status)
}

func TestTheStoryTellsEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.catalogue()
	customer, key := w.over("acme", 500)
	w.hour()
	require.NoError(t, usage.SimulateClock(t.Context(), w.db, w.sim.Now()))
	// Refused: a strict call for more than there is.
	for range 3 {
		_, err := usage.ConsumeStrict(t.Context(), w.db, usage.StrictCall{Account: "acme", Feature: "events", Units: 1 << 40, Once: "a key", At: w.sim.Now()})
		require.NoError(t, err)
	}
	_, err := w.b.Do(t.Context(), &billing.Adjust{Account: "acme", Feature: "events", Units: -100}, usage.By{Actor: "Ann", Way: usage.WayCLI, Reason: "an outage"})
	require.NoError(t, err)
	w.exec("SELECT weir.find('unknown_price', 'price_x', (SELECT id FROM weir.accounts WHERE account = 'acme'), 'no plan has it', $1)", w.sim.Now())
	w.exec("SELECT weir.unfind('unknown_price', 'price_x', 'sync', $1)", w.sim.Now())
	w.exec(`INSERT INTO weir.late (key, units, policy, cause, weir_id, created_at) VALUES ($1, 7, 'hold', 'invoice in_1', 'weir_late_1', $2)`, key, w.sim.Now())
	w.exec(`INSERT INTO weir.invoices (invoice, customer, livemode, status, created, seen_at) VALUES ('in_77', $1, false, 'draft', $2, $2)`, customer, w.sim.Now())
	v := w.signedIn("Ann")
	for kind, shows := range map[string][]string{
		"plan":       {"Plan: the default → pro", "mapped", "Overage of events goes to " + customer},
		"period":     {"opened", "events: included 1,000, then billed"},
		"counter":    {"1,500 events used on"},
		"refusal":    {"Calls for events were refused", "in 1 spell,"},
		"report":     {"500 units, delivered", "attempt 1", "delivered, 200"},
		"invoice":    {"in_77", "draft"},
		"webhook":    {"customer.subscription.created, done"},
		"adjustment": {"Refund of 100 events", "an outage"},
		"warning":    {"% of 1,000 events reached"},
		"late":       {"7 events late"},
		"finding":    {"Finding unknown_price", "cleared"},
		"action":     {"Adjust: done", "command line"},
	} {
		body := v.page("/admin/accounts/acme?kind=" + kind)
		for _, s := range shows {
			require.Contains(t, body, s, kind)
		}
	}
	require.Len(t, books.StoryKinds(), 12)

	// In pages of any size it is the same story, each event once.
	all, more, err := books.ReadStory(t.Context(), w.db, "acme", "", books.StoryCursor{}, 200, w.sim.Now())
	require.NoError(t, err)
	require.False(t, more)
	for _, size := range []int{1, 3, 7} {
		var got []string
		var from books.StoryCursor
		for more := true; more; {
			var page []books.StoryEvent
			page, more, err = books.ReadStory(t.Context(), w.db, "acme", "", from, size, w.sim.Now())
			require.NoError(t, err)
			for _, e := range page {
				got = append(got, e.Ref)
				from = books.StoryCursor{At: e.At, Ref: e.Ref}
			}
		}
		require.Len(t, got, len(all), "pages of %d", size)
		for i, e := range all {
			require.Equal(t, e.Ref, got[i])
		}
	}
	_, _, err = books.ReadStory(t.Context(), w.db, "acme", "nothing", books.StoryCursor{}, 5, w.sim.Now())
	require.ErrorIs(t, err, usage.ErrNotFound)
	require.Positive(t, strings.Count(v.page("/admin/accounts/acme"), "<time>"))
}
