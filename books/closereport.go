package books

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// CloseReport is the identity of the periods that ended in a month, per account and in total, and where it breaks:
// overage = invoiced + pending + late + forgiven + not billable.
type CloseReport struct {
	Month    string         `json:"month"`
	Rows     []CloseRow     `json:"rows"`
	Total    CloseNumbers   `json:"total"`
	Accruals []CloseAccrual `json:"accruals"`
	Breaks   []CloseBreak   `json:"breaks"`
}

// CloseNumbers are the stored numbers, in units.
type CloseNumbers struct {
	Overage     int64 `json:"overage"`
	Invoiced    int64 `json:"invoiced"`
	Pending     int64 `json:"pending"`
	Late        int64 `json:"late"`
	Forgiven    int64 `json:"forgiven"`
	NotBillable int64 `json:"not_billable"`
}

// CloseRow is one account's feature in one period.
type CloseRow struct {
	Account string    `json:"account"`
	Feature string    `json:"feature"`
	Starts  time.Time `json:"starts"`
	Ends    time.Time `json:"ends"`
	State   string    `json:"state"`
	CloseNumbers
	Key int64 `json:"key"`
}

// CloseAccrual is what an account used in the calendar month, in UTC, whatever its periods are. A correction belongs to
// the month in which it was made, also when it corrects an earlier one.
type CloseAccrual struct {
	Account string `json:"account"`
	Feature string `json:"feature"`
	Units   int64  `json:"units"`
	Overage int64  `json:"overage"`
}

// CloseBreak is a place where the books do not agree.
type CloseBreak struct {
	Kind    string `json:"kind"`
	Account string `json:"account"`
	Key     int64  `json:"key"`
	Message string `json:"message"`
}

// OK reports whether the identity holds everywhere.
func (r *CloseReport) OK() bool { return len(r.Breaks) == 0 }

// ReadCloseReport reads the books of the periods that ended in the month of at (UTC) and checks them against the rows that
// they follow from, in one snapshot.
func ReadCloseReport(ctx context.Context, db usage.DB, at, now time.Time) (*CloseReport, error) {
	from, to := monthOf(at)
	r := &CloseReport{Month: from.Format("2006-01")}
	err := snapshot(ctx, db, func(tx pgx.Tx) error { return r.read(ctx, tx, from, to, now) })
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	return r, nil
}

func (r *CloseReport) read(ctx context.Context, tx pgx.Tx, from, to, now time.Time) error {
	rows, err := tx.Query(ctx, `SELECT a.account, f.name, p.starts, p.ends, p.state, coalesce(b.overage, t.overage), coalesce(b.invoiced, 0), coalesce(b.pending, 0),
			coalesce(b.late, 0), coalesce(b.forgiven, 0), coalesce(b.not_billable, 0), k.key
		FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id JOIN weir.accounts a ON a.id = p.account_id JOIN weir.features f ON f.id = k.feature_id
		JOIN weir.totals t ON t.key = k.key LEFT JOIN weir.books b ON b.key = k.key
		WHERE p.state IN ('closed', 'invoiced') AND p.ends >= $1 AND p.ends < $2 AND (t.overage <> 0 OR coalesce(b.overage, 0) <> 0 OR coalesce(b.invoiced, 0) <> 0)
		ORDER BY a.account, p.starts, f.name`, from, to)
	if err != nil {
		return err
	}
	r.Rows, err = pgx.CollectRows(rows, closeRow)
	if err != nil {
		return err
	}
	for _, c := range r.Rows {
		r.Total.Overage += c.Overage
		r.Total.Invoiced += c.Invoiced
		r.Total.Pending += c.Pending
		r.Total.Late += c.Late
		r.Total.Forgiven += c.Forgiven
		r.Total.NotBillable += c.NotBillable
	}
	rows, err = tx.Query(ctx, `SELECT a.account, f.name, sum(x.units)::bigint, sum(x.overage)::bigint
		FROM (SELECT h.key, h.used AS units, h.overage FROM weir.history h WHERE h.day >= ($1::timestamptz AT TIME ZONE 'UTC')::date AND h.day < ($2::timestamptz AT TIME ZONE 'UTC')::date
		      UNION ALL SELECT j.key, j.units, j.overage FROM weir.adjustments j WHERE j.at >= $1 AND j.at < $2) x
		JOIN weir.keys k ON k.key = x.key JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
		GROUP BY 1, 2 HAVING sum(x.units) <> 0 OR sum(x.overage) <> 0 ORDER BY 1, 2`, from, to)
	if err != nil {
		return err
	}
	if r.Accruals, err = pgx.CollectRows(rows, pgx.RowToStructByPos[CloseAccrual]); err != nil {
		return err
	}
	return eachKeys(ctx, tx, from, to, now, func(keys []int64, closed bool) error {
		found, err := breaksOf(ctx, tx, keys, closed, now, nil)
		r.Breaks = append(r.Breaks, found...)
		return err
	})
}

func closeRow(row pgx.CollectableRow) (CloseRow, error) {
	var c CloseRow
	err := row.Scan(&c.Account, &c.Feature, &c.Starts, &c.Ends, &c.State, &c.Overage, &c.Invoiced, &c.Pending, &c.Late, &c.Forgiven, &c.NotBillable, &c.Key)
	return c, err
}

// WriteTable writes the report for people.
func (r *CloseReport) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "account\tfeature\tperiod\toverage\tinvoiced\tpending\tlate\tforgiven\tnot billable\t\n")
	for _, c := range r.Rows {
		fmt.Fprintf(t, "%q\t%s\t%s – %s\t%s\t\n", c.Account, c.Feature, c.Starts.UTC().Format("2006-01-02 15:04"), c.Ends.UTC().Format("2006-01-02 15:04"), c.tabs())
	}
	fmt.Fprintf(t, "total\t\t%s\t%s\t\n", r.Month, r.Total.tabs())
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the close report: %w", err)
	}
	for _, x := range r.Breaks {
		if _, err := fmt.Fprintf(w, "BREAK %s: account %q, key %d: %s\n", x.Kind, x.Account, x.Key, x.Message); err != nil {
			return fmt.Errorf("write the close report: %w", err)
		}
	}
	return nil
}

func (n CloseNumbers) tabs() string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d", n.Overage, n.Invoiced, n.Pending, n.Late, n.Forgiven, n.NotBillable)
}

// WriteJSON writes the report as one JSON object.
func (r *CloseReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the close report: %w", err)
	}
	return nil
}
