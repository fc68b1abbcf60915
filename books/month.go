package books

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// keysEach is how many keys of a month are looked at in one go.
const keysEach = 1000

// MonthBooks are the books of the periods that ended in a month, added up where they are stored, with what breaks as
// far as one key's own books and totals show it. CloseReport and WriteCloseCSV check the rows beneath too.
type MonthBooks struct {
	Month     string
	Periods   int64 // closed ones that have overage, by feature
	Total     CloseNumbers
	NotClosed int64        // periods with overage, by feature, that have ended and are not closed yet
	Breaks    []CloseBreak // the first of them
	AllBreaks int
	Accruals  []CloseAccrual // of all accounts, by feature
}

// shallow are the checks that read one row of a table for each key.
var shallow = []string{"identity", "no_books", "totals", "overage", "pending_final", "late_open"}

// inMonth are the keys of the periods that ended in a month, with what the books of one consist of.
const inMonth = ` FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id JOIN weir.totals t ON t.key = k.key LEFT JOIN weir.books b ON b.key = k.key
	WHERE p.state IN ('closed', 'invoiced') AND p.ends >= $1 AND p.ends < $2 AND (t.overage <> 0 OR coalesce(b.overage, 0) <> 0 OR coalesce(b.invoiced, 0) <> 0)`

// ReadMonth adds up the books of the periods that ended in the month of at (UTC), in one snapshot; at most most breaks
// are returned, all are counted. It holds no row of them in memory.
func ReadMonth(ctx context.Context, db usage.DB, at time.Time, most int, now time.Time) (*MonthBooks, error) {
	from, to := monthOf(at)
	m := &MonthBooks{Month: from.Format("2006-01")}
	err := snapshot(ctx, db, func(tx pgx.Tx) error {
		n := &m.Total
		err := tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(coalesce(b.overage, t.overage)), 0)::bigint, coalesce(sum(b.invoiced), 0)::bigint, coalesce(sum(b.pending), 0)::bigint,
			coalesce(sum(b.late), 0)::bigint, coalesce(sum(b.forgiven), 0)::bigint, coalesce(sum(b.not_billable), 0)::bigint`+inMonth, from, to).
			Scan(&m.Periods, &n.Overage, &n.Invoiced, &n.Pending, &n.Late, &n.Forgiven, &n.NotBillable)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT '', f.name, sum(x.units)::bigint, sum(x.overage)::bigint
			FROM (SELECT k.feature_id, h.used AS units, h.overage FROM weir.history h JOIN weir.keys k ON k.key = h.key
			      WHERE h.day >= ($1::timestamptz AT TIME ZONE 'UTC')::date AND h.day < ($2::timestamptz AT TIME ZONE 'UTC')::date
			      UNION ALL SELECT k.feature_id, j.units, j.overage FROM weir.adjustments j JOIN weir.keys k ON k.key = j.key WHERE j.at >= $1 AND j.at < $2) x
			JOIN weir.features f ON f.id = x.feature_id GROUP BY f.name HAVING sum(x.units) <> 0 OR sum(x.overage) <> 0 ORDER BY f.name`, from, to)
		if err != nil {
			return err
		}
		if m.Accruals, err = pgx.CollectRows(rows, pgx.RowToStructByPos[CloseAccrual]); err != nil {
			return err
		}
		keep := func(breaks []CloseBreak) {
			m.AllBreaks += len(breaks)
			m.Breaks = append(m.Breaks, breaks[:min(len(breaks), most-len(m.Breaks))]...)
		}
		return eachKeys(ctx, tx, from, to, now, func(keys []int64, closed bool) error {
			breaks, err := breaksOf(ctx, tx, keys, closed, now, shallow)
			keep(breaks)
			if err != nil || closed {
				return err
			}
			var n int64
			err = tx.QueryRow(ctx, "SELECT count(*) FROM weir.totals t WHERE t.key = ANY ($1) AND t.overage <> 0", keys).Scan(&n)
			m.NotClosed += n
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("add up the books: %w", err)
	}
	return m, nil
}

// MonthRows lists the periods with overage that ended in the month of at (UTC) behind the one of a key, which is 0 at
// the beginning, at most most, and checks them against all rows that they follow from.
func MonthRows(ctx context.Context, db usage.DB, at time.Time, after int64, most int, now time.Time) (rows []CloseRow, breaks []CloseBreak, err error) {
	from, to := monthOf(at)
	err = inSnapshot(ctx, db, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, `SELECT k.key`+inMonth+` AND ($3 = 0 OR (p.ends, p.id, k.key) > (SELECT x.ends, x.id, y.key FROM weir.keys y JOIN weir.periods x ON x.id = y.period_id WHERE y.key = $3))
			ORDER BY p.ends, p.id, k.key LIMIT $4`, from, to, after, most)
		if err != nil {
			return err
		}
		keys, err := pgx.CollectRows(found, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if rows, err = closeRows(ctx, tx, keys); err != nil {
			return err
		}
		breaks, err = breaksOf(ctx, tx, keys, true, now, nil)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("list the books: %w", err)
	}
	return rows, breaks, nil
}

// WriteCloseCSV writes the rows of CloseReport as CSV, a thousand at a time, from one snapshot, and returns how many
// places do not agree; a row that does not agree is there even without overage. A cell that a spreadsheet would compute
// begins with a quote mark. Rows are in the order in which their periods ended, those that are not closed yet behind the others; flush, if given, is called after each
// portion.
func WriteCloseCSV(ctx context.Context, db usage.DB, at, now time.Time, w io.Writer, flush func() error) (breaks int, err error) {
	from, to := monthOf(at)
	c := csv.NewWriter(w)
	err = snapshot(ctx, db, func(tx pgx.Tx) error {
		if err := c.Write(sheetHead()); err != nil {
			return err
		}
		return eachKeys(ctx, tx, from, to, now, func(keys []int64, closed bool) error {
			found, err := breaksOf(ctx, tx, keys, closed, now, nil)
			if err != nil {
				return err
			}
			breaks += len(found)
			rows, err := closeRows(ctx, tx, keys)
			if err != nil {
				return err
			}
			if err := writeRows(c, rows, found, closed); err != nil || flush == nil {
				return err
			}
			return flush()
		})
	})
	if c.Flush(); err == nil {
		err = c.Error()
	}
	if err != nil {
		return breaks, fmt.Errorf("write the close report: %w", err)
	}
	return breaks, nil
}

// eachKeys hands out the keys of the periods that ended in a month, in their order, a thousand at a time: first those
// of periods that were closed, then those that have ended by now and were not.
func eachKeys(ctx context.Context, tx pgx.Tx, from, to, now time.Time, f func(keys []int64, closed bool) error) error {
	if _, err := tx.Exec(ctx, byIndex); err != nil {
		return err
	}
	for _, states := range [][]string{{"closed", "invoiced"}, {"open", "closing"}} {
		closed := states[0] == "closed"
		if !closed && now.Before(to) {
			to = now
		}
		where := "p.state IN ('" + states[0] + "', '" + states[1] + "')" // as the indexes have it
		for ends, period := from, int64(0); ; {
			rows, err := tx.Query(ctx, `SELECT p.ends, p.id FROM weir.periods p WHERE `+where+` AND p.ends >= $1 AND p.ends < $2 AND (p.ends, p.id) > ($1, $3)
				ORDER BY p.ends, p.id LIMIT $4`, ends, to, period, keysEach)
			if err != nil {
				return err
			}
			var periods []int64
			_, err = pgx.ForEachRow(rows, []any{&ends, &period}, func() error {
				periods = append(periods, period)
				return nil
			})
			if err != nil || len(periods) == 0 {
				if err != nil {
					return err
				}
				break
			}
			rows, err = tx.Query(ctx, "SELECT k.key FROM weir.keys k WHERE k.period_id = ANY ($1) ORDER BY k.key", periods)
			if err != nil {
				return err
			}
			keys, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			for part := range slices.Chunk(keys, keysEach) {
				if err := f(part, closed); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// monthOf is the month of an instant, in UTC.
func monthOf(at time.Time) (from, to time.Time) {
	from = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	return from, from.AddDate(0, 1, 0)
}
