package books

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/usage"
)

// CloseReport is the identity of the periods that ended in a month, per account and in total, and where it breaks:
// overage = invoiced + pending + late + forgiven + not billable.
type CloseReport struct {
	Month     string         `json:"month"`
	Rows      []CloseRow     `json:"rows"`
	Total     CloseNumbers   `json:"total"`
	NotClosed int64          `json:"not_closed"` // periods with overage, by feature, that have ended and are in no row yet
	Accruals  []CloseAccrual `json:"accruals"`
	Breaks    []CloseBreak   `json:"breaks"`
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
	Final bool  `json:"final"` // the invoice of its window is final, or none is to come
	Key   int64 `json:"key"`
	CloseTrail
}

// books reports whether the row has what the identity is about.
func (c *CloseRow) books() bool { return c.CloseNumbers != CloseNumbers{} }

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
	r := &CloseReport{Month: from.Format("2006-01"), Rows: []CloseRow{}, Breaks: []CloseBreak{}}
	err := snapshot(ctx, db, func(tx pgx.Tx) error { return r.read(ctx, tx, from, to, now) })
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	slices.SortStableFunc(r.Rows, func(a, b CloseRow) int { // of one account beside each other
		return cmp.Or(strings.Compare(a.Account, b.Account), a.Starts.Compare(b.Starts), strings.Compare(a.Feature, b.Feature))
	})
	return r, nil
}

func (r *CloseReport) read(ctx context.Context, tx pgx.Tx, from, to, now time.Time) error {
	rows, err := tx.Query(ctx, `SELECT a.account, f.name, sum(x.units)::bigint, sum(x.overage)::bigint
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
		if r.Breaks = append(r.Breaks, found...); err != nil {
			return err
		}
		rows, err := closeRows(ctx, tx, keys)
		for i := range rows {
			switch c := &rows[i]; {
			case !c.books():
			case !closed:
				r.NotClosed++
			default:
				r.Rows = append(r.Rows, *c)
				r.Total.add(&c.CloseNumbers)
			}
		}
		return err
	})
}

func (n *CloseNumbers) add(m *CloseNumbers) {
	n.Overage += m.Overage
	n.Invoiced += m.Invoiced
	n.Pending += m.Pending
	n.Late += m.Late
	n.Forgiven += m.Forgiven
	n.NotBillable += m.NotBillable
}

// WriteTable writes the report for people.
func (r *CloseReport) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "account\tfeature\tperiod\toverage\tinvoiced\tpending\tlate\tforgiven\tnot billable\treported\tamount\tinvoices\t\n")
	for _, c := range r.Rows {
		amount := ""
		if c.Amount != nil {
			amount = *c.Amount + " " + strings.ToUpper(c.Currency)
		}
		fmt.Fprintf(t, "%q\t%s\t%s – %s\t%s\t%d\t%s\t%s\t\n", c.Account, c.Feature, minute(c.Starts), minute(c.Ends), c.tabs(), c.Reported, amount, strings.Join(c.Invoices, " "))
	}
	fmt.Fprintf(t, "total\t\t%s\t%s\t\t\t\t\n", r.Month, r.Total.tabs())
	if len(r.Accruals) > 0 {
		fmt.Fprintf(t, "\nused in the calendar month, whatever the periods are\naccount\tfeature\tmonth\toverage\tused\t\n")
	}
	for _, c := range r.Accruals {
		fmt.Fprintf(t, "%q\t%s\t%s\t%d\t%d\t\n", c.Account, c.Feature, r.Month, c.Overage, c.Units)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the close report: %w", err)
	}
	if r.NotClosed > 0 {
		if _, err := fmt.Fprintf(w, "NOT CLOSED: %s with overage ended in %s and are not closed yet: they are in no row above\n", wording.Of(r.NotClosed, "period", "periods"), r.Month); err != nil {
			return fmt.Errorf("write the close report: %w", err)
		}
	}
	for _, x := range r.Breaks {
		if _, err := fmt.Fprintf(w, "BREAK %s: account %q, key %d: %s\n", x.Kind, x.Account, x.Key, x.Message); err != nil {
			return fmt.Errorf("write the close report: %w", err)
		}
	}
	return nil
}

func minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

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
