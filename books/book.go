package books

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Book is one number of the billing identity of a closed period, and the rows that it consists of.
type Book struct {
	Account string
	Feature string
	Key     int64
	Starts  time.Time
	Ends    time.Time
	CloseNumbers
	Final  bool
	Number string // overage, invoiced, pending, late, forgiven or not_billable
	Value  int64
	Rows   []BookRow
	More   bool // there are more rows than MaxBookRows
	Sum    int64
}

// MaxBookRows bounds the rows that are shown of a number; Sum is of all.
const MaxBookRows = 2000

// BookRow is a part of a number: what it is, when it was, and how many units of the number it makes.
type BookRow struct {
	At     *time.Time
	What   string
	Detail string
	Units  int64
}

// bookRows are the rows of each number of key $1. They come from what happened, not from the books.
var bookRows = map[string]string{
	"overage": `SELECT h.day::timestamp AT TIME ZONE 'UTC', 'counted on this day', '', h.overage FROM weir.history h WHERE h.key = $1 AND h.overage <> 0
		UNION ALL SELECT a.at, 'adjustment ' || a.id, a.reason || ' (' || a.actor || ')', a.overage FROM weir.adjustments a WHERE a.key = $1 AND a.overage <> 0`,
	"invoiced": `SELECT i.created, 'invoice ' || coalesce(i.number, i.invoice), i.status || ', line ' || l.line || ' of ' || l.quantity || ' units', x.units
			FROM weir.invoiced x JOIN weir.invoice_lines l ON l.line = x.line JOIN weir.invoices i ON i.invoice = l.invoice WHERE x.key = $1
		UNION ALL SELECT l.settled_at, 'credit note', coalesce(l.object, '') || ' ' || coalesce(l.reason, ''), l.units FROM weir.late l WHERE l.key = $1 AND l.state = 'credited'`,
	"pending": `SELECT r.created_at, 'report ' || r.seq || CASE WHEN r.try > 1 THEN ', try ' || r.try ELSE '' END,
				r.state || ', ' || r.attempts || ' attempts' || coalesce(', stamped ' || to_char(r.stamp AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), '') || coalesce(': ' || r.message, ''), r.value
			FROM weir.reports r WHERE r.key = $1 AND NOT r.replaced AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = $1 AND b.final)
		UNION ALL SELECT NULL, 'billable and in no report yet', '', weir.billable(t.overage, t.not_billable, k.highest_maximum) - coalesce(c.upto, 0)
			FROM weir.totals t JOIN weir.keys k ON k.key = t.key LEFT JOIN weir.chains c ON c.key = t.key
			WHERE t.key = $1 AND weir.billable(t.overage, t.not_billable, k.highest_maximum) <> coalesce(c.upto, 0) AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = $1 AND b.final)
		UNION ALL SELECT i.created, 'less what invoice ' || coalesce(i.number, i.invoice) || ' bills', 'line ' || l.line, -x.units
			FROM weir.invoiced x JOIN weir.invoice_lines l ON l.line = x.line JOIN weir.invoices i ON i.invoice = l.invoice
			WHERE x.key = $1 AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = $1 AND b.final)
		UNION ALL SELECT l.settled_at, 'less a credit note', coalesce(l.object, ''), -l.units FROM weir.late l
			WHERE l.key = $1 AND l.state = 'credited' AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = $1 AND b.final)
		UNION ALL SELECT f.at, 'less what was written off', f.reason || ' (' || f.actor || ')', -f.units FROM weir.forgiven f
			WHERE f.key = $1 AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = $1 AND b.final)`,
	"late": `SELECT l.created_at, 'late usage ' || l.id, l.state || ', policy ' || l.policy || ', after ' || l.cause || coalesce(': ' || l.error, ''), l.units
		FROM weir.late l WHERE l.key = $1 AND l.state IN ('held', 'stored', 'sent')`,
	"forgiven": `SELECT f.at, 'written off', f.cause || ': ' || f.reason || ' (' || f.actor || ')', f.units FROM weir.forgiven f WHERE f.key = $1
		UNION ALL SELECT NULL, 'over the highest maximum that was in force', 'maximum ' || k.highest_maximum,
			t.overage - t.not_billable - weir.billable(t.overage, t.not_billable, k.highest_maximum)
			FROM weir.totals t JOIN weir.keys k ON k.key = t.key
			WHERE t.key = $1 AND t.overage - t.not_billable > weir.billable(t.overage, t.not_billable, k.highest_maximum)`,
	"not_billable": `SELECT u.last_at, u.cause, 'booked on ' || u.day || ' (UTC)', u.units FROM weir.unbilled u WHERE u.key = $1 AND u.units <> 0`,
}

// BookNumbers are the numbers of the identity in its order, as ReadBook takes them.
func BookNumbers() []string {
	return []string{"overage", "invoiced", "pending", "late", "forgiven", "not_billable"}
}

// ReadBook reads the rows of one number of a closed period's key, in one snapshot. A key without books, or a number of
// another name, is usage.ErrNotFound.
func ReadBook(ctx context.Context, db usage.DB, key int64, number string) (*Book, error) {
	sql, ok := bookRows[number]
	if !ok {
		return nil, fmt.Errorf("read the book: no number is called %q: %w", number, usage.ErrNotFound)
	}
	b := &Book{Key: key, Number: number}
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `SELECT a.account, f.name, p.starts, coalesce(p.cut, p.ends), b.overage, b.invoiced, b.pending, b.late, b.forgiven, b.not_billable, b.final
			FROM weir.books b JOIN weir.keys k ON k.key = b.key JOIN weir.accounts a ON a.id = k.account_id JOIN weir.features f ON f.id = k.feature_id
			JOIN weir.periods p ON p.id = k.period_id WHERE b.key = $1`, key).
			Scan(&b.Account, &b.Feature, &b.Starts, &b.Ends, &b.Overage, &b.Invoiced, &b.Pending, &b.Late, &b.Forgiven, &b.NotBillable, &b.Final)
		if errors.Is(err, pgx.ErrNoRows) {
			return usage.ErrNotFound
		}
		if err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "SELECT coalesce(sum(x.units), 0)::bigint FROM ("+sql+") x(at, what, detail, units)", key).Scan(&b.Sum); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "SELECT x.at, x.what, x.detail, x.units FROM ("+sql+") x(at, what, detail, units) ORDER BY x.at DESC NULLS FIRST, x.what LIMIT $2", key, MaxBookRows+1)
		if err != nil {
			return err
		}
		b.Rows, err = pgx.CollectRows(rows, pgx.RowToStructByPos[BookRow])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the book: %w", err)
	}
	if len(b.Rows) > MaxBookRows {
		b.Rows, b.More = b.Rows[:MaxBookRows], true
	}
	b.Value = map[string]int64{
		"overage": b.Overage, "invoiced": b.Invoiced, "pending": b.Pending, "late": b.Late, "forgiven": b.Forgiven, "not_billable": b.NotBillable,
	}[number]
	return b, nil
}
