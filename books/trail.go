package books

import (
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/plans"
)

// CloseTrail is how a row's overage came to its invoices, so that each number can be followed there and back:
// invoiced = by meter + by item − credited, and what was reported is by meter as soon as nothing is pending or late.
type CloseTrail struct {
	Used        int64    `json:"used"`     // units of the period, corrections included
	Reported    int64    `json:"reported"` // what Stripe's meter was told of it
	ByMeter     int64    `json:"by_meter"` // on metered lines of finalized invoices
	ByItem      int64    `json:"by_item"`  // on invoice items, of late usage
	Credited    int64    `json:"credited"` // by credit notes
	UnitAmount  string   `json:"unit_amount"`
	Currency    string   `json:"currency"`
	Amount      *string  `json:"amount"` // of invoiced, pending and late, in whole currency units, rounded once; null: no price is known
	Customers   []string `json:"customers"`
	Invoices    []string `json:"invoices"`
	CreditNotes []string `json:"credit_notes"`
}

// Worth is what units cost at a price in minor units, as a plain number of whole units of the currency, rounded as an
// invoice line is. Nil: no price is known.
func Worth(units int64, unitAmount decimal.NullDecimal, currency string) *string {
	exponent, known := plans.CurrencyExponent(currency)
	if !unitAmount.Valid || !known {
		return nil
	}
	text := unitAmount.Decimal.Mul(decimal.NewFromInt(units)).Round(0).Shift(-exponent).StringFixed(exponent)
	return &text
}

// closeRows reads the books of keys and what they follow from, in the order in which their periods ended.
func closeRows(ctx context.Context, tx pgx.Tx, keys []int64) ([]CloseRow, error) {
	rows, err := tx.Query(ctx, `SELECT a.account, f.name, p.starts, p.ends, p.state, coalesce(b.overage, t.overage), coalesce(b.invoiced, 0), coalesce(b.pending, 0),
			coalesce(b.late, 0), coalesce(b.forgiven, 0), coalesce(b.not_billable, 0), coalesce(b.final, false), k.key,
			t.free + t.overage, coalesce(c.upto, 0), coalesce(i.by_meter, 0), coalesce(i.by_item, 0), coalesce(l.units, 0),
			coalesce(g.unit_amount, k.unit_amount)::text, coalesce(g.currency, ''), coalesce(h.customers, '{}'), coalesce(i.invoices, '{}'), coalesce(l.notes, '{}')
		FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		JOIN weir.totals t ON t.key = k.key LEFT JOIN weir.books b ON b.key = k.key LEFT JOIN weir.chains c ON c.key = k.key
		LEFT JOIN LATERAL (SELECT s.unit_amount, s.currency FROM weir.segments s WHERE s.key = k.key ORDER BY s.id DESC LIMIT 1) g ON true
		LEFT JOIN LATERAL (SELECT array_agg(DISTINCT s.customer) AS customers FROM weir.segments s WHERE s.key = k.key) h ON true
		LEFT JOIN LATERAL (SELECT sum(x.units) FILTER (WHERE n.weir_id IS NULL)::bigint AS by_meter, sum(x.units) FILTER (WHERE n.weir_id IS NOT NULL)::bigint AS by_item,
				array_agg(DISTINCT n.invoice) AS invoices
			FROM weir.invoiced x JOIN weir.invoice_lines n ON n.line = x.line WHERE x.key = k.key) i ON true
		LEFT JOIN LATERAL (SELECT -sum(y.units)::bigint AS units, array_agg(DISTINCT y.object) FILTER (WHERE y.object IS NOT NULL) AS notes
			FROM weir.late y WHERE y.key = k.key AND y.state = 'credited') l ON true
		WHERE k.key = ANY ($1) ORDER BY p.ends, p.id, k.key`, keys)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, closeRow)
}

func closeRow(row pgx.CollectableRow) (CloseRow, error) {
	var c CloseRow
	var price *string
	err := row.Scan(&c.Account, &c.Feature, &c.Starts, &c.Ends, &c.State, &c.Overage, &c.Invoiced, &c.Pending, &c.Late, &c.Forgiven, &c.NotBillable, &c.Final, &c.Key,
		&c.Used, &c.Reported, &c.ByMeter, &c.ByItem, &c.Credited, &price, &c.Currency, &c.Customers, &c.Invoices, &c.CreditNotes)
	if err != nil || price == nil {
		return c, err
	}
	unit, err := decimal.NewFromString(*price)
	if err != nil {
		return c, fmt.Errorf("unit amount of key %d: %w", c.Key, err)
	}
	c.UnitAmount = unit.String()
	c.Amount = Worth(c.Invoiced+c.Pending+c.Late, decimal.NewNullDecimal(unit), c.Currency)
	return c, nil
}

// sheetHead are the columns of the close report as CSV.
func sheetHead() []string {
	return []string{
		"account", "feature", "starts", "ends", "state", "final", "used", "overage", "invoiced", "pending", "late", "forgiven", "not_billable",
		"reported", "by_meter", "by_item", "credited", "amount", "currency", "unit_amount", "customers", "invoices", "credit_notes", "breaks",
	}
}

// writeRows writes rows that have overage, and those that do not agree. One that is not closed yet has no books: its
// numbers but used and overage are empty.
func writeRows(w *csv.Writer, rows []CloseRow, breaks []CloseBreak, closed bool) error {
	kinds := map[int64][]string{}
	for _, x := range breaks {
		kinds[x.Key] = append(kinds[x.Key], x.Kind)
	}
	for i := range rows {
		x := &rows[i]
		if kinds[x.Key] == nil && !x.books() {
			continue
		}
		row := []string{inert(x.Account), inert(x.Feature), x.Starts.UTC().Format(time.RFC3339), x.Ends.UTC().Format(time.RFC3339), x.State, strconv.FormatBool(x.Final)}
		for i, n := range []int64{x.Used, x.Overage, x.Invoiced, x.Pending, x.Late, x.Forgiven, x.NotBillable, x.Reported, x.ByMeter, x.ByItem, x.Credited} {
			if !closed && i >= 2 && i <= 6 {
				row = append(row, "")
				continue
			}
			row = append(row, strconv.FormatInt(n, 10))
		}
		amount := ""
		if closed && x.Amount != nil {
			amount = *x.Amount
		}
		row = append(row, amount, x.Currency, x.UnitAmount)
		for _, ids := range [][]string{x.Customers, x.Invoices, x.CreditNotes, slices.Compact(kinds[x.Key])} {
			row = append(row, strings.Join(ids, " "))
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// inert keeps a spreadsheet from computing a cell.
func inert(s string) string {
	if s != "" && (s[0] == '=' || s[0] == '+' || s[0] == '-' || s[0] == '@' || s[0] == '\t' || s[0] == '\r') {
		return "'" + s
	}
	return s
}
