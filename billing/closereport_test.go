package billing_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/books"
)

// A ledger with one planted fault of each kind: found, and named.
func TestCloseReportNamesEachPlantedFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{file: replace(planFile, "prices: [pro_monthly]", "prices: [pro_monthly]\n    late: hold")})
	_, key := w.over("acme", 40)
	w.over("other", 9)
	w.hour()
	w.node.use("acme", 3)
	_, err := w.b.Adjust(t.Context(), "acme", "events", w.sim.Now(), -5, "tester", "a refund")
	require.NoError(t, err)
	w.toEnd()
	slow := w.newNode()
	slow.used[key] += 7
	w.finish()
	slow.flush(key)
	w.work()
	require.Equal(t, book{Overage: 45, Invoiced: 38, Late: 7}, w.book(key))
	month := start.AddDate(0, 1, 0)
	r := w.closeReport(month)
	require.True(t, r.OK(), "%v", r.Breaks)
	require.Len(t, r.Rows, 2)

	for kind, sql := range map[string]string{
		"identity":       "UPDATE weir.books SET pending = pending + 1 WHERE key = $1",
		"pending_final":  "UPDATE weir.books SET pending = 7, late = 0 WHERE key = $1",
		"late_open":      "UPDATE weir.books SET final = false WHERE key = $1",
		"late_rows":      "UPDATE weir.late SET state = 'netted' WHERE key = $1",
		"no_books":       "DELETE FROM weir.books WHERE key = $1",
		"totals":         "UPDATE weir.totals SET free = free - 1 WHERE key = $1",
		"used":           "UPDATE weir.done SET used = used + 1 WHERE (key, node) = (SELECT key, min(node) FROM weir.done WHERE key = $1 GROUP BY key)",
		"adjusted":       "INSERT INTO weir.adjustments (key, units, free, overage, reason, actor, at) VALUES ($1, 1, 1, 0, 'planted', 'test', now())",
		"overage":        "UPDATE weir.totals SET overage = overage + 1, free = free - 1 WHERE key = $1",
		"invoiced":       "UPDATE weir.books SET invoiced = invoiced - 1, late = late + 1 WHERE key = $1",
		"line":           "UPDATE weir.invoice_lines SET quantity = quantity + 1 WHERE line IN (SELECT line FROM weir.invoiced WHERE key = $1)",
		"forgiven":       "UPDATE weir.books SET forgiven = 1, late = late - 1 WHERE key = $1",
		"chain_head":     "UPDATE weir.chains SET upto = upto + 1 WHERE key = $1",
		"attempts":       "UPDATE weir.report_attempts SET outcome = 'later' WHERE report IN (SELECT id FROM weir.reports WHERE key = $1)",
		"chain":          "UPDATE weir.reports SET from_units = from_units + 1, to_units = to_units + 1 WHERE key = $1 AND seq = 2",
		"segment":        "UPDATE weir.reports SET value = -value, from_units = to_units, to_units = from_units WHERE key = $1 AND seq = 1",
		"stamp":          "UPDATE weir.reports SET stamp = stamp + interval '40 days' WHERE key = $1",
		"two_identities": "UPDATE weir.reports SET customer = 'cus_other' WHERE key = $1",
		"not_closed":     "UPDATE weir.periods SET state = 'closing' WHERE id = (SELECT period_id FROM weir.keys WHERE key = $1)",
	} {
		// Planted by somebody who may switch triggers off, in a copy that is mended afterwards.
		w.planted(sql, key, func() {
			r := w.closeReport(month)
			require.False(t, r.OK(), kind)
			found := map[string]bool{}
			for _, b := range r.Breaks {
				found[b.Kind] = true
				require.Equal(t, "acme", b.Account)
				require.NotEmpty(t, b.Message)
			}
			require.True(t, found[kind], "%s: found %v", kind, r.Breaks)
			var sheet bytes.Buffer
			breaks, err := books.WriteCloseCSV(t.Context(), w.db, month, w.sim.Now(), &sheet, nil)
			require.NoError(t, err)
			require.Len(t, r.Breaks, breaks, kind)
			require.Regexp(t, `\b`+kind+`\b[^,]*\n`, sheet.String())
		})
	}
	r = w.closeReport(month)
	require.True(t, r.OK(), "%v", r.Breaks)
}

// planted changes the database while check runs, and puts it back.
func (w *world) planted(sql string, key int64, check func()) {
	w.Helper()
	tables := []string{"books", "late", "totals", "done", "adjustments", "invoice_lines", "invoiced", "chains", "report_attempts", "reports", "periods"}
	conn, err := w.db.Acquire(w.Context())
	require.NoError(w, err)
	defer conn.Release()
	run := func(sql string, args ...any) {
		w.Helper()
		_, err := conn.Exec(w.Context(), sql, args...)
		require.NoError(w, err, sql)
	}
	run("SET session_replication_role = replica") // no triggers, no foreign keys
	for _, t := range tables {
		run("CREATE TEMP TABLE kept_" + t + " AS SELECT * FROM weir." + pgx.Identifier{t}.Sanitize())
	}
	run(sql, key)
	check()
	for _, t := range tables {
		run("DELETE FROM weir." + t)
		columns := w.text("SELECT string_agg(quote_ident(column_name), ', ' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_schema = 'weir' AND table_name = $1", t)
		run("INSERT INTO weir." + t + " (" + columns + ") OVERRIDING SYSTEM VALUE SELECT " + columns + " FROM kept_" + t)
		run("DROP TABLE kept_" + t)
	}
	run("SET session_replication_role = origin")
}

func TestCloseReportInEveryForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("=HYPERLINK(1)", 40)
	w.toEnd()
	w.finish()
	r := w.closeReport(start.AddDate(0, 1, 0))
	var table, js, sheet bytes.Buffer
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), "2026-02")
	require.Contains(t, table.String(), "invoiced")
	require.NoError(t, r.WriteJSON(&js))
	var back struct {
		Total struct{ Overage, Invoiced int64 }
		Rows  []struct{ Account string }
	}
	require.NoError(t, json.Unmarshal(js.Bytes(), &back))
	require.EqualValues(t, 40, back.Total.Invoiced)
	require.Equal(t, "=HYPERLINK(1)", back.Rows[0].Account)
	breaks, err := books.WriteCloseCSV(t.Context(), w.db, start.AddDate(0, 1, 0), w.sim.Now(), &sheet, nil)
	require.NoError(t, err)
	require.Zero(t, breaks)
	rows, err := csv.NewReader(&sheet).ReadAll()
	require.NoError(t, err)
	require.Equal(t, "'=HYPERLINK(1)", rows[1][0], "a spreadsheet computes nothing")
	require.Equal(t, "40", rows[1][slices.Index(rows[0], "overage")])
	january := w.closeReport(start)
	require.Len(t, january.Accruals, 1)
	require.EqualValues(t, 40, january.Accruals[0].Overage, "what the month used, for accruals")
	require.Empty(t, january.Rows)
	table.Reset()
	require.NoError(t, january.WriteTable(&table))
	require.Regexp(t, `"=HYPERLINK\(1\)" +events +2026-01 +40 +\d+`, table.String())
}

// From a row to its invoices and back, in units and money; and nobody takes a month as done that is not.
func TestTheCloseReportLeadsToItsInvoices(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	customer, _ := w.over("acme", 4_000)
	w.toEnd()
	month := start.AddDate(0, 1, 0)
	require.NoError(t, w.sim.Advance(t.Context(), month.Add(time.Minute))) // and nothing closes
	var sheet, table bytes.Buffer
	cells := func() []string {
		sheet.Reset()
		_, err := books.WriteCloseCSV(t.Context(), w.db, month, w.sim.Now(), &sheet, nil)
		require.NoError(t, err)
		rows, err := csv.NewReader(&sheet).ReadAll()
		require.NoError(t, err)
		require.Len(t, rows, 2)
		return rows[1][slices.Index(rows[0], "final"):]
	}
	r := w.closeReport(month)
	require.Empty(t, r.Rows)
	require.EqualValues(t, 1, r.NotClosed)
	require.NoError(t, r.WriteTable(&table))
	require.Contains(t, table.String(), "NOT CLOSED: 1 period with overage")
	sums, err := books.ReadMonth(t.Context(), w.db, month, 10, w.sim.Now())
	require.NoError(t, err)
	require.EqualValues(t, 1, sums.NotClosed)
	require.Equal(t, []string{"false", "5000", "4000", "", "", "", "", ""}, cells()[:8], "it has no books, which is not the same as nothing")

	w.finish()
	_, err = w.b.Adjust(t.Context(), "acme", "events", month.Add(-time.Minute), -1_500, "tester", "an outage")
	require.NoError(t, err)
	w.work()
	require.NoError(t, w.b.Late(t.Context()))
	r = w.closeReport(month)
	require.Zero(t, r.NotClosed)
	require.Len(t, r.Rows, 1)
	amount, note := "1.00", w.text("SELECT object FROM weir.late WHERE state = 'credited'")
	invoice := w.sim.Invoices(customer)[1].ID
	require.Equal(t, books.CloseTrail{
		Used: 3_500, Reported: 4_000, ByMeter: 4_000, Credited: 1_500, UnitAmount: "0.04", Currency: "usd", Amount: &amount,
		Customers: []string{customer}, Invoices: []string{invoice}, CreditNotes: []string{note},
	}, r.Rows[0].CloseTrail)
	require.Equal(t, r.Rows[0].Invoiced, r.Rows[0].ByMeter+r.Rows[0].ByItem-r.Rows[0].Credited)
	require.Equal(t, []string{
		"true", "3500", "2500", "2500", "0", "0", "0", "0", "4000", "4000", "0", "1500", "1.00", "usd", "0.04", customer, invoice, note, "",
	}, cells())
}

func TestTheLedgerIsAppendOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 40)
	w.hour()
	for _, sql := range []string{
		"UPDATE weir.reports SET value = 1, to_units = 1", "UPDATE weir.reports SET stamp = stamp + interval '1 minute'", "UPDATE weir.reports SET customer = 'cus_x'",
		"UPDATE weir.reports SET identifier = 'x'", "DELETE FROM weir.report_attempts", "TRUNCATE weir.report_attempts CASCADE",
		"UPDATE weir.report_attempts SET outcome = 'rejected'", "DELETE FROM weir.reports", "DELETE FROM weir.mapping_log",
	} {
		_, err := w.db.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "append-only", sql)
	}
}

// What was compared is there to be seen: nothing found is not the same as nothing looked at.
func TestWhatWasComparedCanBeSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 4_000)
	w.over("other", 9)
	none, err := w.b.Compared(t.Context())
	require.NoError(t, err)
	require.Empty(t, none)
	w.toEnd()
	w.finish()
	require.NoError(t, w.b.Reconcile(t.Context()))
	all, err := w.b.Compared(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 2, all[0].Windows)
	require.EqualValues(t, 4_009, all[0].Reported)
	require.EqualValues(t, 4_009, all[0].AtStripe)
	require.Zero(t, all[0].Unsure)
}
